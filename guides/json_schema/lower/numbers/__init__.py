"""Numbers: a `Number` of the algebra in, its JSON texts out (`texts`), in any spelling or in the plain one."""
