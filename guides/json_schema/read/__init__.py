"""Reading: JSON text or objects in, checked documents out.

In: a schema, resources by URI, contexts. Out: `Documents`, whose `Subschema`s know their draft, their place and what
they refer to. Says nothing of values yet. Imports no other room.
"""
