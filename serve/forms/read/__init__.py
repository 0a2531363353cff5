"""What a model writes in its form, read as it comes: thinking, content and calls."""
