"""A decoder layer: its products, and the operations between them (norms, rotary embedding, KV cache, gates).

operations.py dispatches by device. plain.py defines each operation and its rounding in torch; triton_decoder.py does
each in one launch, and products of a few tokens. On a CPU layers.py does a layer in two kernels around attention, or
all layers with attention in one kernel; its products are those of products.py.
"""
