"""Automata of JSON strings, on top of `guides/automata`: patterns, formats, lengths and exclusions combined.

In: the syntax of patterns, and `String`s of the algebra. Out: states, on demand or all at once, with JSON spellings of
the characters between them. Knows nothing of graphs. Imports read and the algebra's cases.
"""
