"""Probabilities of the values of an answer: where they stand (`places`), alternatives (`values`), and their chances."""
