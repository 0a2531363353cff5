"""What may be written once only: values of unique items, remembered in a guide's states beside those of its chart.

`words` and `rivals` have what equal values have in common, and those that one in progress may come to; `written` the
values so far; `frames` and `trail` read texts into what is in progress; `unread` has items that can come to no earlier
one, which are read when they end; `heads` and `effects` say what tokens do, `moves` at places of one kind, so that
most steps are some lookups, `flat` in arrays, where it is all strings; `variety` and `ways` what can still be written;
`remembering_guide` has the states, `refusing_guide` their masks, `distinct_guide` is the guide.
"""
