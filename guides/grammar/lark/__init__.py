"""The language of Lark: a text is read, names are told apart, and rules and terminals become a grammar."""
