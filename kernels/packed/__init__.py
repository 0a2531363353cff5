"""Products with weights that stay packed as files of GGUF have them, and states in int8: formats < tiles < products."""
