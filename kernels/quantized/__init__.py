"""Products with weights that are as files of GGUF have them, and states in int8: formats < tiles < products."""
