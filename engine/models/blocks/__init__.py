"""Keys and values in blocks, and attention over these: storage < step < attention; reach says what a token sees."""
