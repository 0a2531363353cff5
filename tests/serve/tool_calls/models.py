"""Models of which only the vocabulary, the tokenizer and its chat template are there."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
from trellm import Vocabulary
from trellm.guides import DEAD, Guide, mask_within
from trellm.serve import tool_calls

EOS = 256


class Tokenizer:
    """Every byte is a token, and markers are, as far as there are any."""

    def __init__(self, markers: dict[str, int], chat_template: Any) -> None:
        self.markers = markers
        self.chat_template = chat_template

    def convert_tokens_to_ids(self, text: str) -> int | None:
        return self.markers.get(text)

    def convert_ids_to_tokens(self, token: int) -> str | None:
        return next((text for text, each in self.markers.items() if each == token), None)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The bytes, markers as tokens."""
        assert not add_special_tokens
        data, found = text.encode(), list[int]()
        while data:
            mark = next((each for each in self.markers if data.startswith(each.encode())), None)
            found.append(data[0] if mark is None else self.markers[mark])
            data = data[1 if mark is None else len(mark.encode()) :]
        return found


class Model:
    """markers: special tokens; ends: those of them that end texts"""

    def __init__(self, markers: tuple[str, ...] = (), ends: tuple[str, ...] = (), template: Any = None) -> None:
        ids = {text: EOS + 1 + number for number, text in enumerate(markers)}
        tokens = [*(bytes([byte]) for byte in range(256)), *[None] * (1 + len(markers))]
        special = [token for text, token in ids.items() if text not in ends]
        self.vocabulary = Vocabulary(tokens, [EOS, *(ids[text] for text in ends)], special)
        self.tokenizer = Tokenizer(ids, template)


def markers_of(name: str) -> tuple[str, ...]:
    """The markers of a family, those of thinking among them."""
    family = tool_calls.FORMATS[name]
    thinking = () if name == "harmony" or family.thinking is None else family.thinking
    return tuple(dict.fromkeys([*family.markers, *thinking]))


TEXT = Model()
"""Without special tokens: markers are text."""
TOKENS = {
    name: Model(markers_of(name), ("<|call|>", "<|return|>") if name == "harmony" else ()) for name in tool_calls.NAMES
}
"""By family: markers are special tokens."""


def form_of(name: str, *, is_text: bool = True, thinks: bool = False) -> tool_calls.ToolCallFormat:
    """The form of a family for one of the models above."""
    model = TEXT if is_text else TOKENS[name]
    return tool_calls.ToolCallFormat(
        tool_calls.FORMATS[name], model.tokenizer, model.vocabulary, thinks=thinks or name == "harmony"
    )


def accepts(guide: Guide, tokens: list[int]) -> bool:
    """Whether tokens are a text of the guide."""
    state = guide.start
    for token in tokens:
        state = guide.advance(state, token)
        if state == DEAD:
            return False
    return guide.is_accepting(state)


def read(plan: tool_calls.AnswerPlan, tokens: list[int], random: Random | None = None) -> tool_calls.ParsedMessage:
    """What a reader makes of tokens that come in pieces."""
    reader = plan.reader(lambda: "id")
    deltas: list[tool_calls.Delta] = []
    at = 0
    while at < len(tokens):
        end = at + (1 if random is None else random.choice([1, 1, 2, 5, 30, 1000]))
        deltas += reader.feed(tokens[at:end])
        at = end
    deltas += reader.finish()
    assert not reader.finish()
    texts = [delta for delta in deltas if not isinstance(delta, tool_calls.CallEndDelta)]
    assert all(getattr(delta, "text", "some") for delta in texts), "an empty piece"
    return reader.message


def drawn(guide: Guide, random: Random, budget: int) -> list[int]:
    """A random text of at most so many tokens."""
    state, found = guide.start, list[int]()
    for left in range(budget, -1, -1):
        allowed = np.unpackbits(mask_within(guide, state, left).view(np.uint8), bitorder="little")
        token = random.choice(np.flatnonzero(allowed).tolist())
        if token in guide.vocabulary.eos_ids:
            break
        found.append(token)
        state = guide.advance(state, token)
    assert guide.is_accepting(state)
    return found
