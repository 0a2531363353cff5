"""Drafts: guesses of how texts go on, read in one pass with what is known of them, and kept as far as they are right.

trail guesses by what stands in a text, foreseen by what its constraint says, second by a smaller model; odds says how
likely guesses are, costs what it takes to read them; drafter puts them behind what a step reads, and takes what has
come of them.
"""
