"""Arrays of unique items, and objects of unique names: guides whose states remember the values written so far.

`values` has canonical keys of values, and sets of them; `frames` and `trail` read texts into open containers and the
piece in progress; `summaries` and `effects` tabulate what tokens do there, independently of the values; `settled` finds
places where the chart determines the mask, so that tokens need not be read at once; `cardinality` bounds the number of
values that a state can still produce, and `continuations` decides whether and how a text can be completed;
`remembering_guide` has the states, `distinct_guide` their masks and distances.
"""
