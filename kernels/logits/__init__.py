"""Masks and logits: what `trellm.kernels` offers.

contracts.py checks arguments, once and alike for every backend. mask.py and select.py hold the functions; blocks.py,
scan.py, topk.py and draw.py are compiled for CPUs, triton_mask.py, triton_scan.py and triton_select.py for GPUs;
reference.py says slowly and obviously what all of them compute, and warmup.py compiles what is for CPUs.
"""
