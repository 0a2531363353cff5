"""Numbers: a `Number` of the algebra in, its JSON texts out: every one (`notation`), or the `plain` ones.

Those that take too many states are `numerals`, told as far as texts come.
"""
