"""What the server answers to: one module for each kind of request."""
