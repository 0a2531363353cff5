"""Finite automata, over classes of characters and over bytes: made of syntax, side by side, as small as can be.

charsets.py has the sets of characters and atoms.py the classes; positions.py makes subsets of a node's positions, when
they are reached, product.py reads several side by side, and conditions.py has them as tables, with complements and
without given texts. byte_table.py goes from characters to bytes and character_rows.py back; dfa.py has whole charts as
tables, fsm.py takes machines of interegular, and minimise.py serves all of them.
"""
