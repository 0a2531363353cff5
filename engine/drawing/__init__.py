"""Draws that are right about whole texts: attempts with a trie of what was tried, and weighted particles."""
