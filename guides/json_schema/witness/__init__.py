"""Witnesses: which formulas have an instance, and a small one of each.

In: the algebra's normal forms. Out: values, the cases that have any, where a schema contradicts itself, and members of
sets of strings, with the `StringLanguage` that the algebra asks. Imports automata, algebra and read.
"""
