"""A prompt's end in front of any guide."""
