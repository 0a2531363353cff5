"""Shapes of request bodies, validated by pydantic, and their translation for the engine."""
