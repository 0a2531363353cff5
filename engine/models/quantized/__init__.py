"""Quantization of transformers models on loading. Imports: modules by conversion, that by saved, and all by loading."""
