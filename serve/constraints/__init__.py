"""Constraints of requests: what was asked for in whichever dialect, and its compilation beside all that runs."""
