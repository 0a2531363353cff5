"""What was expected, in words."""
