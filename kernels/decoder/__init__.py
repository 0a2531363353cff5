"""What lies between the products of a decoder's layer: norms, rotation and writing of keys and values, gates.

operations.py chooses by the device: plain.py says in torch operations what each computes, and in which order it
rounds; triton_norm.py, triton_heads.py and triton_gate.py do it in one launch each, and triton_matvec.py multiplies
a few tokens.
"""
