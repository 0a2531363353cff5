"""Models of GGUF files: file < {tokenizer, architectures} < loading."""
