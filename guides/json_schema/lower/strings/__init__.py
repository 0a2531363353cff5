"""Strings: a `String` of the algebra in, nodes from its opening to behind its closing quote out (`lowering`)."""
