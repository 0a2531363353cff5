"""Lark's grammar notation: parsing, name resolution, and conversion to a grammar."""
