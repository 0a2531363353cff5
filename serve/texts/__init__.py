"""Texts on their way: from a request to the engine's thread, and what becomes of them back to the event loop."""
