"""Models of GGUF files: file < loading."""
