"""Models of transformers with quantized weights: modules < conversion < saved < loading."""
