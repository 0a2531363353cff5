"""Beginning and end of a step of slots, the rows of a device batch: layout.py in NumPy, triton_batch.py on a GPU.

A *record* is the row of a constraint's state in the state table on the device: its mask, the characters that lead back
to it, and the records after tokens that were met there. Record 0 is that of free text.
"""
