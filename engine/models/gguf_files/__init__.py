"""Models of GGUF files: file < {tokenizer, architectures, modules} < loading."""
