"""`fields=True`: the probability of each value, compared with all texts in all tokens that spell them."""

from __future__ import annotations

import itertools
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from datetime import date
from enum import Enum
from typing import Any

import numpy as np
import pytest
from trellm import Beam, Engine, OptionError, Sample, Vocabulary, generate, guides, models
from trellm.guides import tokens_of

from ..support import places_in

TWO_ENDS = [256, 257]
MERGED = [b"re", b"ed", b"red", b'"r', b'"red"', b'":"', b':"r', b'"}', b"tr", b"true", b"12", b"2,", b"e", b',"']
VOCABULARY = Vocabulary([*(bytes([byte]) for byte in range(256)), None, None, *MERGED], TWO_ENDS)


class Chats:
    """Bytes, and chats as the last message and a bar."""

    chat_template = "there is one"

    def encode(self, text: str) -> list[int]:
        return [*text.encode()]

    def apply_chat_template(self, messages: Any, **options: Any) -> Any:
        text = messages[-1]["content"] + "|"
        return [*text.encode()] if options.get("tokenize") else text


def logits(ids: Sequence[int]) -> Any:
    return 2 * np.cos(np.arange(VOCABULARY.size) * (1.3 + sum(ids[-3:]) % 17)).astype(np.float32)


@pytest.fixture(scope="module")
def model() -> Any:
    return models.from_function(logits, VOCABULARY, Chats())


def shares(ids: Sequence[int], allowed: Sequence[int]) -> dict[int, float]:
    """How allowed tokens share the probability behind others."""
    weights = np.exp(logits(ids).astype(float))[list(allowed)]
    return dict(zip(allowed, (weights / weights.sum()).tolist(), strict=True))


def texts(guide: Any, prompt: Sequence[int]) -> Iterator[tuple[bytes, float]]:
    """All texts of a guide in all tokens that spell them, with their probabilities under the masks."""
    left = [((*prompt,), guide.start, b"", 1.0)]
    while left:
        ids, state, text, chance = left.pop()
        for token, share in shares(ids, tokens_of(guide.mask(state))).items():
            if token in TWO_ENDS:
                yield text, chance * share
            else:
                after = guide.advance(state, token)
                left.append(((*ids, token), after, text + (VOCABULARY.tokens[token] or b""), chance * share))


def by_value(guide: Any, prompt: Sequence[int]) -> dict[str, float]:
    found: defaultdict[str, float] = defaultdict(float)
    for text, chance in texts(guide, prompt):
        found[text.decode()] += chance
    assert math.isclose(sum(found.values()), 1, abs_tol=1e-9)
    return found


class Colour(Enum):
    RED = "red"
    TREE = "tree"


PROMPT = [72, 105]


@pytest.mark.parametrize("choices", [["red", "re", "r", "tree"], ["red", "true"], ["12", "1", "122"]])
@pytest.mark.parametrize("search", [None, Sample(n=3)], ids=["greedy", "sample"])
def test_choices(model: Any, choices: list[str], search: Any) -> None:
    options = {} if search is None else {"search": search, "seed": 1}
    found = generate.choice(model, choices).run(PROMPT, fields=True, **options)
    expected = by_value(guides.ChoiceGuide(choices, VOCABULARY), PROMPT)
    for result in found if isinstance(found, list) else [found]:
        (field,) = result.fields.values()
        assert result.fields[""].value == result.value == result.text
        assert field.exact
        assert {each.value: each.probability for each in field.alternatives} == pytest.approx(expected, abs=1e-5)
        assert field.probability == pytest.approx(expected[result.text], abs=1e-5)
        assert [*field.alternatives] == sorted(field.alternatives, key=lambda each: -each.probability)
        assert result.logprobs is None
        assert result.top_logprobs is None
        assert result.score is None


def test_values_that_choices_stand_for(model: Any) -> None:
    field = generate.choice(model, Colour).run(PROMPT, fields=True).fields[""]
    assert {each.value for each in field.alternatives} == {Colour.RED, Colour.TREE}
    assert {each["value"] for each in field.to_dict()["alternatives"]} == {"red", "tree"}
    field = generate.format(model, bool).run(PROMPT, fields=True).fields[""]
    assert field.exact
    assert {each.value for each in field.alternatives} == {True, False}


SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"enum": ["red", "re", "tree"]},
        "b": {"type": "boolean"},
        "c": {"enum": [1, 12, 122]},
        "d": {"type": "array", "items": {"enum": [None, "r", 2]}, "minItems": 1, "maxItems": 2},
        "e~/": {"const": "e"},
        "f": {"type": "string", "minLength": 1, "maxLength": 3},
        "g": {"type": "integer"},
    },
    "required": ["a", "b", "c", "d", "e~/", "f", "g"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("whitespace", ["compact", "flexible"])
@pytest.mark.parametrize("seed", range(4))
def test_members(model: Any, whitespace: Any, seed: int) -> None:
    """Each conditional on the tokens before it that hold none of it, and on the bytes that are left before it."""
    generator = generate.json(model, SCHEMA, whitespace=whitespace)
    result = generator.run(PROMPT, fields=True, search=Sample(), seed=seed, max_tokens=120)
    guide: Any = generator.guide
    text = result.text.encode()
    assert result.fields.keys() >= {"/a", "/b", "/c", "/d/0", "/e~0~1", "/f", "/g"}
    ends = [0, *itertools.accumulate(len(VOCABULARY.tokens[token] or b"") for token in result.token_ids)]
    for pointer, begin, end in places_in(text):
        field = result.fields[pointer]
        assert field.value == json.loads(text[begin:end])
        assert field.exact == (pointer not in ("/f", "/g"))
        first = max(number for number, place in enumerate(ends[:-1]) if place <= begin)
        if not field.exact:
            tokens = range(first, max(number for number, place in enumerate(ends[:-1]) if place < end) + 1)
            assert field.probability == pytest.approx(_product(guide, result.token_ids, tokens), rel=1e-4)
            continue
        prompt, lead = [*PROMPT, *result.token_ids[:first]], text[ends[first] : begin]
        expected = _spelt(guide, prompt, text[: ends[first]], lead)
        assert math.isclose(sum(expected.values()), 1, abs_tol=1e-9)
        found = {json.dumps(each.value): each.probability for each in field.alternatives}
        assert found == pytest.approx(expected, abs=1e-5)


def _product(guide: Any, tokens: Sequence[int], numbers: range) -> float:
    state, found = guide.start, 1.0
    for number, token in enumerate(tokens):
        if number in numbers:
            found *= shares([*PROMPT, *tokens[:number]], tokens_of(guide.mask(state)))[token]
        state = guide.advance(state, token)
    return found


def _spelt(guide: Any, prompt: list[int], before: bytes, lead: bytes) -> dict[str, float]:
    """How likely each value is behind a text and some bytes more, token by token and byte by byte."""
    found: defaultdict[str, float] = defaultdict(float)
    left: list[tuple[list[int], bytes, float]] = [(prompt, b"", 1.0)]
    while left:
        ids, text, chance = left.pop()
        allowed: list[int] = []
        for token in range(VOCABULARY.size):
            more = text + (VOCABULARY.tokens[token] or b"")
            is_kept = more != text and (more.startswith(lead) or lead.startswith(more))
            is_kept = is_kept and more[len(lead) :][:1] not in (b" ", b"\n", b"\t", b"\r")
            if is_kept and guide.read(guide.start, before + more) != guides.DEAD:
                allowed.append(token)
        for token, share in shares(ids, allowed).items():
            more = text + (VOCABULARY.tokens[token] or b"")
            value, end = _read(more[len(lead) :])
            if end and (more[-1:] not in b"0123456789" or end < len(more) - len(lead)):
                found[json.dumps(value)] += chance * share
            else:
                left.append(([*ids, token], more, chance * share))
    return found


def _read(text: bytes) -> tuple[Any, int]:
    """The value that a text begins with, and where it ends; 0 where it is not there yet."""
    try:
        return json.JSONDecoder().raw_decode(text.decode())
    except ValueError:
        return None, 0


def test_one_value_of_many(model: Any) -> None:
    result = generate.format(model, date).run(PROMPT, fields=True, logprobs=2)
    field = result.fields[""]
    assert not field.exact
    assert field.value == result.value
    assert field.probability == pytest.approx(math.exp(result.score))
    assert all(isinstance(each.value, str) for each in field.alternatives)
    assert all(len(each) <= 2 for each in result.top_logprobs)
    result = generate.regex(model, "[0-9]{3}x").run(PROMPT, fields=True, logprobs=True)
    assert result.fields[""].probability == pytest.approx(math.exp(sum(result.logprobs)), rel=1e-4)
    assert result.top_logprobs is None


def test_answers_to_chats_stand_alone_and_frames_are_kept(model: Any) -> None:
    chat = [{"role": "user", "content": "Red or tree?"}]
    result = generate.choice(model, ["red", "tree"]).run(chat, fields=True)
    assert result.prompt == "Red or tree?|"
    expected = by_value(guides.ChoiceGuide(["red", "tree"], VOCABULARY), [*b"Red or tree?|"])
    assert result.fields[""].probability == pytest.approx(expected[result.text], abs=1e-5)
    asked_before = generate.choice(model, ["red", "tree"])
    asked_before.run(chat)
    assert asked_before.run(chat, fields=True) == result
    framed = generate.choice(model, ["red", "re"], frame=("It is ", "!")).run(chat, fields=True)
    expected = by_value(guides.ChoiceGuide(["red!", "re!"], VOCABULARY), [*b"Red or tree?|It is "])
    assert framed.fields[""].value == framed.text
    assert framed.fields[""].probability == pytest.approx(expected[framed.text + "!"], abs=1e-5)


def test_healed_prompts(model: Any) -> None:
    """The prompt's end may be spelt again, as far as tokens reach from it into the value."""
    result = generate.choice(model, ["ed", "x"]).run("a r", fields=True)
    field = result.fields[""]
    assert field.exact
    choice = guides.ChoiceGuide(["ed", "x"], VOCABULARY)
    if result.overlap:
        expected = by_value(guides.AlignedGuide(choice, b"r"), [*b"a "])
        assert field.probability == pytest.approx(expected["r" + result.text], abs=1e-5)
    else:
        assert field.probability == pytest.approx(by_value(choice, [*b"a r"])[result.text], abs=1e-5)


def test_lists_and_batches(model: Any) -> None:
    generator = generate.choice(model, ["red", "tree"])
    several = generator.run([PROMPT, [72]], fields=True)
    assert several == [generator.run(PROMPT, fields=True), generator.run([72], fields=True)]
    assert several[0].fields == generator.run(PROMPT, fields=True).fields
    assert generator.run(PROMPT).fields == {}


@pytest.mark.parametrize(
    ("make", "options", "said"),
    [
        (lambda model: generate.text(model), {}, "free text"),
        (lambda model: generate.cfg(model, 'start: "a"'), {}, "needs JSON"),
        (lambda model: generate.extract(model, "the cat"), {}, "needs JSON"),
        (lambda model: generate.extract(model, "the cat", spans=2), {}, "needs JSON"),
        (lambda model: generate.choice(model, ["a", "b"], frame="sentence"), {}, "without a frame"),
        (lambda model: generate.choice(model, ["a", "b"], after="!"), {}, "without a frame"),
        (lambda model: generate.choice(model, ["a", "b"]), {"search": Beam(2)}, "search=Beam"),
        (lambda model: generate.choice(model, ["a", "b"]), {"include": "a"}, "include"),
        (lambda model: generate.choice(model, ["a", "b"]), {"fields": 1}, "fields"),
    ],
)
def test_mistakes(model: Any, make: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        make(model).run(PROMPT, **{"fields": True, **options})


def test_handles_have_none(model: Any) -> None:
    with pytest.raises(OptionError, match="call the generator's run"):
        Engine.of(model).submit(generate.choice(model, ["a", "b"]), PROMPT, fields=True)


def test_places_of_texts_that_are_no_json_end() -> None:
    assert [pointer for pointer, _, _ in places_in(b'{"a": [1, "b')] == ["/a/0"]
    assert [*places_in(b"?")] == []


def test_a_started_engine(model: Any) -> None:
    with Engine(models.from_function(logits, VOCABULARY, Chats())) as engine:
        result = generate.choice(engine.model, ["red", "tree"]).run(PROMPT, fields=True)
    assert result.fields == generate.choice(model, ["red", "tree"]).run(PROMPT, fields=True).fields
