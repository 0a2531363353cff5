"""Products with weights as files of GGUF have them, states in int8 or float32: formats < floats < tiles < products."""
