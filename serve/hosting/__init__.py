"""Models of a server: their registration, loading, and shared state."""
