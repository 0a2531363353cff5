"""Quoting a text: tree.py makes the tree of its suffixes, quoting.py walks it, and makes a graph of it."""
