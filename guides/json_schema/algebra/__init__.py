"""The algebra: what subschemas say of values, as formulas and as sets.

In: `Subschema`s. Out: a `Formula` for each, and its normal form `Normal`: for every JSON type the cases that a value
may be (`cases`), which the file of that type intersects and complements. What a set of strings has is asked of a
`StringLanguage`. Imports read.
"""
