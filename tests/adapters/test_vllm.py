"""The vLLM adapter at vLLM's own abstract classes and its own StructuredOutputManager, without the rest of vLLM."""

from __future__ import annotations

import inspect
import re
import sys
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trellm import OptionError, SchemaError, Vocabulary, VocabularyError
from trellm.adapters import plugins
from trellm.guides import RegexGuide, tokens_of

from .vllm_parts import MANAGER, SECOND, config_of, params_of

DRAFTS = 4
SCHEMA = '{"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}'
THOUGHT = ord("~")  # what ends reasoning


def backend_of(vllm: Any, tokenizer: Any) -> Any:
    return vllm.TrellmBackend(config_of(len(tokenizer)), tokenizer, len(tokenizer))


def compiled(vllm: Any, tokenizer: Any, kind: str, text: str, stops: set[int] | None = None) -> Any:
    options = import_module(f"{MANAGER}.backend_types").StructuredOutputOptions
    return backend_of(vllm, tokenizer).compile_grammar(options[kind], text, stop_token_ids=stops)


@pytest.mark.parametrize(
    ("kind", "text", "good", "bad"),
    [
        ("JSON", SCHEMA, '{"ok": true}', '{"ok": 1}'),
        ("JSON_OBJECT", "", '{"a": [1, {}]}', "[1]"),
        ("REGEX", "[0-9]{3}(the)?", "123the", "12"),
        ("CHOICE", '["on", "the end"]', "the end", "the"),
        ("GRAMMAR", 'root ::= "[" root* "]"', "[[][]]", "[["),
        ("GRAMMAR", 'start: "[" start* "]"', "[[][]]", "[["),
    ],
)
def test_what_is_compiled(vllm: Any, tokenizer: Any, kind: str, text: str, good: str, bad: str) -> None:
    grammar = compiled(vllm, tokenizer, kind, text)
    for written, is_good in ((good, True), (bad, False)):
        ids = [*tokenizer(written).input_ids, tokenizer.eos_token_id]
        assert (len(grammar.validate_tokens(ids)) == len(ids)) == is_good
        assert grammar.accept_tokens("r", ids) == is_good == grammar.is_terminated()
        grammar.reset()
        assert not grammar.is_terminated() and grammar.session.length == 0


def test_every_method_of_the_interface(vllm: Any) -> None:
    """Nothing abstract is left, and the parameters are vLLM's; what is of both its model runners has more."""
    interface = import_module("vllm.v1.sample.logits_processor.interface")
    second = import_module(f"{SECOND}.interface")
    types = import_module(f"{MANAGER}.backend_types")
    for ours, theirs in (
        (vllm.TrellmGrammar, types.StructuredOutputGrammar),
        (vllm.TrellmBackend, types.StructuredOutputBackend),
        (vllm.TrellmLogitsProcessor, interface.LogitsProcessor),
        (vllm.TrellmLogitsProcessor, second.LogitsProcessor),
    ):
        assert issubclass(ours, theirs) and not inspect.isabstract(ours)
        assert theirs.__abstractmethods__
        for name in theirs.__abstractmethods__ - {"__init__"}:
            mine, wanted = (list(inspect.signature(getattr(each, name)).parameters) for each in (ours, theirs))
            assert mine[: len(wanted)] == wanted and (len(mine) == len(wanted) or mine == ["self", "logits", "ctx"])


def test_stop_tokens_and_what_comes_behind_the_end(vllm: Any, tokenizer: Any) -> None:
    stop = tokenizer("!").input_ids[0]
    grammar = compiled(vllm, tokenizer, "REGEX", "[0-9]+!?", {stop, 10**6})
    digits = tokenizer("77").input_ids
    bitmask = backend_of(vllm, tokenizer).allocate_token_bitmask(2)
    assert (bitmask == -1).all() and bitmask.shape == (2, (len(tokenizer) + 31) // 32)
    grammar.fill_bitmask(bitmask, 1)
    assert stop not in tokens_of(bitmask[1].numpy().view(np.uint32)) and (bitmask[0] == -1).all()
    assert not grammar.accept_tokens("r", [stop])
    assert grammar.accept_tokens("r", [*digits, stop, *digits])  # what is behind the end is ignored
    assert grammar.is_terminated() and grammar.session.length == 3
    assert grammar.validate_tokens(digits) == [] and grammar.accept_tokens("r", digits)
    grammar.rollback(1)
    assert not grammar.is_terminated() and grammar.validate_tokens([*digits, -1]) == digits
    with pytest.raises(OptionError, match=r"rollback\(3\): this session has accepted 2 tokens"):
        grammar.rollback(3)


def test_what_is_refused(vllm: Any, tokenizer: Any) -> None:
    with pytest.raises(SchemaError):
        compiled(vllm, tokenizer, "JSON", '{"type": "nothing"}')
    with pytest.raises(OptionError, match="type STRUCTURAL_TAG are not supported by this backend"):
        compiled(vllm, tokenizer, "STRUCTURAL_TAG", "{}")
    with pytest.raises(OptionError, match="choices are a JSON list of texts"):
        compiled(vllm, tokenizer, "CHOICE", '{"a": 1}')
    assert vllm.TrellmBackend.is_tokenizer_supported(tokenizer)
    assert not vllm.TrellmBackend.is_tokenizer_supported(object())


def test_a_tokenizer_wider_than_the_model(vllm: Any, tokenizer: Any) -> None:
    with pytest.raises(VocabularyError, match="size=100"):
        vllm.TrellmBackend(config_of(100), tokenizer, 100)
    with pytest.raises(VocabularyError, match="size=100"):
        vllm.TrellmLogitsProcessor(config_of(100), torch.device("cpu"), False)


class Request:
    """A request as the scheduler has it."""

    def __init__(self, number: int, pattern: str, reasons: bool) -> None:
        params = SimpleNamespace(
            json=None, json_object=None, regex=pattern, choice=None, grammar=None, structural_tag=None,
            _backend="xgrammar",
        )  # fmt: skip
        request = import_module(f"{MANAGER}.request").StructuredOutputRequest(params)
        self.request_id, self.pattern, self.reasons = str(number), pattern, reasons
        self.use_structured_output, self.structured_output_request = True, request
        self.sampling_params = SimpleNamespace(structured_outputs=params, all_stop_token_ids=set[int]())
        self.prompt_token_ids, self.all_token_ids = [5, 6], [5, 6]

    @property
    def output(self) -> list[int]:
        return self.all_token_ids[2:]


class Reasoner:
    """Reasoning ends with the first THOUGHT."""

    def __init__(self, tokenizer: Any) -> None:
        self.end = tokenizer(chr(THOUGHT)).input_ids[0]

    def is_reasoning_end(self, ids: Any) -> bool:
        return self.end in ids

    def is_reasoning_end_streaming(self, ids: Any, delta: Any) -> bool:
        return self.end in delta


@pytest.mark.parametrize("reasons", [False, True], ids=["plain", "reasoning"])
def test_the_scheduler_with_drafts_and_preemption(
    vllm: Any, tokenizer: Any, reasons: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """vLLM's manager, as its scheduler calls it: drafts are checked, masked, taken or refused; texts are complete."""
    vllm.register()
    manager = import_module(MANAGER).StructuredOutputManager(config_of(len(tokenizer)))
    manager.reasoner_cls = Reasoner if reasons else None
    random, eos = Random(int(reasons)), tokenizer.eos_token_id
    end = tokenizer(chr(THOUGHT)).input_ids[0]
    patterns = [r"on [0-9]{2,12}the", r"((true|on) ){1,6}12", "[a-c]{3,9}", '"[^"]{2,9}"']
    requests = [Request(number, pattern, reasons) for number, pattern in enumerate(patterns * 2)]
    for request in requests:
        manager.grammar_init(request)
    running = {request.request_id: request for request in requests}
    accepted_drafts = 0
    for _ in range(200):
        batch = [request for request in running.values() if random.random() < 0.7]  # the others are preempted
        drafts = {}
        for request in batch:
            while not request.structured_output_request.is_grammar_ready:
                pass
            assert type(request.structured_output_request.grammar) is vllm.TrellmGrammar
            drafts[request.request_id] = manager.validate_tokens(request, drafted(request, random, end))
        ids = [request.request_id for request in batch]
        bitmask = manager.grammar_bitmask(running, ids, drafts)
        for place, request in enumerate(batch):
            rows = bitmask[place * (DRAFTS + 1) :].view(np.uint32)
            new: list[int] = []
            for at, draft in enumerate([*drafts[request.request_id], None]):
                masked = written(request, new, end) is not None
                if masked:
                    np.testing.assert_array_equal(rows[at], expected(request, new, end))
                allowed = tokens_of(rows[at]) if masked else [*range(60, 90), end]
                token = draft if draft in allowed and random.random() < 0.7 else random.choice(allowed)
                new.append(token)
                accepted_drafts += token == draft
                if token != draft or token == eos:
                    break
            request.all_token_ids += new
            assert manager.accept_tokens(request, new)
            if new[-1] == eos and written(request, [], end) is not None:
                del running[request.request_id]
    assert not running and accepted_drafts > 20
    decode = requests[0].structured_output_request.grammar.session.guide.vocabulary.decode
    for request in requests:
        assert re.fullmatch(request.pattern, decode(written(request, [], end)).decode())
    manager.clear_backend()


def written(request: Request, new: list[int], end: int) -> list[int] | None:
    """What a request has written behind its reasoning; None while it reasons."""
    ids = [*request.output, *new]
    if not request.reasons:
        return ids
    return ids[ids.index(end) + 1 :] if end in ids else None


def expected(request: Request, new: list[int], end: int) -> np.ndarray:
    """The mask by the plain way: everything read anew."""
    guide = request.structured_output_request.grammar.session.guide
    state = guide.start
    for token in written(request, new, end) or []:
        state = guide.advance(state, token)
    return guide.mask(state)


def drafted(request: Request, random: Random, end: int) -> list[int]:
    """Drafts, most of them allowed; padded, as some ways of drafting pad them."""
    guide = request.structured_output_request.grammar.session.guide
    drafts: list[int] = []
    state = None
    for _ in range(random.randint(0, DRAFTS)):
        text = written(request, drafts, end)
        if text is None:
            drafts.append(random.choice([65, 66, end]))
            continue
        state = guide.start
        for token in text:
            state = guide.advance(state, token)
        allowed = [token for token in tokens_of(guide.mask(state)) if token not in guide.vocabulary.eos_ids]
        drafts.append(random.choice(allowed) if allowed and random.random() < 0.9 else 70)
    return drafts + [-1] * random.randint(0, DRAFTS - len(drafts))


def test_many_rows_are_filled_by_threads(vllm: Any, tokenizer: Any) -> None:
    vllm.register()
    manager = import_module(MANAGER).StructuredOutputManager(config_of(len(tokenizer), rows=200, drafts=0))
    requests = {str(number): Request(number, f"[a-{chr(98 + number % 9)}]+x", False) for number in range(150)}
    for request in requests.values():
        manager.grammar_init(request)
        while not request.structured_output_request.is_grammar_ready:
            pass
    bitmask = manager.grammar_bitmask(requests, list(requests), {})
    for row, request in zip(bitmask.view(np.uint32), requests.values(), strict=True):
        np.testing.assert_array_equal(row, expected(request, [], 0))
    manager.clear_backend()


def test_requests_are_checked_beforehand(vllm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VLLM_PLUGINS", raising=False)
    backend = import_module(f"{MANAGER}.backend_xgrammar")
    plugins.vllm()
    assert import_module(MANAGER).XgrammarBackend is not vllm.TrellmBackend
    monkeypatch.setenv("VLLM_PLUGINS", "other,trellm")
    plugins.vllm()
    assert import_module(MANAGER).XgrammarBackend is vllm.TrellmBackend
    error = import_module("vllm.exceptions").VLLMValidationError
    backend.validate_xgrammar_grammar(SimpleNamespace(structured_outputs=None))
    backend.validate_xgrammar_grammar(Request(0, "[0-9]+", False).sampling_params)
    with pytest.raises(error, match=r"offset 0"):
        backend.validate_xgrammar_grammar(Request(0, "[0-9", False).sampling_params)


def test_a_version_with_another_interface(vllm: Any) -> None:
    types = import_module(f"{MANAGER}.backend_types")
    del sys.modules["trellm.adapters.vllm"], types.StructuredOutputGrammar.fill_bitmask
    with pytest.raises(OptionError, match=r"no .*StructuredOutputGrammar.fill_bitmask.* vLLM 0.33 was tested"):
        import_module("trellm.adapters.vllm")


def test_the_logits_processor(vllm: Any, tokenizer: Any) -> None:
    """Requests join, leave and change places; texts are read from the lists that vLLM adds tokens to."""
    moves = import_module("vllm.v1.sample.logits_processor.interface")
    processor = vllm.TrellmLogitsProcessor(config_of(len(tokenizer)), torch.device("cpu"), False)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    assert processor.is_argmax_invariant() is False
    asked = [{"regex": "[0-9]{3,}x", "complete": True}, {}, {"choice": ["on", "the end"]}, {"json": {"type": "null"}}]
    patterns = ["[0-9]{3,}x", ".*", "on|the end", "null"]
    outputs: list[list[int]] = [[] for _ in asked]
    rows = [*range(4)]
    added = [(row, params_of(6, **each), [5], outputs[row]) for row, each in enumerate(asked)]
    processor.update_state(moves.BatchUpdate(4, [], added, []))
    random = Random(0)
    for step in range(6):
        if step == 2:  # the first and the third change places; the second goes to the end, where there is room
            processor.update_state(moves.BatchUpdate(5, [], [], [(0, 2, moves.MoveDirectionality.SWAP)]))
            processor.update_state(moves.BatchUpdate(5, [], [], [(1, 4, moves.MoveDirectionality.UNIDIRECTIONAL)]))
            rows = [2, 4, 0, 3]
        processor.update_state(None)
        logits = torch.zeros((5, len(tokenizer)))
        assert processor.apply(logits) is logits
        for number, row in enumerate(rows):
            allowed = (logits[row] == 0).nonzero()[:, 0].tolist()
            assert (len(allowed) == len(tokenizer)) == (number == 1)
            if not outputs[number] or outputs[number][-1] != tokenizer.eos_token_id:
                outputs[number].append(random.choice(allowed))
    for number, pattern in enumerate(patterns):
        text = vocabulary.decode(outputs[number])
        assert number == 1 or re.fullmatch(pattern, text.decode())
    outputs[3].clear()  # as for a request that is computed again
    logits = torch.zeros((5, len(tokenizer)))
    processor.apply(logits)
    guide = RegexGuide("null", vocabulary)
    assert (logits[3] == 0).nonzero()[:, 0].tolist() == tokens_of(guide.mask(guide.start))
    processor.update_state(moves.BatchUpdate(1, [0, 2, 3, 4], [], []))
    assert not processor.apply(torch.zeros((1, len(tokenizer)))).any()


@pytest.mark.parametrize(
    ("pattern", "output", "expected"),
    [
        ("([0-9!]|y{50})[0-9]z", "", "0123456789"),
        ("[0-9]y?(x{50})?", "1", "y!\0"),
        ("(!|y{50})[0-9]z", "", "y"),
    ],
)
def test_stop_tokens_within_a_budget(vllm: Any, tokenizer: Any, pattern: str, output: str, expected: str) -> None:
    """They would end the text for vLLM: they are allowed where it is complete, and nowhere else."""
    processor = vllm.TrellmLogitsProcessor(config_of(len(tokenizer)), torch.device("cpu"), False)
    (stop,) = tokenizer("!").input_ids
    params = params_of(5, regex=pattern, complete=True)
    params.all_stop_token_ids = {stop}
    moves = import_module("vllm.v1.sample.logits_processor.interface")
    processor.update_state(moves.BatchUpdate(1, [], [(0, params, [5], tokenizer(output).input_ids)], []))
    logits = processor.apply(torch.zeros((1, len(tokenizer))))
    allowed = (logits[0] == 0).nonzero()[:, 0].tolist()
    single = {character: tokenizer(character).input_ids[0] for character in expected if character != "\0"}
    ends = {tokenizer.eos_token_id} if "\0" in expected else set()
    text = tokenizer("12").input_ids if "[0-9!]" in pattern else []
    assert set(allowed) == {*single.values(), *ends, *text}


@pytest.mark.parametrize(
    ("asked", "match"),
    [
        ({"regex": "[0-9"}, "offset 0"),
        ({"regex": "1", "json": {}}, "with exactly one of json"),
        ({"regexp": "1"}, "with exactly one of json"),
        ({"regex": "1", "finish": True}, "with exactly one of json"),
        ({"regex": "1", "complete": 1}, "complete.*True or False"),
        ({"regex": "1", "complete": True}, "needs max_tokens"),
    ],
)
def test_the_logits_processor_checks_requests(vllm: Any, asked: Any, match: str) -> None:
    vllm.TrellmLogitsProcessor.validate_params(params_of())
    with pytest.raises(ValueError, match=match):
        vllm.TrellmLogitsProcessor.validate_params(params_of(None, **asked))
