"""Texts that are drawn: how far each has come, what may follow, and whether it can still be one of the target's."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, replace

import numpy as np

from ...errors import ModelError
from ...guides.protocol import Mask
from ...tokenizers_adapter import Vocabulary
from ..decode.row import Request
from ..stopping import FinishReason


@dataclass(frozen=True, slots=True, eq=False)
class Path:
    """A beginning of a text, or a finished one.

    inside: how many of the tokens lie within the end of a prompt that is healed
    is_dead: whether its budget is used up and it is no text of the constraint
    """

    tokens: tuple[int, ...]
    text: bytes
    state: int
    inside: int = 0
    finish: FinishReason | None = None
    is_dead: bool = False

    @property
    def said(self) -> str:
        """Its whole characters."""
        return codecs.getincrementaldecoder("utf-8")("replace").decode(self.text)


class Walk:
    """How the texts of a request go on.

    A text ends with EOS, of which the model is asked also where nothing else may follow; where it is free but for
    goals, its budget ends it too, provided that the goals are met.
    """

    def __init__(self, request: Request, vocabulary: Vocabulary) -> None:
        self.request = request
        self._vocabulary = vocabulary
        self._eos = frozenset(vocabulary.eos_ids)

    def first(self) -> Path:
        """The beginning of all texts."""
        return Path((), b"", self.request.first_state)

    def left(self, path: Path) -> int:
        """How many more tokens the output may have."""
        return self.request.budget - len(path.tokens) + path.inside

    def mask(self, path: Path) -> Mask | None:
        """The tokens that may follow; None if all may.

        Whether the rest would fit into the budget is told here of the last token only, since distances may be more
        than it takes.
        """
        guide_cache, left = self.request.guide_cache(path.state), self.left(path)
        if guide_cache is None:
            return None
        if left == 0:
            mask = np.zeros((self._vocabulary.size + 31) // 32, np.uint32)
            for token in self._eos if guide_cache.guide.is_accepting(path.state) else ():
                mask[token >> 5] |= np.uint32(1 << (token & 31))
            return mask
        return guide_cache.mask(path.state, self.request.stop_ids, 1 if left == 1 else None)

    def closing(self, path: Path) -> Mask | None:
        """Of what may follow, the tokens after which the rest surely fits; None where that is no question."""
        guide_cache, left = self.request.guide_cache(path.state), self.left(path)
        if guide_cache is None or left < 2 or not guide_cache.tight(path.state, left):
            return None
        return guide_cache.mask(path.state, self.request.stop_ids, left)

    def after(self, path: Path, token: int) -> Path:
        """The text with one more token that may follow."""
        request = self.request
        if token in self._eos:
            return replace(path, finish="complete")
        if request.stops(path.state, token):
            return replace(path, finish="stop")
        text = path.text + request.output(path.state, self._vocabulary.tokens[token] or b"")
        inside = path.inside + (not request.is_output(path.state, token))
        guide_cache = request.guide_cache(path.state)
        state = path.state if guide_cache is None else guide_cache.guide.advance(path.state, token)
        found = Path((*path.tokens, token), text, state, inside)
        if request.stop and (at := request.stop.find(text, len(path.text))) >= 0:
            return replace(found, text=text[:at], finish="stop")
        if self.left(found) > 0:
            return found
        behind = request.guide_cache(state)
        if behind is not None and not behind.guide.is_accepting(state):
            return replace(found, is_dead=True)
        return replace(found, finish="length") if request.may_be_cut else found

    def unusable(self, path: Path) -> ModelError:
        """What is wrong where the model's logits are no distribution."""
        place = f"step {len(path.tokens)} of prompt {self.request.number}"
        return ModelError(f"the model's logits at {place} are NaN or infinite, or give every token the probability 0")
