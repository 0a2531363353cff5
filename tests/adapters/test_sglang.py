"""The SGLang adapter at SGLang's own base classes and its reasoning wrapper, without the rest of SGLang."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trellm import OptionError, VocabularyError
from trellm.adapters import plugins
from trellm.guides import tokens_of

from .hosts import adapter_alone, folder_of

BASE = "sglang.srt.constrained.base_grammar_backend"
REASONER = "sglang.srt.constrained.reasoner_grammar_backend"
REAL = {BASE, REASONER, "sglang.srt.utils.token_sequence_matcher", "sglang.srt.arg_groups.choices"}


@pytest.fixture
def sglang() -> Iterator[Any]:
    """The adapter, with SGLang around it."""
    resources, serving = SimpleNamespace(buffers={}), SimpleNamespace(reasoning_parser=None)
    context = {
        "get_resources": lambda: resources,
        "get_serving": lambda: serving,
        "get_exec": lambda: SimpleNamespace(kernel=SimpleNamespace(grammar_backend="trellm")),
    }
    with adapter_alone("sglang", REAL, {"sglang.srt.runtime_context": context}) as adapter:
        yield adapter


def backend_of(sglang: Any, tokenizer: Any) -> Any:
    return sglang.TrellmGrammarBackend(tokenizer, len(tokenizer) + 40, {tokenizer.eos_token_id})


def grammar_of(sglang: Any, tokenizer: Any, kind: str, text: str) -> Any:
    """A request's grammar, as SGLang's own dispatch makes it."""
    return backend_of(sglang, tokenizer)._init_value_dispatch((kind, text), False)


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("json", '{"type": "array", "items": {"type": "integer"}}', "[1, 23]", '["a"]'),
        ("json", "$$ANY$$", '{"a": [null]}', "{a}"),
        ("regex", "[0-9]{3}(the)?", "123the", "12"),
        ("ebnf", 'root ::= "[" root* "]"', "[[][]]", "[["),
    ],
)
def test_what_is_compiled(sglang: Any, tokenizer: Any, kind: str, text: str, good: str, bad: str) -> None:
    grammar = grammar_of(sglang, tokenizer, kind, text)
    for token in tokenizer(good).input_ids:
        assert not grammar.is_terminated()
        grammar.accept_token(token)
    grammar.accept_token(tokenizer.eos_token_id)
    assert grammar.is_terminated()
    grammar.accept_token(5)  # what comes behind the end is ignored
    other = grammar.copy()
    assert not other.is_terminated() and other.session.guide is grammar.session.guide
    with pytest.raises(ValueError, match="is not allowed by Session"):
        for token in [*tokenizer(bad).input_ids, tokenizer.eos_token_id]:
            other.accept_token(token)


def test_every_method_of_the_interface(sglang: Any) -> None:
    """All that SGLang's base classes leave to others is there, with their parameters."""
    base = import_module(BASE)
    for ours, theirs in (
        (sglang.TrellmGrammar, base.BaseGrammarObject),
        (sglang.TrellmGrammarBackend, base.BaseGrammarBackend),
    ):
        assert issubclass(ours, theirs)
        for name, member in inspect.getmembers(theirs, inspect.isfunction):
            is_left = "raise NotImplementedError" in inspect.getsource(member) or name.startswith("dispatch_")
            if is_left and name != "dispatch_fallback":
                mine = getattr(ours, name)
                assert mine is not member, name
                assert list(inspect.signature(mine).parameters) == list(inspect.signature(member).parameters)
    backend = sglang.TrellmGrammarBackend
    assert all(hasattr(backend, name) for name in ("allocate_vocab_mask", "move_vocab_mask", "apply_vocab_mask"))


def test_constraints_that_are_no_good(sglang: Any, tokenizer: Any) -> None:
    invalid = import_module(BASE).InvalidGrammarObject
    for kind, text, match in (
        ("json", '{"type": "nothing"}', "#/type"),
        ("regex", "[0-9", "never closed"),
        ("ebnf", "root ::= other", "other"),
        ("structural_tag", "{}", "structural tags are not supported"),
    ):
        found = grammar_of(sglang, tokenizer, kind, text)
        assert type(found) is invalid
        assert match in found.error_message


def test_what_does_not_fit(sglang: Any, tokenizer: Any) -> None:
    with pytest.raises(VocabularyError, match="size=100"):
        sglang.TrellmGrammarBackend(tokenizer, 100)
    grammar = grammar_of(sglang, tokenizer, "regex", "[0-9]{3}")
    grammar.accept_token(tokenizer("1").input_ids[0])
    with pytest.raises(OptionError, match=r"rollback\(2\): this session has accepted 1 tokens"):
        grammar.rollback(2)


def test_masks_of_a_batch(sglang: Any, tokenizer: Any) -> None:
    """Rows of grammars are filled in one call, those of others by themselves; logits are masked in place."""
    base = import_module(BASE)
    backend = backend_of(sglang, tokenizer)
    grammars = [grammar_of(sglang, tokenizer, "regex", f"[a-{end}]+x") for end in "bcd"]
    width = len(tokenizer) + 40
    buffer = backend.initialize_vocab_mask_buffer("masks", width, 6, "cpu")
    assert base.get_vocab_mask_buffer("masks", 6).data_ptr() == buffer.data_ptr()
    mask = grammars[0].allocate_vocab_mask(vocab_size=width, batch_size=6, device="cpu")

    class Other(base.BaseGrammarObject):
        def fill_vocab_mask(self, vocab_mask: torch.Tensor, idx: int) -> None:
            vocab_mask[idx] = 8

    entries = [base.GrammarRow(row, grammar) for row, grammar in zip((4, 0, 2), grammars, strict=True)]
    grammars[0].fill_vocab_mask_batched([*entries, base.GrammarRow(5, Other())], mask)
    for row, grammar in entries:
        guide = grammar.session.guide
        np.testing.assert_array_equal(mask[row].numpy().view(np.uint32), guide.mask(guide.start))
    assert (mask[1] == -1).all() and (mask[3] == -1).all() and (mask[5] == 8).all()
    logits = torch.zeros((6, width))
    base.GrammarMask(grammars[0], grammars[0].move_vocab_mask(mask, "cpu")).apply(logits)
    assert (logits[4] == 0).nonzero()[:, 0].tolist() == tokens_of(mask[4].numpy().view(np.uint32))
    assert not logits[1].any()
    grammars[0].reset_vocab_mask(mask)
    assert (mask == -1).all()
    for is_allowed in (True, False):
        for reset in (True, False):
            row = torch.full((3, 4), 6, dtype=torch.int32)
            backend.set_token_filter(row, [33, 127, 2], 1, is_allowed, reset)
            bits = set(tokens_of(row[1].numpy().view(np.uint32)))
            before = set(range(128)) if reset and not is_allowed else set() if reset else set(tokens_of(
                np.full(4, 6, np.uint32)
            ))  # fmt: skip
            assert bits == (before | {33, 127, 2} if is_allowed else before - {33, 127, 2})
            assert (row[[0, 2]] == 6).all()


def traverse_tree_of(folder: Any) -> Any:
    """SGLang's own walk over a tree of drafts, out of a module that cannot be loaded here."""
    source = (folder / "srt/speculative/spec_utils.py").read_text()
    begin = source.index("def traverse_tree(")
    names: dict[str, Any] = {"torch": torch, "BaseGrammarObject": object, "Optional": Any, "List": list}
    exec("from __future__ import annotations\n" + source[begin : source.index("\ndef ", begin)], names)
    return names["traverse_tree"]


def test_trees_of_drafts(sglang: Any, tokenizer: Any) -> None:
    """Every node of a tree gets the mask behind its own path, and the text stays where it was."""
    traverse = traverse_tree_of(folder_of("sglang"))
    grammar = grammar_of(sglang, tokenizer, "regex", "(ab|ac|a1)[0-9]{2}")
    a, b, c, one, two, x = (tokenizer(letter).input_ids[0] for letter in "abc12x")
    grammar.accept_token(a)
    #      root -> b -> 1, with the siblings c -> 2 and x, which is not allowed
    tokens = torch.tensor([a, b, c, x, one, two])
    following, siblings = torch.tensor([1, 4, 5, -1, -1, -1]), torch.tensor([-1, 2, 3, -1, -1, -1])
    mask = grammar.allocate_vocab_mask(len(tokenizer) + 40, 6, "cpu")
    traverse(following, siblings, tokens, grammar, mask, vocab_size=len(tokenizer))
    guide = grammar.session.guide
    for node, path in enumerate([[a], [a, b], [a, c], None, [a, b, one], [a, c, two]]):
        row = mask[node].numpy().view(np.uint32)
        if path is None:
            assert (mask[node] == -1).all()
            continue
        state = guide.start
        for token in path:
            state = guide.advance(state, token)
        np.testing.assert_array_equal(row, guide.mask(state)[: len(row)])
    assert grammar.session.length == 1


def test_random_drafts_and_ends(sglang: Any, tokenizer: Any) -> None:
    random, pattern = Random(3), "(on |the ){2,6}[0-9]{2}"
    template = grammar_of(sglang, tokenizer, "regex", pattern)
    for _ in range(6):
        grammar, ids = template.copy(), list[int]()
        while not grammar.is_terminated():
            mask = grammar.allocate_vocab_mask(len(tokenizer) + 40, 1, "cpu")
            taken = 0
            for _ in range(random.randint(1, 5)):
                grammar.fill_vocab_mask(mask, 0)
                token = random.choice(tokens_of(mask[0].numpy().view(np.uint32)))
                grammar.accept_token(token)
                ids.append(token)
                taken += 1
                if grammar.is_terminated():
                    break
            refused = random.randint(0, taken)
            grammar.finished = grammar.is_terminated()
            grammar.rollback(refused)
            assert not (refused and grammar.is_terminated())
            ids = ids[: len(ids) - refused]
        assert re.fullmatch(pattern, grammar.session.guide.vocabulary.decode(ids).decode())


def test_jumping_forward(sglang: Any, tokenizer: Any) -> None:
    grammar = grammar_of(sglang, tokenizer, "regex", 'see the "é": [0-9]|see them')
    assert grammar.try_jump_forward(tokenizer) == ([], "see the")
    for token in tokenizer("see th").input_ids:
        grammar.accept_token(token)
    old = tokenizer("see th").input_ids
    helper = grammar.try_jump_forward(tokenizer)
    text, state = grammar.jump_forward_str_state(helper)
    assert (text, state) == ("e", -1)
    new = tokenizer("see the").input_ids
    assert new[: len(old)] != old
    grammar.jump_and_retokenize(old, new, state)
    assert grammar.session.guide.vocabulary.decode(new) == b"see the"
    assert grammar.session.length == len(new)
    grammar.accept_token(tokenizer(" ").input_ids[0])
    assert grammar.try_jump_forward(tokenizer) == ([], '"é": ')
    with pytest.raises(ValueError, match="are not allowed by"):
        grammar.jump_and_retokenize([], tokenizer("x").input_ids, -1)
    wide = grammar_of(sglang, tokenizer, "regex", "[éè]+")
    assert wide.session.jump_forward() == b"\xc3" and wide.try_jump_forward(tokenizer) is None


def test_reasoning(sglang: Any, tokenizer: Any) -> None:
    """SGLang's reasoning wrapper around our grammar: free until thinking ends, and back over that."""
    reasoner = import_module(REASONER).ReasonerGrammarObject
    end = tokenizer("~").input_ids[0]
    inner = grammar_of(sglang, tokenizer, "regex", "[0-9]{2}")
    backend = backend_of(sglang, tokenizer)
    grammar = reasoner(inner, [end], None, 3, True, backend.set_token_filter)
    grammar.maybe_init_reasoning(True)
    size = len(tokenizer) + 40

    def allowed() -> list[int]:
        mask = grammar.allocate_vocab_mask(size, 1, "cpu")
        grammar.fill_vocab_mask(mask, 0)
        return tokens_of(mask[0].numpy().view(np.uint32))

    thoughts = tokenizer("abc").input_ids
    for token in thoughts:
        assert len(allowed()) >= size
        grammar.accept_token(token)
    assert allowed() == [end]  # no more than three tokens of thinking
    grammar.accept_token(end)
    first = allowed()
    assert set(first) <= set(tokens_of(inner.session.guide.mask(inner.session.guide.start)))
    for token in tokenizer("42").input_ids:
        grammar.accept_token(token)
    assert allowed() == [tokenizer.eos_token_id]
    grammar.accept_token(tokenizer.eos_token_id)
    assert grammar.is_terminated()
    grammar.rollback(3)
    assert not grammar.is_terminated() and allowed() == first and inner.session.length == 0
    grammar.rollback(2)  # into the thinking
    grammar.accept_token(tokenizer("z").input_ids[0])
    assert allowed() == [end]


def test_registering(sglang: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    choices = import_module("sglang.srt.arg_groups.choices").GRAMMAR_BACKEND_CHOICES
    monkeypatch.delenv("SGLANG_PLUGINS", raising=False)
    plugins.sglang()
    assert "trellm" not in choices
    monkeypatch.setenv("SGLANG_PLUGINS", "trellm, other")
    plugins.sglang()
    plugins.sglang()
    assert choices.count("trellm") == 1
    made = import_module(BASE).create_grammar_backend(None, tokenizer, len(tokenizer), {tokenizer.eos_token_id})
    assert type(made) is sglang.TrellmGrammarBackend
    found, is_known = made.get_cached_or_future_value(("regex", "[0-9]"), False)
    assert not is_known
    made.set_cache(("regex", "[0-9]"), found.result().copy())
    again, is_known = made.get_cached_or_future_value(("regex", "[0-9]"), False)
    assert is_known and again.session.guide is found.result().session.guide
    made.executor.shutdown()


def test_a_version_with_another_interface(sglang: Any) -> None:
    import sys

    del sys.modules["trellm.adapters.sglang"], import_module(BASE).BaseGrammarObject.fill_vocab_mask_batched
    with pytest.raises(OptionError, match=r"no .*fill_vocab_mask_batched.* SGLang 0.5.23 was tested"):
        import_module("trellm.adapters.sglang")
