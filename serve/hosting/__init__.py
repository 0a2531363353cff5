"""Models of a server: registration, loading and unloading, shared state."""
