"""Masks and logits: the functions of `trellm.kernels`.

contracts.py checks arguments once for all backends. mask.py, select.py and blocks.py have the functions and their CPU
kernels; triton_mask.py, triton_scan.py and triton_select.py are for GPUs. reference.py defines the results in plain
NumPy, and warmup.py compiles the CPU kernels.
"""
