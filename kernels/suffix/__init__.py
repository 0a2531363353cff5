"""Quotations of a context: tree.py builds its suffix tree, quoting.py walks it, and unfolds it into a graph."""
