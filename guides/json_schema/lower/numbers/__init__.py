"""Numbers: a `Number` of the algebra in, its JSON texts out: every one (`notation`), or the `plain` ones."""
