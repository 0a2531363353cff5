"""What leaves nothing to choose, what was not chosen as it should, and copies: nothing goes on silently."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LogitsProcessor, LogitsProcessorList
from trellm import ModelError, OptionError, Vocabulary
from trellm.adapters import BitmaskBuffer, DeviceMasks, Session, allocate_bitmask, fill_bitmask
from trellm.adapters.rows import TokenRows
from trellm.adapters.session import token_mask
from trellm.adapters.transformers import GuideLogitsProcessor, HealedPrompts, vocabulary_for
from trellm.guides import Guide, RegexGuide, tokens_of

from .texts import MAKERS, SMALL, states_of

Network = Callable[..., Any]
BYTES = Vocabulary.from_bytes()
FINE, NONE, NAN = 0.0, -np.inf, np.nan


class Fixed(LogitsProcessor):
    """A processor that makes all scores one number."""

    def __init__(self, score: float) -> None:
        self.score = score

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        return torch.full_like(scores, self.score)


def generated(network: Any, tokenizer: Any, processors: list[Any], prompts: list[str], **options: Any) -> list[bytes]:
    inputs = tokenizer(prompts, padding=True, return_tensors="pt")
    found = network.generate(
        input_ids=inputs.input_ids, attention_mask=inputs.attention_mask, max_new_tokens=20,
        logits_processor=LogitsProcessorList(processors), **options,
    )  # fmt: skip
    return [vocabulary_for(network, tokenizer).decode(row[inputs.input_ids.shape[1] :].tolist()) for row in found]


@pytest.mark.parametrize("search", [{}, {"do_sample": True}, {"num_beams": 3}], ids=["greedy", "sample", "beams"])
@pytest.mark.parametrize(
    "forbidding",
    [
        {"no_repeat_ngram_size": 2},
        {"bad_words_ids": [["b"]]},
        {"min_new_tokens": 18},
        {"suppress_tokens": ["b"]},
        {"others": "second"},
        {"others": NONE},
        {"others": NAN},
    ],
    ids=str,
)
def test_where_nothing_is_left(network: Network, tokenizer: Any, forbidding: Any, search: Any) -> None:
    """Before, token 0 was chosen."""
    model = network()
    vocabulary = vocabulary_for(model, tokenizer)
    b = tokenizer("b").input_ids[0]
    options: dict[str, Any] = {"do_sample": False, **search, **forbidding}
    options |= {"bad_words_ids": [[b]]} if "bad_words_ids" in options else {}
    options |= {"suppress_tokens": [b]} if "suppress_tokens" in options else {}
    others: Any = options.pop("others", None)
    ours = GuideLogitsProcessor(RegexGuide("(ab){5}", vocabulary), max_new_tokens=20)
    processors = [ours]
    if others is not None:
        second = GuideLogitsProcessor(RegexGuide("[0-9]+", vocabulary))
        processors.insert(0, second if others == "second" else Fixed(others))
    error, match = OptionError, "row 0: all tokens that the guide allows have a score of -inf.* The guide expects .*"
    if others is not None and others != "second" and np.isnan(others):
        error, match = ModelError, "row 0: the model's scores have NaN for tokens that the guide allows"
    with pytest.raises(error, match=match):
        generated(model, tokenizer, processors, ["on", "the"], **options)


def test_one_beam_of_several_may_have_nothing_left() -> None:
    """Beams of a prompt are neighbours that began alike; what has ended, or gone astray, wants nothing."""
    guide = RegexGuide("ab?|c", BYTES)
    rows, shape = TokenRows(guide), (4, 257)
    prompts = np.array([[7, 7], [7, 7], [8, 8], [8, 8]])
    rows.masks(prompts, shape)
    rows.check(np.array([NONE, FINE, FINE, NONE]))
    with pytest.raises(OptionError, match=r'row 2: all tokens .* The guide expects "a" or "c"'):
        rows.check(np.array([NONE, FINE, NONE, NONE]))
    with pytest.raises(ModelError, match="row 3"):
        rows.check(np.array([FINE, FINE, FINE, NAN]))
    rows.masks(np.c_[prompts, [*b"acax"]], shape)
    rows.check(np.array([NONE, FINE, FINE, NAN]))
    rows.masks(np.c_[prompts, [*b"acax"], [256, 256, ord("b"), 256]], shape)
    rows.check(np.array([NONE, NONE, FINE, NONE]))
    several = TokenRows([guide, guide])
    several.masks(prompts[[0, 0]], (2, 257))
    with pytest.raises(OptionError, match="row 1"):
        several.check(np.array([FINE, NONE]))


def test_rows_that_are_none_of_those_before() -> None:
    guide = RegexGuide("[ab]{3,9}", BYTES)
    rows = TokenRows(guide)
    for length in range(5):
        rows.masks(np.array([[7, *b"abab"[:length]]]), (1, 257))
    with pytest.raises(OptionError, match="not those that this logits processor began with"):
        rows.masks(np.array([[7, *b"axb"]]), (1, 257))  # a prompt that goes on from the one before
    chosen = TokenRows(guide, are_chosen=True)
    chosen.masks(np.array([[7]]), (1, 257))
    with pytest.raises(OptionError, match="token 120 was chosen, which the guide does not allow"):
        chosen.masks(np.array([[7, *b"x"]]), (1, 257))
    for ids, shape in (([[7]], (2, 257)), ([7], (257,)), (np.zeros((0, 3), int), (0, 257))):
        with pytest.raises(OptionError, match=r"expected \[rows, length\] and \[rows, vocabulary\]"):
            TokenRows(guide).masks(np.array(ids), shape)


@pytest.mark.parametrize("how", ["pickle", "deepcopy"])
def test_copies_of_processors_that_were_used(network: Network, tokenizer: Any, how: str) -> None:
    """Before, a copy filled other memory than it read."""
    make = copy.deepcopy if how == "deepcopy" else lambda value: pickle.loads(pickle.dumps(value))
    model = network()
    guide = RegexGuide("(on|the|[0-9]){3,6};", vocabulary_for(model, tokenizer))
    processor = GuideLogitsProcessor(guide, max_new_tokens=20)
    texts = generated(model, tokenizer, [processor], ["on", "the"], do_sample=False)
    copied = make(processor)
    assert copied._rows.guides == [guide]
    for each in (copied, processor):
        each.reset()
        assert generated(model, tokenizer, [each], ["on", "the"], do_sample=False) == texts


@pytest.mark.parametrize("how", ["copy", "deepcopy", "pickle"])
def test_copies_of_what_hosts_hold(how: str) -> None:
    make: Any = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda it: pickle.loads(pickle.dumps(it))}[how]
    guide = MAKERS["json"](SMALL)
    states = states_of(guide)[:3]
    buffer = BitmaskBuffer(allocate_bitmask(SMALL, 3))
    fill_bitmask(guide, states, buffer)
    expected, other = buffer.bitmask.copy(), make(buffer)
    fill_bitmask(guide, states[::-1], other)
    np.testing.assert_array_equal(buffer.bitmask, expected)
    np.testing.assert_array_equal(other.bitmask, expected[::-1])
    mirror = DeviceMasks(SMALL, "cpu")
    mirror.rows(guide, states)
    other = make(mirror)
    found = other.table[other.rows(guide, states).long()]
    np.testing.assert_array_equal(found.numpy(), expected)


def test_copies_of_sessions() -> None:
    guide = MAKERS["regex"](SMALL)
    session = Session(guide, [ord(";")])
    assert session.accept(b"ab")
    for other in (copy.copy(session), copy.deepcopy(session)):
        assert other.guide is guide and other.accept(b"ab") and (session.length, other.length) == (2, 4)
    with pytest.raises(OptionError, match="send the guide and the tokens, and accept them there"):
        pickle.dumps(session)
    session.reset()
    other = pickle.loads(pickle.dumps(session))
    assert (other.guide, other.stops) == (guide, session.stops)


class Strict:
    """A guide of somebody else's that refuses a state."""

    def __init__(self, inner: Guide) -> None:
        self.vocabulary, self.start, self.advance = inner.vocabulary, inner.start, inner.advance
        self.inner = inner

    def mask(self, state: int) -> Any:
        if state > 3:
            raise OptionError("no")
        return self.inner.mask(state)


@pytest.mark.parametrize("has_buffer", [False, True])
def test_nothing_is_written_where_one_of_many_is_refused(has_buffer: bool) -> None:
    good = MAKERS["regex"](SMALL)
    wide = RegexGuide("[0-9]", Vocabulary([*SMALL.tokens, *[None] * 400], SMALL.eos_ids))
    bitmask = np.full((2, 9), 5, np.int32)
    target = BitmaskBuffer(bitmask) if has_buffer else bitmask
    for other, state in ((MAKERS["json"](SMALL), 10**6), (wide, wide.start), (Strict(good), 10**6)):
        with pytest.raises((ValueError, OptionError)):
            fill_bitmask([good, other], [good.start, state], target)
        assert (bitmask == 5).all()


@pytest.mark.parametrize(
    "bitmask",
    [
        torch.zeros(2, 9, dtype=torch.int32).to_sparse(),
        torch.zeros(2, 9, dtype=torch.bfloat16),
        torch.zeros(2, 9, requires_grad=True),
        torch.zeros(1, 9, dtype=torch.int32).expand(2, 9),
        np.broadcast_to(np.zeros(9, np.int32), (2, 9)),
    ],
    ids=["sparse", "bfloat16", "with gradient", "expanded", "read-only"],
)
def test_memory_that_masks_cannot_be_written_to(bitmask: Any) -> None:
    guide = MAKERS["regex"](SMALL)
    for fill in (lambda: fill_bitmask(guide, [guide.start], bitmask), lambda: Session(guide).fill(bitmask, 0)):
        with pytest.raises(OptionError, match="bitmask"):
            fill()


@pytest.mark.parametrize("wrong", [None, "ab", 1.5, [None], ["a"], [1.5], [[97]], torch.tensor(1.5)], ids=str)
def test_what_are_no_tokens(wrong: Any) -> None:
    guide = MAKERS["regex"](SMALL)
    for ask in (Session(guide).accept, Session(guide, [5]).accept, Session(guide).validate):
        with pytest.raises(OptionError, match="token"):
            ask(wrong)
    if wrong != [1.5]:
        with pytest.raises(OptionError, match=r"stop id|tokens are given by their ids"):
            Session(guide, wrong)


@pytest.mark.parametrize("one", [97, np.int64(97), torch.tensor(97), (97,), iter([97]), np.array([97], np.uint8)])
def test_tokens_of_any_kind(one: Any) -> None:
    session = Session(MAKERS["regex"](SMALL))
    assert session.accept(one) and session.length == 1


@pytest.mark.parametrize("row", [-1, 2, 1.5, None, "a", [0]])
def test_rows_that_are_not_there(row: Any) -> None:
    with pytest.raises(OptionError, match="rows="):
        Session(MAKERS["regex"](SMALL)).fill(allocate_bitmask(SMALL, 2), row)


def test_what_devices_and_buffers_refuse() -> None:
    for device in ("nowhere", 5):
        with pytest.raises(OptionError, match=r"device=.*: no table of \d+ MiB can be allocated there"):
            DeviceMasks(BYTES, device)
    guide = RegexGuide("a", BYTES)
    for logits in (torch.zeros(1, 257).double(), torch.zeros(257), torch.zeros(2, 257), [0.0]):
        with pytest.raises(OptionError, match=r"logits|rows"):
            DeviceMasks(BYTES, "cpu").apply(logits, guide, [guide.start])
    for rows in (5, "a", [1.5], [9]):
        with pytest.raises(OptionError, match="rows="):
            BitmaskBuffer(allocate_bitmask(BYTES, 2)).forget(rows)  # type: ignore[arg-type]


def test_masks_of_tokens_go_with_their_vocabulary() -> None:
    vocabulary = Vocabulary.from_bytes()
    for token in range(200):
        assert tokens_of(token_mask(vocabulary, frozenset([token]))) == [token]
    assert token_mask(vocabulary, frozenset([7])) is token_mask(vocabulary, frozenset([7]))


def test_prompts_without_tokens(network: Network, tokenizer: Any) -> None:
    model = network()
    guide = RegexGuide("[0-9]{3}", vocabulary_for(model, tokenizer))
    prompts = HealedPrompts(guide, tokenizer, ["", "x on"])
    ids, attention = (prompts.inputs[name][0].tolist() for name in ("input_ids", "attention_mask"))
    assert ids == [1] * (len(ids) - 1) + [0] and attention == [0] * (len(ids) - 1) + [1] and len(ids) > 1
    output = model.generate(
        **prompts.inputs, max_new_tokens=20, do_sample=False, logits_processor=[GuideLogitsProcessor(prompts.guides)]
    )
    assert all(text.isdigit() and len(text) == 3 for text in prompts.texts(output))
    for sequences in (None, output[0], [[1]]):
        with pytest.raises(OptionError, match="sequences must be"):
            prompts.texts(sequences)
    with pytest.raises(OptionError, match="is not a tokenizer of transformers"):
        HealedPrompts(guide, None, ["on"])
    without = copy.deepcopy(tokenizer)
    without.bos_token = None
    with pytest.raises(OptionError, match="prompt 1 has no tokens, '', and this tokenizer has no bos_token"):
        HealedPrompts(guide, without, ["on", ""])
