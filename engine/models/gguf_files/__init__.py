"""Models of GGUF files: metadata and tensors (file), tokenizers, architectures, networks for kernels, loading."""
