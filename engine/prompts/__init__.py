"""Prompts: input types (`given`), tokenization (`encoding`), and schemas in prompts (`description`)."""

from .description import describe

__all__ = ["describe"]
