"""Quoting a text: tree.py makes the tree of its suffixes, quoting.py walks it, unfolding.py makes a graph of it."""
