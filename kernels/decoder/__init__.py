"""A decoder's layer: its products, and what lies between them: norms, rotation, writing of keys and values, gates.

operations.py chooses by the device: plain.py says in torch operations what each computes, and in which order it
rounds; triton_decoder.py does it in one launch each, and multiplies a few tokens. On a CPU layers.py does all of it
but attention in two kernels, with the products of products.py, or reads all layers in one, attention with them.
"""
