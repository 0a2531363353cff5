"""Lifting of byte states to tokens: masks, distances, and completion within a budget."""
