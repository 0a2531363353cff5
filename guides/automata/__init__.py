"""Finite automata over classes of characters and over bytes: construction from syntax, products, minimisation.

charsets.py has character sets, their partition into classes, and the mapping from bytes to characters.
positions.py has the lazy subset construction of a node, and products; conditions.py builds whole automata as tables,
with complements and without given texts. byte_table.py turns characters into bytes, also for machines of
interegular; dfa.py turns whole charts into tables, and minimises automata.
"""
