"""Strings that must differ, in arrays: what has been written, what is being written, and what tokens do to that.

`layout` has the arrays, `strings` the strings and sets of them, `places` where texts are. They know nothing of JSON.
Kernels that change the arrays hold Python's lock: so `step_on` can be called without any other.
"""
