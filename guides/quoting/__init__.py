"""Where quotations may begin and end in documents, what is quoted in grammars and JSON, and where it was found."""
