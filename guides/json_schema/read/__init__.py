"""Reading: from JSON text or objects to checked documents.

In: a schema, resources by URI, contexts. Out: `Documents`, whose `Subschema`s know their draft, their place and their
references. Knows nothing of instances. Imports no other room.
"""
