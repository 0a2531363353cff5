"""Lowering: the texts of a schema's values as a graph, built on demand.

In: a `CompiledSchema` and a `Form`. Out: rules of a `Graph`, one for each formula, and the bytes of short texts. Each
JSON type has its file or folder; they build on `rules`. Imports all other rooms.
"""
