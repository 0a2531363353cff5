"""The device batch: sequences continue on the device by its state table while the host is a launch behind.

Modules build on each other: state_table, slots, batch. A backend runs launches: backend.py on a CPU for tests,
graphs.py on a GPU.
"""
