"""Samplers that are exact about whole texts: rejection sampling with a trie of earlier attempts, and weighted
particles."""
