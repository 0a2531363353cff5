"""The decode loops: rows of a batch, their caches and constraints, what is chosen, and when each of them ends."""
