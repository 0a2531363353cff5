"""What may be written once only: values of unique items, remembered in a guide's states beside those of its chart.

`written` has the values so far, `trail` reads texts and says what is in progress, `heads` has what tokens tell of that,
`ways` searches for what can still be written, `distinct_guide` is the guide.
"""
