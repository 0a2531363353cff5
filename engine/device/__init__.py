"""Steps that the host need not wait for: sequences go on by what is known on the device.

state_table < slots < batch, on a backend: that of backend.py on the CPU, where all of it is tested, graphs.py on a GPU.
"""
