"""What may be written once only: values of unique items, remembered in a guide's states beside those of its chart.

`words` and `rivals` have what equal values have in common, and those that one in progress may come to; `written` the
values so far; `frames` and `trail` read texts into what is in progress; `heads` and `effects` say what tokens do to
that; `variety` and `ways` what can still be written; `remembering_guide` has the states, `distinct_guide` is the guide.
"""
