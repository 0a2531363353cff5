"""Quotations of documents: their boundaries, their use in grammars and JSON, and their places."""
