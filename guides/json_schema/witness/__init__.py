"""Witnesses: which formulas have an instance, and a small one of each.

In: the algebra's normal forms. Out: instances, satisfiable cases, the place of contradictions in a schema, and members
of sets of strings; also the `StringLanguage` of the algebra. Imports automata, algebra and read.
"""
