"""The ends of a step of lanes, rows that go on without the host: layout.py in NumPy, triton_lanes.py on a GPU.

A *record* is what is remembered on the device of a state of a constraint: its mask, which characters lead back to it,
and the records after tokens that were met there. Record 0 is that of free text.
"""
