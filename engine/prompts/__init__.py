"""Prompts: what callers may pass (`given`), the tokens that a model reads of it (`encoding`), and schemas in them."""

from .description import describe

__all__ = ["describe"]
