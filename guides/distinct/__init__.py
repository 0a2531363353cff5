"""Values that may be written once only: those of unique items, remembered in a guide's states beside its chart's.

`values` has what equal values have in common, and sets of them; `frames` and `trail` read texts into what is in
progress, with the values that it may come to; `summaries` and `effects` say what tokens do there, whatever the values
are; `settled` has places at which the chart tells what may follow, so that texts are read later, if at all;
`cardinality` says how many values a state may come to, and `continuations` whether and how a text can go on;
`remembering_guide` has the states, `distinct_guide` their masks and distances.
"""
