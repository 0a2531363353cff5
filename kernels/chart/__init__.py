"""The chart of a grammar: what its states are, how they are reached, and how far they are from the end.

layout.py says what the arrays hold. interning.py numbers contents, sets among them, return_sets.py the open calls of a
state; closure.py closes a set of items and rows.py reads bytes. compaction.py makes room; cost.py knows how
many bytes and tokens are left to the end.
"""
