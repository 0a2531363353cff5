"""Quantization of transformers models on loading: modules, conversion of weights, saved weights, loading."""
