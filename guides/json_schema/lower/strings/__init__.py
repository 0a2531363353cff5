"""Strings: from a `String` of the algebra to nodes between its opening and closing quotes (`lowering`)."""
