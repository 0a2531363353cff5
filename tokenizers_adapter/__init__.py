"""Adapter from any tokenizer to the exact bytes of every token, and their trie."""

from .text_stream import TextStream
from .trie import Trie
from .vocabulary import Vocabulary

__all__ = ["TextStream", "Trie", "Vocabulary"]
