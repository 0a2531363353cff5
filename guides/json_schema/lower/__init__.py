"""Lowering: the texts of a schema's values as a graph, worked out as far as the automaton walks into it.

In: a `CompiledSchema` and a `Form`. Out: rules of a `Graph`, one for each formula, and the bytes of short texts. Each
JSON type has its file or folder; what they build on is in `rules`. Imports all other rooms.
"""
