"""Models of GGUF files: {file, network} < {tokenizer, architectures} < loading."""
