"""Models of a server: which there are, which are in memory, and what they share."""
