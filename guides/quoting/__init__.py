"""Quotations of documents: where they may begin and end, in grammars and JSON, and where they were found."""
