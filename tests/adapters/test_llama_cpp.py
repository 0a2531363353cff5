"""Guides in llama-cpp-python, with a tiny random model in a GGUF file."""

from __future__ import annotations

import gc
import json
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from trellm import BudgetError, ModelError, OptionError, Vocabulary
from trellm.guides import JSONGuide, RegexGuide, tokens_of

from ..watching import watched
from .hosts import folder_of
from .tiny_gguf import write_model

PATTERNS = [r" the [0-9]{2,5}(on|the)+", '"[^"]{0,9}"', "(true|on[0-9]|12){3,6}x"]
SCHEMA = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
SIZE = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the models are."""
    found = tmp_path_factory.mktemp("gguf")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder_of("gguf").parent))
        write_model(found / "model.gguf", 0, SIZE)
        write_model(found / "wider.gguf", 1, SIZE + 7)
    return found


@pytest.fixture
def host(folder: Path, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """llama-cpp-python, the adapter, a model and its vocabulary."""
    monkeypatch.syspath_prepend(str(folder_of("llama_cpp").parent))
    module = import_module("llama_cpp")
    adapter = import_module("trellm.adapters.llama_cpp")

    def load(name: str = "model.gguf", **options: Any) -> Any:
        return module.Llama(str(folder / name), n_ctx=256, n_threads=1, n_threads_batch=1, verbose=False, **options)

    llama = load()
    return SimpleNamespace(
        module=module, adapter=adapter, load=load, llama=llama, vocabulary=adapter.vocabulary_for(llama)
    )


def written(llama: Any, processor: Any, **options: Any) -> str:
    found: str = llama("see", **options_of(processor), **options)["choices"][0]["text"]
    return found


def options_of(processor: Any) -> dict[str, Any]:
    return {"max_tokens": 24, "logits_processor": processor, "stopping_criteria": processor.stopping_criteria}


def test_the_vocabulary(host: Any) -> None:
    """The bytes of the file's tokens; llama.cpp finds an end of turn by its name."""
    vocabulary = host.vocabulary
    assert vocabulary.size == SIZE and vocabulary.eos_ids == (SIZE - 2, SIZE - 1)
    for token in range(256 + 11):
        assert vocabulary.tokens[token] == host.llama.detokenize([token], prev_tokens=[0])
    assert all(vocabulary.tokens[token] is None for token in range(267, SIZE))


@pytest.mark.parametrize("pattern", PATTERNS)
def test_texts_are_of_the_guide_and_complete(host: Any, pattern: str) -> None:
    guide = RegexGuide(pattern, host.vocabulary)
    processor = host.adapter.GuideLogitsProcessor(guide, host.llama, max_tokens=24)
    for options in (
        {"temperature": 0},
        {"temperature": 1.5, "seed": 1},
        {"temperature": 1, "mirostat_mode": 2, "seed": 2},
        {"temperature": 1, "top_k": 0, "repeat_penalty": 1.3, "seed": 3},
        {"temperature": 1, "logit_bias": {90: 20.0}, "seed": 4},
    ):
        processor.reset()
        assert re.fullmatch(pattern, written(host.llama, processor, **options)), options
    processor.reset()
    steps = host.llama("see", stream=True, **options_of(processor))
    assert re.fullmatch(pattern, "".join(step["choices"][0]["text"] for step in steps))


def test_chats(host: Any) -> None:
    guide = JSONGuide(SCHEMA, host.vocabulary)
    processor = host.adapter.GuideLogitsProcessor(guide, host.llama, max_tokens=30)
    messages = [{"role": "user", "content": "Is it so?"}]
    answer = host.llama.create_chat_completion(messages, max_tokens=30, temperature=1.0, logits_processor=processor)
    assert processor.check() is False
    assert type(json.loads(answer["choices"][0]["message"]["content"])["ok"]) is bool


def greedy(host: Any, guide: Any, most: int = 24) -> list[int]:
    """The plain way: the logits of every step, and the best that the guide's mask allows."""
    ids, state, found = host.llama.tokenize(b"see"), guide.start, list[int]()
    while len(found) < most:
        host.llama.reset()
        host.llama.eval(ids + found)
        row = host.module.llama_get_logits_ith(host.llama.ctx, -1)
        logits = np.ctypeslib.as_array(row, (SIZE,))
        token = max(tokens_of(guide.mask(state)), key=lambda token: logits[token])
        if token in guide.vocabulary.eos_ids:
            break
        found.append(token)
        state = guide.advance(state, token)
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_greedy_tokens_with_drafts_and_without(host: Any, pattern: str) -> None:
    """The tokens are those of the plain way, also where a draft model writes ahead of what is chosen."""
    guide = RegexGuide(pattern, host.vocabulary)
    tokens = greedy(host, guide)
    expected = guide.vocabulary.decode(tokens).decode()
    processor = host.adapter.GuideLogitsProcessor(guide, host.llama)
    assert written(host.llama, processor, temperature=0) == expected

    drafted = list[bool]()

    class Drafts(import_module("llama_cpp.llama_speculative").LlamaDraftModel):  # type: ignore[misc]
        """The right tokens, a wrong one behind two of them, or none."""

        def __call__(self, input_ids: Any, /, **_: Any) -> Any:
            done = len(input_ids) - len(host.llama.tokenize(b"see"))
            drafts = [tokens[done : done + 2], [*tokens[done : done + 1], 7, 8], []][done % 3]
            drafted.append(bool(drafts))
            return np.array(drafts, np.intc)

    helped = host.load(draft_model=Drafts())
    processor = host.adapter.GuideLogitsProcessor(guide, helped)
    assert written(helped, processor, temperature=0) == expected
    assert any(drafted)


def chain_of(host: Any, guide: Any, **options: Any) -> tuple[Any, Any]:
    sampler = host.adapter.GuideSampler(guide, host.llama, **options)
    chain = import_module("llama_cpp._internals").LlamaSampler()
    sampler.add_to(chain)
    return sampler, chain


def run(host: Any, sampler: Any, chain: Any, most: int = 24) -> list[int]:
    """A text by a chain of samplers."""
    ids, found = host.llama.tokenize(b"see"), list[int]()
    while len(found) < most:
        host.llama.reset()
        host.llama.eval(ids + found)
        token = chain.sample(host.llama._ctx)
        sampler.check()
        if host.module.llama_vocab_is_eog(host.llama._model.vocab, token):
            break
        found.append(token)
    return found


@pytest.mark.parametrize("pattern", PATTERNS)
def test_samplers(host: Any, pattern: str) -> None:
    guide = RegexGuide(pattern, host.vocabulary)
    sampler, chain = chain_of(host, guide)
    chain.add_greedy()
    assert run(host, sampler, chain) == greedy(host, guide)
    sampler, chain = chain_of(host, guide, max_tokens=24)
    chain.add_top_k(5)
    chain.add_temp(2.0)
    chain.add_dist(3)
    for _ in range(3):
        chain.reset()
        assert re.fullmatch(pattern, guide.vocabulary.decode(run(host, sampler, chain)).decode())


def test_samplers_are_cloned_and_freed(host: Any) -> None:
    guide = RegexGuide("[ab]{4}", host.vocabulary)
    held = host.adapter._SAMPLERS
    gc.collect()
    before = len(held)
    sampler, chain = chain_of(host, guide)
    chain.add_greedy()
    a, b = (host.llama.tokenize(letter, add_bos=False)[0] for letter in (b"a", b"b"))
    chain.accept(a)
    other = chain.clone()
    other.accept(b)
    assert sampler.session.length == 1 and sorted(each.session.length for each in held.values())[-2:] == [1, 2]
    chain.accept(b)
    chain.accept(b)
    assert sampler.session.length == 3
    other.reset()
    assert sampler.session.length == 3
    other.close()
    assert len(held) == before + 1
    chain.close()
    assert len(held) == before


def candidates_of(host: Any, ids: list[int]) -> Any:
    """An array of candidates as llama.cpp hands it on."""
    items = (host.module.llama_token_data * len(ids))(*((token, float(-token), 0.0) for token in ids))
    return host.module.llama_token_data_array(data=items, size=len(ids), selected=3, sorted=True)


def test_candidates_keep_their_order(host: Any) -> None:
    guide = RegexGuide("[ab]{4}", host.vocabulary)
    sampler = host.adapter.GuideSampler(guide, host.llama)
    a, b, x = (host.llama.tokenize(letter, add_bos=False)[0] for letter in (b"a", b"b", b"x"))
    found = candidates_of(host, [x, b, SIZE + 100, a, x])
    sampler.apply(found)
    assert [found.data[place].id for place in range(found.size)] == [b, a]
    assert found.sorted and found.selected == -1 and found.data[0].logit == -b


def test_what_goes_wrong_in_samplers(host: Any) -> None:
    """It is kept until it is asked for, and the text ends."""
    guide = RegexGuide("[ab]{4}", host.vocabulary)
    sampler, chain = chain_of(host, guide)
    chain.add_greedy()
    chain.accept(host.llama.tokenize(b"x", add_bos=False)[0])
    with pytest.raises(OptionError, match=r"which Session.* does not allow; put the GuideSampler first"):
        sampler.check()
    host.llama.eval(host.llama.tokenize(b"see"))
    assert chain.sample(host.llama._ctx) in guide.vocabulary.eos_ids
    chain.reset()
    assert sampler.check() is False
    x = host.llama.tokenize(b"x", add_bos=False)[0]
    with pytest.raises(OptionError, match=r"none of 2 candidates is allowed by Session"):
        sampler.apply(candidates_of(host, [x, SIZE - 1]))


def test_what_goes_wrong_in_processors(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the text, and is raised by the stopping criteria, or told of by Python without them."""
    guide = RegexGuide("[ab]{4}", host.vocabulary)
    processor = host.adapter.GuideLogitsProcessor(guide, host.llama)
    assert len(written(host.llama, processor, temperature=0)) == 4
    with pytest.raises(OptionError, match="seen more tokens than the Llama"):
        written(host.llama, processor)
    with pytest.raises(OptionError, match="seen more tokens than the Llama"):  # until it is reset
        written(host.llama, processor)
    processor.reset()
    assert processor.check() is False
    written(host.llama, processor)
    with pytest.raises(OptionError, match="not those that this logits processor began with"):
        host.llama("a prompt that is much longer than all before", **options_of(processor))
    processor.reset()
    assert len(written(host.llama, processor, temperature=0)) == 4

    def interrupted(self: Any, ids: Any, width: int) -> Any:
        raise KeyboardInterrupt

    watched(monkeypatch, type(processor), "_mask", interrupted)
    processor.reset()
    with pytest.raises(KeyboardInterrupt):
        written(host.llama, processor)
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(what.exc_type))
    alone = host.adapter.GuideLogitsProcessor(guide, host.llama)
    found = host.llama("see", max_tokens=9, logits_processor=host.module.LogitsProcessorList([alone]))
    assert found["choices"][0]["text"] == "" and told == [KeyboardInterrupt]
    with pytest.raises(KeyboardInterrupt):
        alone.check()


@pytest.mark.parametrize("score", [-np.inf, np.nan])
@pytest.mark.parametrize("is_first", [True, False])
def test_what_others_leave_nothing_of(host: Any, score: float, is_first: bool) -> None:
    """Before, token 0 was chosen, or a text ended early."""
    processor = host.adapter.GuideLogitsProcessor(RegexGuide("[ab]{4}", host.vocabulary), host.llama)

    def forbid(_: Any, scores: Any) -> Any:
        scores[:] = score
        return scores

    processor.insert(0 if is_first else 1, forbid)
    error = ModelError if is_first and np.isnan(score) else OptionError
    match = "row 0: " if is_first else "token 0 was chosen, which the guide does not allow"
    with pytest.raises(error, match=match):
        written(host.llama, processor, temperature=0)
    biased = host.adapter.GuideLogitsProcessor(RegexGuide("a{4}", host.vocabulary), host.llama)
    (a,) = host.llama.tokenize(b"a", add_bos=False)
    with pytest.raises(OptionError, match="was chosen, which the guide does not allow"):
        written(host.llama, biased, temperature=0, logit_bias={a: -np.inf})
    sampler = host.adapter.GuideSampler(RegexGuide("a{4}", host.vocabulary), host.llama)
    found = candidates_of(host, [a, SIZE - 1])
    found.data[0].logit = score
    with pytest.raises(OptionError, match="and has a score above -inf"):
        sampler.apply(found)


def test_what_would_bring_the_process_down(host: Any) -> None:
    guide = RegexGuide("a", host.vocabulary)
    for chain in (None, 5, "x", host.llama):
        with pytest.raises(OptionError, match="is not a chain of samplers; give a llama_sampler_p"):
            host.adapter.GuideSampler(guide, host.llama).add_to(chain)
    closed = host.load("model.gguf")
    closed.close()
    for ask in (lambda: host.adapter.vocabulary_for(closed), lambda: host.adapter.GuideSampler(guide, closed)):
        with pytest.raises(OptionError, match="this Llama is closed; load the model again"):
            ask()


@pytest.mark.parametrize("make", ["GuideLogitsProcessor", "GuideSampler"])
def test_mistakes(host: Any, make: str) -> None:
    made: Callable[..., Any] = getattr(host.adapter, make)
    guide = RegexGuide("[0-9]{9}", host.vocabulary)
    with pytest.raises(BudgetError, match=r"max_tokens=3: the shortest text of this guide has \d tokens"):
        made(guide, host.llama, max_tokens=3)
    with pytest.raises(OptionError, match="is no guide"):
        made("[0-9]+", host.llama)
    with pytest.raises(OptionError, match=r"'model.gguf' is not a model of llama-cpp-python"):
        made(guide, "model.gguf")
    wide = RegexGuide("[0-9]{9}", host.adapter.vocabulary_for(host.load("wider.gguf")))
    with pytest.raises(OptionError, match="logits have 300 values, but the guide's vocabulary has 307"):
        made(wide, host.llama)
    other = RegexGuide("[0-9]{9}", Vocabulary(host.vocabulary.tokens, [SIZE - 2]))
    made(other, host.llama)  # the end of turn is no text there either
    tokens = [*host.vocabulary.tokens]
    tokens[SIZE - 1] = b"<|eot_id|>"
    for wrong in (Vocabulary(tokens, [SIZE - 2]), Vocabulary(host.vocabulary.tokens, [280])):
        with pytest.raises(OptionError, match=r"ends texts of this model at the tokens \[298, 299\], and the guide's"):
            made(RegexGuide("[0-9]{9}", wrong), host.llama)
