"""Values that may be written once only: those of unique items, remembered in a guide's states beside its chart's.

`values` has what equal values have in common, sets of them, and those that one in progress may come to; `frames` and
`trail` read texts into what is in progress; `settled` has places at which the chart tells what may follow, so that
texts are read later, if at all; `summaries` and `effects` say what tokens do elsewhere; `cardinality` how many values a
state may come to, and `continuations` whether and how a text can go on; `remembering_guide` has the states,
`distinct_guide` their masks and distances.
"""
