"""The chart of a grammar: its states, their transitions, and the costs from states to the end of a text.

layout.py describes the arrays. interning.py interns contents and sets of bits, return_sets.py the open calls of a
state.
closure.py closes sets of items, rows.py makes transition rows. compaction.py frees memory. cost.py computes the fewest
bytes and tokens to the end. copying.py copies fragments into graphs.
"""
