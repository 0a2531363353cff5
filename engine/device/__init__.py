"""Steps that the host need not wait for: sequences go on by what is known on the device.

state_table < slots < batch, on a backend: host_backend.py on the CPU, where all of it is tested, graphs.py on a GPU,
which captures what capturing.py lets it.
"""
