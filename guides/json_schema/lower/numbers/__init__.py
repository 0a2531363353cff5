"""Numbers: a `Number` of the algebra in, the syntax of its JSON texts out (`notation.number_node`)."""
