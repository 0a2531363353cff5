"""Messages of what was expected, in words."""
