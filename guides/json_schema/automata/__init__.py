"""Strings of JSON by `guides/automata`: what patterns, formats, lengths and exclusions have in common.

In: the syntax of patterns, and `String`s of the algebra. Out: states, step by step or all at once, with the characters
between them as JSON spells them. Knows nothing of graphs. Imports read and the algebra's cases.
"""
