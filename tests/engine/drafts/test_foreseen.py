"""Drafts of the text that a constraint leaves, where several tokens may spell it."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from trellm import Sample, Vocabulary, generate
from trellm.errors import LimitError
from trellm.guides import RegexGuide

from ..support import (
    QUOTED,
    SPELT,
    AcceptanceRates,
    DecoderModel,
    DraftHistory,
    ForcedDrafts,
    GuideCache,
    drafts_pay,
)

SCHEMA = {
    "type": "object",
    "properties": {"the month": {"type": "integer"}, "the inn on the north": {"enum": ["the one", "none"]}},
    "required": ["the month", "the inn on the north"],
    "additionalProperties": False,
}


class LongestFirst(DecoderModel):
    """A model that likes long tokens, as those like them that were trained on what a tokenizer writes."""

    lengths: Any = None

    def logits(self, hidden: Any, rows: Any, ids: Any) -> torch.Tensor:
        found = super().logits(hidden, rows, ids)
        return found if self.lengths is None else found + 9 * (self.lengths if ids is None else self.lengths[ids])


@pytest.fixture(scope="module")
def model(hugging_face: Any, tokenizer: Any) -> Iterator[LongestFirst]:
    network = hugging_face("llama").double()
    model = LongestFirst(network, tokenizer)
    model.lengths = torch.tensor([len(token or b"") for token in model.vocabulary.tokens], dtype=torch.float32)
    yield model
    network.float()


def test_names_are_read_as_the_tokenizer_writes_them(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = generate.json(model, SCHEMA, whitespace="compact")
    without = generator.run("on", max_tokens=70, draft=False)
    drafts_pay(monkeypatch, lambda probability: probability > 0.3)
    assert without.steps > 20
    for given in ({}, {"search": Sample(temperature=0.3), "seed": 2}):
        expected = generator.run("on", max_tokens=70, draft=False, **given)
        found = generator.run("on", max_tokens=70, **given)
        assert found.token_ids == expected.token_ids
        assert found.steps < 0.7 * expected.steps


class Asked(RegexGuide):
    """A guide that knows in which states it was asked for certain bytes."""

    def __init__(self, pattern: str, vocabulary: Vocabulary) -> None:
        super().__init__(pattern, vocabulary)
        self.asked: list[int] = []

    def certain_bytes(self, state: int, most: int) -> bytes:
        self.asked.append(state)
        return super().certain_bytes(state, most)


@pytest.mark.parametrize("pays", [True, False])
def test_where_it_does_not_pay_nothing_is_looked_up(model: Any, pays: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts_pay(monkeypatch, lambda probability: pays)
    guide = Asked("([ab] the month, the inn on the north; ){3}", model.vocabulary)
    result = generate.Generator(model, guide).run("on", max_tokens=120)
    assert (len(guide.asked) <= 1 + result.steps // 32) == (not pays)


def test_what_is_certain(tokenizer: Any, model: Any) -> None:
    guide = RegexGuide("(the|inn) on the north, ?(oné)x{90}", model.vocabulary)
    cache = GuideCache(guide, 0)
    for text, ahead in [
        (b"", b""),
        (b"t", b"he on the north,"),
        (b"inn", b" on the north,"),
        (b"inn on the north,", b""),
        (b"inn on the north, ", "oné".encode() + b"x" * 60),
        (b"inn on the north, on", "é".encode() + b"x" * 62),
    ]:
        state = guide.start
        for byte in text:
            state = guide.after_bytes(state).item(byte)
        assert cache.forced_bytes(state) == cache.forced_bytes(state) == ahead
        assert cache.behind(b"on ").forced_bytes(len(b"on ") + state) == ahead


class Costly(RegexGuide):
    """A guide that finds too much to do to say what is certain."""

    def certain_bytes(self, state: int, most: int) -> bytes:
        raise LimitError("much")


def test_limits_are_the_text_s_own(model: Any) -> None:
    cache = GuideCache(Costly("the on", model.vocabulary), 0)
    assert cache.forced_bytes(cache.guide.start) == b""


def test_the_likelier_draft_comes_first(model: Any) -> None:
    encode = model.tokenizer.encode
    trail = DraftHistory([*encode("the"), *encode("on"), *encode("the")], AcceptanceRates())
    cache = GuideCache(RegexGuide(" north", model.vocabulary), 0)
    ForcedDrafts(model).look_up(trail, cache, cache.guide.start, lambda kind: True)
    spelt = [(token, SPELT) for token in encode(" north")]
    assert trail.drafts(9)[: len(spelt)] == spelt and trail.ahead[QUOTED] == []
    for _ in range(60):
        trail.odds.note(SPELT, is_right=False)
    assert trail.drafts(9)[0][1] != SPELT
    first = spelt[0][0]
    trail.take(first, True)
    assert [(token, SPELT) for token in trail.ahead[SPELT]] == spelt[1:]
    trail.take(first, True)
    assert not trail.ahead[SPELT]
