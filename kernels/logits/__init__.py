"""Masks and logits: what `trellm.kernels` offers.

contracts.py checks arguments, once and alike for every backend. mask.py and select.py hold the functions and what is
compiled for CPUs, with blocks.py; triton_mask.py, triton_scan.py and triton_select.py are for GPUs;
reference.py says slowly and obviously what all of them compute, and warmup.py compiles what is for CPUs.
"""
