"""Any tokenizer -> the exact bytes of every token, and their prefix tree."""

from .text_stream import TextStream
from .trie import Trie
from .vocabulary import Vocabulary

__all__ = ["TextStream", "Trie", "Vocabulary"]
