"""Finite automata, over classes of characters and over bytes: made of syntax, side by side, as small as can be.

charsets.py has the sets of characters, the classes that they divide into, and the way from bytes to characters;
positions.py makes subsets of a node's positions, when they are reached, and reads several side by side; conditions.py
has them as tables, with complements and without given texts. byte_table.py goes from characters to bytes, also for
machines of interegular; dfa.py has whole charts as tables, and the smallest automata of all of them.
"""
