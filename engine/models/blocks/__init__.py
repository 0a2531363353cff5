"""The KV cache in blocks, and attention over it. Imports: storage by step, that by attention; reach has attention
spans."""
