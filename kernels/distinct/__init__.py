"""Strings that must differ, in arrays: what has been written, what is being written, and what tokens do to that.

`layout` has the arrays, `strings` the strings and sets of them, `places` where texts are. They know nothing of JSON.
"""
