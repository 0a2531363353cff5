"""A vocabulary for the documented grammars: all bytes, and pieces that go across the borders of their terminals."""

from random import Random

from trellm import Vocabulary

from .test_documented import GOOD


def _pieces(count: int) -> list[bytes]:
    texts = [text.encode() for examples in GOOD.values() for text in examples]
    found = {text[at : at + size] for text in texts for size in (2, 3, 5) for at in range(len(text) - size + 1)}
    return Random(0).sample(sorted(found), count)


PIECES = _pieces(500)
EOS = 256 + len(PIECES)
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), *PIECES, None], eos_ids=[EOS])
