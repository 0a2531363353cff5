"""Public functions with arguments of right and wrong values and types."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from decimal import Decimal
from functools import cache
from random import Random
from typing import Any

import numpy as np

Call = tuple[str, Callable[..., Any], list[Any], dict[str, Any]]


class Strange:
    """An object that fits nowhere."""

    def __repr__(self) -> str:
        return "Strange()"


def strange(random: Random) -> Any:
    """A value of any type."""
    looped: list[Any] = []
    looped.append(looped)
    made: list[Callable[[], Any]] = [
        lambda: None, lambda: True, lambda: False, lambda: random.choice([0, 1, -1, 2, 7, 10**6, 2**31, 2**63, 2**64,
        10**30]),
        lambda: random.choice([0.0, 0.5, 1.5, -1.0, 1e300, math.nan, math.inf, -math.inf]),
        lambda: random.choice(["", "a", "é", "\ud800", "\x00", "a" * 1000, "schema", "any", "word", "lark", "start"]),
        lambda: random.choice([b"", b"a", bytearray(b"a"), memoryview(b"a")]),
        lambda: random.choice([[], ["a"], [1], [None], ["a", 1], [["a"]], looped]),
        lambda: random.choice([(), ("a",), (1, 2), {"a"}, frozenset(), range(3)]),
        lambda: random.choice([{}, {"a": 1}, {1: 2}, {"a": "b c"}, {"type": "string"}, {"a": {}}]),
        lambda: random.choice([np.int64(3), np.float32(0.5), np.array([1, 2]), np.array("a"), np.bool_(True)]),
        lambda: random.choice([Strange(), Strange, object, len, lambda *_: 0, re.compile("a"), re.I, Decimal(2), 1j,
        ...]),
        lambda: iter(["a", "b"]),
    ]  # fmt: skip
    return random.choice(made)()


def option_set(random: Random) -> Call:
    """A function's name, the function, and its arguments, some of them replaced by strange ones."""
    name, function, arguments, named = random.choice(_calls())
    arguments, named = list(arguments), dict(named)
    good = {key: values for key, values in _possible().items() if key in named}
    for key in named:
        named[key] = random.choice(good[key]) if key in good and random.random() < 0.5 else named[key]
    named = {key: value for key, value in named.items() if random.random() < 0.5}
    for _ in range(random.choice([0, 1, 1, 1, 2])):
        places = [*range(len(arguments)), *_names(name)]
        if not places:
            break
        place = random.choice(places)
        if isinstance(place, int):
            arguments[place] = strange(random)
        else:
            named[place] = strange(random)
    if random.random() < 0.02:
        named["no_such_option"] = 1
        return name, _tolerant(function), arguments, named
    return name, function, arguments, named


def _tolerant(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function; that Python itself refuses a name is no fault."""

    def called(*arguments: Any, **named: Any) -> Any:
        try:
            return function(*arguments, **named)
        except TypeError as error:
            if "unexpected keyword argument" not in str(error):
                raise
            return None

    return called


@cache
def _names(name: str) -> tuple[str, ...]:
    return next(tuple(named) for each, _, _, named in _calls() if each == name)


@cache
def _possible() -> dict[str, list[Any]]:
    from trellm import Beam, Greedy, Sample

    return {
        "search": [Greedy(), Sample(), Sample(0.5, top_k=3, n=2), Beam(2), Beam(3, n=2)],
        "max_tokens": [1, 2, 5, 20, None], "stop": ["a", ["b", "c"], ""], "stop_ids": [[97], [], [256]], "seed": [1,
        None, [1, 2]],
        "include": ["a", ["b"], ["zz", "a"]], "batch_size": [1, 2, 16], "boundary": ["word", "character", "line"],
        "order": ["any", "schema", "document", "score"], "whitespace": ["flexible", "compact", "exact", "collapsed"],
        "max_chars": [None, 3, 10], "spans": [1, 2], "temperature": [0.1, 1.0, 3.0], "top_k": [None, 1, 5],
        "dialect": ["python", "ecma"], "syntax": ["lark", "gbnf"], "flags": [0, 2, re.I],
    }  # fmt: skip


@cache
def _calls() -> list[Call]:
    """Every public function with arguments that it takes."""
    from trellm import AllOf, AnyOf, Beam, Gap, Ordered, Phrase, Quote, Sample, Template, Vocabulary, generate, models
    from trellm.engine.search import Greedy
    from trellm.guides import (
        AlignedGuide,
        CFGGuide,
        ChoiceGuide,
        FreeGuide,
        GoalGuide,
        JSONGuide,
        RegexGuide,
        SubstringGuide,
        mask_within,
    )

    vocabulary = Vocabulary.from_bytes()
    guide = RegexGuide("[ab]{1,9}", vocabulary)
    model = models.from_function(lambda ids: np.cos(np.arange(257) * (1 + len(ids))), vocabulary)
    schema = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}}
    text = {
        "max_tokens": 5, "search": Greedy(), "include": (), "seed": 1, "stop": (), "stop_ids": (), "heal": True,
        "no_repeat_ngram_size": 2, "repetition_penalty": 1.5, "min_tokens": 1, "frequency_penalty": 0.5,
        "presence_penalty": -0.5, "logit_bias": {"a": -5, 98: 1.5}, "draft": True,
    }  # fmt: skip
    call = {**text, "batch_size": 2, "progress": False}
    run = {**call, "logprobs": True, "diagnostics": True, "trace": False}
    rules = {"boundary": "word", "min_chars": 1, "max_chars": None, "whitespace": "exact"}
    form = {
        "order": "any", "whitespace": "flexible", "indent": 2, "escapes": "canonical", "resources": None,
        "formats": True,
        "max_cases": 512, "contexts": None,
    }  # fmt: skip
    made: list[Call] = [
        ("RegexGuide", RegexGuide, ["a+", vocabulary], {"flags": 0, "dialect": "python"}),
        ("ChoiceGuide", ChoiceGuide, [["a", "b"], vocabulary], {}),
        ("CFGGuide", CFGGuide, ['start: "a"+', vocabulary], {"start": "start", "syntax": "lark", "contexts": None}),
        ("JSONGuide", JSONGuide, [schema, vocabulary], form),
        ("SubstringGuide", SubstringGuide, ["a b c", vocabulary], {**rules, "none_text": "no"}),
        ("AlignedGuide", AlignedGuide, [guide, b"ab"], {"counts_tail": True, "crossings": None}),
        ("GoalGuide", GoalGuide, [guide, "ab"], {"max_states": 1000}),
        ("FreeGuide", FreeGuide, [vocabulary], {}),
        ("mask_within", mask_within, [guide, 0, 3], {}),
        ("RegexGuide.precompile", lambda *a, **k: RegexGuide("a+b", vocabulary).precompile(*a, **k), [],
        {"max_states": 100}),
        ("RegexGuide.to_svg", lambda **k: guide.to_svg(**k), [], {"tokens": True, "max_states": 99}),
        ("RegexGuide.load", lambda *a, **k: RegexGuide.load(*a, **k), ["/no/such/file", vocabulary], {"pattern": "a",
        "flags": 0}),
        ("Vocabulary", Vocabulary, [[b"a", None], [1]], {"special_ids": []}),
        ("Vocabulary.from_tokenizer", Vocabulary.from_tokenizer, [None], {"size": 3, "eos_ids": [1]}),
        ("Vocabulary.from_characters", Vocabulary.from_characters, ["abc"], {}),
        ("Vocabulary.decode", vocabulary.decode, [[97, 98]], {}),
        ("Quote", Quote, ["a b"], rules),
        ("Phrase", Phrase, ["a"], {"word": True}),
        ("Gap", Gap, [], {"min_words": 0, "max_words": 2, "max_chars": 9}),
        ("AnyOf", AnyOf, ["a", "b"], {}), ("AllOf", AllOf, ["a", "b"], {}), ("Ordered", Ordered, ["a", "b"], {}),
        ("Template", Template, ["a", ..., "b"], {}),
        ("Sample", Sample, [], {"temperature": 0.5, "top_k": 3, "top_p": 0.5, "min_p": 0.1, "n": 2}),
        ("Beam", Beam, [3], {"length_penalty": 1.0, "n": 2, "early_stopping": False,
        "sibling_penalty": 0.5}),
        ("from_function", models.from_function, [lambda ids: [0.0] * 257, vocabulary], {"tokenizer": None,
        "context": 99, "some_logits": None}),
        ("ziplm", models.ziplm, ["a text"], {"alphabet": None, "conversion": 5.5}),
        ("transformers", models.transformers, [None, None], {"cache": True, "device": None, "dtype": None}),
        ("generate.text", generate.text, [model], {}),
        ("generate.regex", generate.regex, [model, "a+"], {"flags": 0, "dialect": "python"}),
        ("generate.choice", generate.choice, [model, ["a", "b"]], {}),
        ("generate.cfg", generate.cfg, [model, 'start: "a"'], {"start": "start", "syntax": "lark", "contexts": None}),
        ("generate.fsm", generate.fsm, [model, None], {}),
        ("generate.extract", generate.extract, [model, "a b"], {**rules, "none_text": "no", "spans": 1,
        "order": "document"}),
        ("generate.format", generate.format, [model, int], {}),
        ("generate.json", generate.json, [model, schema], {**form, "order": "schema"}),
        ("generate.batch", generate.batch, [[(generate.regex(model, "a{1,3}"), "x")]], call),
    ]  # fmt: skip
    for kind, generator in {
        "text": generate.text(model), "regex": generate.regex(model, "[ab]{1,9}"), "json": generate.json(model, schema),
        "extract": generate.extract(model, "a b c. d e f", spans=2),
    }.items():  # fmt: skip
        short = {**call, "max_tokens": 30}
        made += [
            (f"generate.{kind}()", generator, [["x", "y"]], short),
            (f"generate.{kind}().run", generator.run, ["x"], {**run, "max_tokens": 30}),
            (f"generate.{kind}().stream", _drained(generator.stream), ["x"], {**text, "max_tokens": 30}),
        ]
    for value in (_ragged, _nan, _short, _words, _failing):
        bad = models.from_function(value, vocabulary)
        made.append((f"a model with {value.__name__[1:]} logits", generate.regex(bad, "[ab]{3}"), ["x"], short))
    return made


def _drained(stream: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *arguments, **named: list(stream(*arguments, **named))


def _ragged(ids: Any) -> Any:
    return [[0.0], [1.0, 2.0]]


def _nan(ids: Any) -> Any:
    return [math.nan] * 257


def _short(ids: Any) -> Any:
    return [0.0] * (250 + len(ids))


def _words(ids: Any) -> Any:
    return ["a"] * 257


def _failing(ids: Any) -> Any:
    return None
