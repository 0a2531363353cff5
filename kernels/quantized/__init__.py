"""Products of GGUF weights with states in int8 or float32; imports go formats < floats < tiles < products."""
