"""Sending to other processes, as a description: what made a thing, which is made again there, once."""
