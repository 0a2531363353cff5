"""The likeliest tokens of each place: by definition, in both distributions, in results and in streams."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Beam, Engine, Generator, Greedy, OptionError, Sample, TokenLogprob, Vocabulary, generate, models

from ..machines import TABLE, VOCABULARY, letters_model, machines

SEARCHES = [Greedy(), Sample(), Beam(3)]


def best(logits: Sequence[float], allowed: Sequence[int], k: int) -> list[tuple[int, float]]:
    """By definition: a softmax over what is allowed, the likeliest first, the lower of equals."""
    total = math.fsum(math.exp(logits[token]) for token in allowed)
    ranked = sorted(allowed, key=lambda token: (-np.float32(logits[token]), token))
    return [(token, logits[token] - math.log(total)) for token in ranked[:k] if logits[token] > -math.inf]


def check(found: Sequence[TokenLogprob], expected: list[tuple[int, float]]) -> None:
    assert [each.token_id for each in found] == [token for token, _ in expected]
    assert [each.logprob for each in found] == pytest.approx([logprob for _, logprob in expected], abs=1e-5)
    assert all(each.token == VOCABULARY.tokens[each.token_id] for each in found)


@given(machines(), st.sampled_from(SEARCHES), st.integers(1, 7), st.integers(2, 9), st.booleans())
@settings(max_examples=60, derandomize=True, deadline=None)
def test_by_definition(table_guide: Any, machine: Any, search: Any, k: int, spare: int, is_biased: bool) -> None:
    guide = table_guide(VOCABULARY, *machine)
    budget = guide.distance(guide.start) + spare
    more: dict[str, Any] = {"logit_bias": {0: 3.0, 2: -4.0}} if is_biased else {}
    result = Generator(letters_model(), guide).run("a", max_tokens=budget, search=search, seed=3, logprobs=k, **more)
    assert result.top_logprobs is not None and result.raw_top_logprobs is not None
    assert result.logprobs is not None and result.raw_logprobs is not None
    assert len(result.top_logprobs) == len(result.raw_top_logprobs) == len(result.token_ids)
    state, last = guide.start, 0
    for place, token in enumerate(result.token_ids):
        left = budget - place
        fits = [other for other, after in guide.edges[state].items() if guide.distances[after] < left]
        ends = list(VOCABULARY.eos_ids) if guide.is_accepting(state) else []
        logits = TABLE[last].tolist()
        ranked = best(logits, range(VOCABULARY.size), k)
        check(result.raw_top_logprobs[place], ranked)
        every = [*guide.edges[state], *ends]
        possible = [every] if len(fits) == len(guide.edges[state]) else [every, [*fits, *ends]]
        mine = [(each.token_id, round(each.logprob, 4)) for each in result.top_logprobs[place]]
        assert mine in [[(each, round(score, 4)) for each, score in best(logits, some, k)] for some in possible]
        chosen = dict(mine).get(token)
        assert chosen is None or chosen == pytest.approx(result.logprobs[place], abs=1e-3)
        state, last = guide.advance(state, token), token


def test_what_is_impossible_is_left_out_and_true_asks_for_none() -> None:
    model = models.from_function(lambda ids: [1.0, -math.inf, 0.0, -math.inf, -math.inf, -math.inf], VOCABULARY)
    generator = generate.regex(model, "[a-c]{2}")
    result = generator.run("a", logprobs=5)
    assert [[each.token for each in place] for place in result.top_logprobs or ()] == [[b"a", b"c"]] * 2
    assert generator.run("a", logprobs=True).top_logprobs is None
    assert generator.run("a").logprobs is None
    assert "top_logprobs" in repr(result)


@pytest.mark.parametrize("search", [*SEARCHES, Beam(3, n=2)], ids=str)
def test_healed_prompts_and_further_tokens_go_with_token_ids(decoder: Callable[..., models.Model], search: Any) -> None:
    generator = generate.text(decoder("gpt2"))
    found = generator.run("in t", max_tokens=7, search=search, seed=1, logprobs=3)
    for result in found if isinstance(found, list) else [found]:
        assert result.overlap > 0
        for token, logprob, raw, top, raw_top in zip(
            result.token_ids, result.logprobs, result.raw_logprobs, result.top_logprobs, result.raw_top_logprobs,
            strict=True,
        ):  # fmt: skip
            assert len(raw_top) == 3
            assert 1 <= len(top) <= 3
            for chosen, ranked in ((logprob, top), (raw, raw_top)):
                assert dict((each.token_id, each.logprob) for each in ranked).get(token, chosen) == pytest.approx(
                    chosen
                )
                assert all(first.logprob >= second.logprob for first, second in itertools.pairwise(ranked))


WORDS = Vocabulary([b"ab", b"\xc3", b"\xa9", b"c", b"de", None], eos_ids=(5,))


def counting(ids: Sequence[int]) -> list[float]:
    """Each token after the one before it, in turn."""
    return [5.0 if token == (ids[-1] + 1) % 5 else -0.1 * token for token in range(6)]


@pytest.mark.parametrize("k", [True, 2])
@pytest.mark.parametrize("stop", [(), "dea", "é"])
def test_pieces_of_a_stream_have_the_scores_of_the_result(k: Any, stop: Any) -> None:
    generator = generate.text(models.from_function(counting, WORDS))
    options: dict[str, Any] = {"max_tokens": 13, "stop": stop, "heal": False}
    prompts = ["c", "de"]
    results = generator.run(prompts, logprobs=k, **options)
    pieces = list(generator.stream(prompts, logprobs=k, **options))
    for number, result in enumerate(results):
        own = [piece for piece in pieces if piece.prompt == number]
        assert "".join(piece.text for piece in own) == result.text
        said = b""
        for piece in own:
            assert piece.scores is not None
            said += WORDS.decode(piece.scores.token_ids)
            assert piece.result is not None or said.decode(errors="ignore") in result.text
        for name in ("token_ids", "logprobs", "raw_logprobs"):
            assert sum((getattr(piece.scores, name) for piece in own), ()) == getattr(result, name)
        for name in ("top_logprobs", "raw_top_logprobs"):
            parts = [getattr(piece.scores, name) for piece in own]
            assert (sum(parts, ()) if k == 2 else {*parts}) == (getattr(result, name) if k == 2 else {None})
        if not stop:
            assert len(own) > 5
            assert sum(bool(piece.scores and piece.scores.token_ids) for piece in own) > 5
    assert all(piece.scores is None for piece in generator.stream(prompts, **options))


def test_beams_have_the_scores_in_their_last_piece_and_handles_give_them_too() -> None:
    model = models.from_function(counting, WORDS)
    generator = generate.text(model)
    result = generator.run("c", max_tokens=9, search=Beam(2), logprobs=2)
    with Engine(model) as engine:
        pieces = list(engine.submit(generator, ["c"], max_tokens=9, search=Beam(2), logprobs=2).pieces())
    scores = [piece.scores for piece in pieces if piece.scores is not None]
    assert [each.token_ids for each in scores] == [result.token_ids]
    assert scores[0].top_logprobs == result.top_logprobs


@pytest.mark.parametrize("wrong", [0, -1, 1001, 2.0, "5", None, math.nan, [5]])
def test_numbers_of_tokens_that_are_refused(wrong: Any) -> None:
    with pytest.raises(OptionError, match="expected True for the chosen tokens, or a whole number from 1 to 1,000"):
        generate.text(letters_model()).run("a", max_tokens=2, logprobs=wrong)


def test_a_stream_of_one_text_has_no_place_for_them() -> None:
    with pytest.raises(OptionError, match=r"stream\(\[prompt\], \.\.\.\)"):
        generate.text(letters_model()).stream("a", max_tokens=2, logprobs=3)
    assert generate.extract(letters_model(), "a b c", spans=2, order="score").run("a")[0].top_logprobs is None
