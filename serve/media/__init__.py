"""Images of requests: read from data URLs, and from the web where the operator allows it."""
