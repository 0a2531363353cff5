"""Prompts cut back to where no token of the output can cross into them, for hosts that take token ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..checks import brief, items_of
from ..errors import OptionError
from ..guides.healing.aligned_guide import AlignedGuide
from ..guides.healing.crossing import Crossings
from ..guides.protocol import ByteGuide, Guide
from ..tokenizers_adapter import Vocabulary


class Healed(NamedTuple):
    """A prompt that was cut back.

    ids: what the model reads; guide: what may then follow: the prompt's end, and a text of the guide
    tail: the bytes of that end, with which the output begins; empty where nothing was cut
    """

    ids: list[int]
    guide: Guide
    tail: bytes

    def text(self, output: Sequence[int]) -> str:
        """The text of the guide in the output tokens, those behind `ids`: what they spell, without the prompt's end."""
        data = self.guide.vocabulary.decode(output)
        if not data.startswith(self.tail):
            raise OptionError(
                f"the output {brief(data)} does not begin with the prompt's end {brief(self.tail)}; pass the tokens "
                "that were generated behind `ids`, chosen with `guide`"
            )
        return data[len(self.tail) :].decode(errors="replace")


def heal(guide: Guide, prompt: Sequence[int], begin: int | None = None, crossings: Crossings | None = None) -> Healed:
    """A prompt without the tokens that a token of the output may cross into, and the guide with what was cut in front.

    prompt: token ids; begin: the id that begins every text (BOS), for a prompt that is empty or cut away completely;
    without it the first token stays. crossings: those of the guide, to be shared by many prompts.
    Raises OptionError for a guide that does not read bytes, or for what are no token ids.
    """
    if not isinstance(guide, ByteGuide):
        raise OptionError(f"healing needs a guide that reads bytes, see guides.ByteGuide, not {brief(guide)}")
    ids = _token_ids(prompt, guide.vocabulary)
    found = Crossings(guide) if crossings is None else crossings
    kept = found.cut(ids)
    first = ids[:kept] or (ids[:1] if begin is None else [begin])
    tail = guide.vocabulary.decode(ids[kept if kept or begin is not None else 1 :])
    if not tail:
        return Healed(ids or first, guide, b"")
    return Healed(first, AlignedGuide(guide, tail, crossings=found), tail)


def _token_ids(prompt: Any, vocabulary: Vocabulary) -> list[int]:
    ids: Any = prompt.tolist() if hasattr(prompt, "tolist") else prompt
    found = items_of(ids)
    if found is None or not all(type(token) is int and 0 <= token < vocabulary.size for token in found):
        raise OptionError(
            f"a prompt to heal is a list of token ids from 0 to {vocabulary.size - 1:,}, not {brief(prompt)}"
        )
    return found
