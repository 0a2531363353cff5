"""The algebra: the conditions of subschemas on values, as formulas and as sets.

In: `Subschema`s. Out: a `Formula` for each, and its normal form `Normal`: for every JSON type the cases that a value
may be (`cases`), which that type's module intersects and complements. Questions about sets of strings go to a
`StringLanguage`. Imports read.
"""
