"""Models whose attention is their own, run by transformers' code: texts are copied out of blocks into its caches.

passes < runner run decoders, sources is what encoder-decoder models look at beside their own text.
"""
