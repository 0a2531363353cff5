"""Models of GGUF files. Imports: file and network by tokenizer and architectures, and all by loading."""
