"""Numbers: from a `Number` of the algebra to its JSON texts (`texts`), in "any" or "plain" spelling."""
