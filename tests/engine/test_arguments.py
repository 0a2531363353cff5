"""Whatever a caller passes is used or refused with an error of ours, before the model runs."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Beam, Generator, OptionError, Sample, TrellmError, Vocabulary, generate, models
from trellm.guides import RegexGuide

VOCABULARY = Vocabulary.from_bytes()
MODEL = models.from_function(lambda ids: [-abs(float(token - 97)) for token in range(257)], VOCABULARY)
GUIDE = RegexGuide("[ab]{1,3}", VOCABULARY)
REGEX, TEXT = Generator(MODEL, GUIDE), generate.text(MODEL)


class Odd:
    """Nothing that anything here takes."""


ODD: list[Any] = [
    None, 5, -1, 0, 2**63, 2**70, -(2**70), 10**400, 1.5, float("nan"), float("inf"), True, complex(1, 2), Ellipsis,
    "", "x", "a\ud800", b"a", [], [None], ["a\udfff"], ["a", 5], (1, 2), {}, {"a": 1}, {1}, range(3), iter([]),
    object(), Odd, Odd(), re.compile("a"), Path("a"), GUIDE, VOCABULARY, MODEL, np.array([1.0, 2.0]), np.float64(1.5),
    np.int64(3), torch.tensor(1), torch.tensor([1.0, 2.0]), lambda *ids: None, datetime.date, datetime.date(2020, 1, 1),
]  # fmt: skip

CALL_OPTIONS = [
    *("max_tokens", "search", "include", "seed", "stop", "stop_ids", "heal", "no_repeat_ngram_size"),
    *("repetition_penalty", "min_tokens", "batch_size", "progress", "retries", "logprobs", "diagnostics", "trace"),
    *("frequency_penalty", "presence_penalty", "logit_bias", "tools", "documents", "draft", "nonsense", "temperature"),
]
ANY_ARRAY = {"type": "array", "items": {"type": "integer"}}


def with_option(generator: Generator[Any], name: str) -> Callable[[Any], object]:
    return lambda value: generator.run("a", **{"max_tokens": 3, name: value})


def of_extract(name: str) -> Callable[[Any], object]:
    return lambda value: generate.extract(MODEL, "a b c", **{name: value})


def of_json(name: str) -> Callable[[Any], object]:
    return lambda value: generate.json(MODEL, ANY_ARRAY, **{name: value})


def names(search: type[Sample | Beam]) -> list[str]:
    return [field.name for field in fields(search)]


def of_sample(name: str) -> Callable[[Any], object]:
    return lambda value: TEXT("a", max_tokens=2, search=Sample(**{name: value})) if name != "n" else Sample(n=value)


def of_beam(name: str) -> Callable[[Any], object]:
    return lambda value: TEXT("a", max_tokens=2, search=Beam(**{"width": 2, name: value}))


made: dict[str, Callable[[Any], object]] = {
    "text(model)": generate.text,
    "regex(model)": lambda value: generate.regex(value, "a"),
    "regex(pattern)": lambda value: generate.regex(MODEL, value),
    "regex(flags)": lambda value: generate.regex(MODEL, "a", value),
    "regex(dialect)": lambda value: generate.regex(MODEL, "a", dialect=value),
    "text(limits)": lambda value: generate.text(MODEL, limits=value),
    "choice(choices)": lambda value: generate.choice(MODEL, value),
    "fsm(machine)": lambda value: generate.fsm(MODEL, value),
    "cfg(grammar)": lambda value: generate.cfg(MODEL, value),
    "cfg(start)": lambda value: generate.cfg(MODEL, 'start: "a"', value),
    "cfg(syntax)": lambda value: generate.cfg(MODEL, 'start: "a"', syntax=value),
    "cfg(contexts)": lambda value: generate.cfg(MODEL, 'start: "a"', contexts=value),
    "cfg(context)": lambda value: generate.cfg(MODEL, "start: quote(a)", contexts={"a": value}),
    "format(kind)": lambda value: generate.format(MODEL, value),
    "extract(context)": lambda value: generate.extract(MODEL, value),
    "json(schema)": lambda value: generate.json(MODEL, value),
    "batch(pairs)": generate.batch,
    "batch(pair)": lambda value: generate.batch([value]),
    "batch(generator)": lambda value: generate.batch([(value, "a")]),
    "batch(prompt)": lambda value: generate.batch([(REGEX, value)], max_tokens=3),
    "Generator(guide)": lambda value: Generator(MODEL, value),
    "Generator(convert)": lambda value: Generator(MODEL, GUIDE, value),
    "prompts": lambda value: REGEX(value, max_tokens=3),
    "prompt": lambda value: REGEX([value], max_tokens=3),
    "stream": lambda value: list(REGEX.stream(value, max_tokens=3)),
    "from_function(logits)": lambda value: models.from_function(value, VOCABULARY),
    "from_function(vocabulary)": lambda value: models.from_function(len, value),
    "from_function(tokenizer)": lambda value: TEXT.__class__(models.from_function(len, VOCABULARY, value)),
    "from_function(context)": lambda value: models.from_function(len, VOCABULARY, context=value),
    "from_function(some_logits)": lambda value: models.from_function(len, VOCABULARY, some_logits=value),
    "ziplm(text)": models.ziplm,
    "ziplm(alphabet)": lambda value: models.ziplm("abc", alphabet=value),
    "ziplm(conversion)": lambda value: models.ziplm("abc", conversion=value),
    "transformers(model)": lambda value: (isinstance(value, str) and value == "x") or models.transformers(value),
    "transformers(tokenizer)": lambda value: models.transformers("./nowhere", value),
    "transformers(device)": lambda value: models.transformers("./nowhere", device=value),
    "transformers(dtype)": lambda value: models.transformers("./nowhere", dtype=value),
    "transformers(cache)": lambda value: models.transformers("./nowhere", cache=value),
    "returned logits": lambda value: Generator(models.from_function(lambda ids: value, VOCABULARY))("a", max_tokens=1),
    **{f"run({name})": with_option(REGEX, name) for name in CALL_OPTIONS},
    **{f"free run({name})": with_option(TEXT, name) for name in ("include", "stop", "stop_ids", "min_tokens", "seed")},
    **{f"extract({name})": of_extract(name) for name in ("boundary", "min_chars", "max_chars", "whitespace")},
    **{f"extract({name})": of_extract(name) for name in ("none_text", "spans", "order")},
    **{f"json({name})": of_json(name) for name in ("order", "whitespace", "indent", "escapes", "resources")},
    **{f"json({name})": of_json(name) for name in ("formats", "max_cases", "contexts")},
    **{f"Sample({name})": of_sample(name) for name in names(Sample)},
    **{f"Beam({name})": of_beam(name) for name in names(Beam)},
}


@pytest.mark.filterwarnings("ignore::trellm.errors.TrellmWarning")
@pytest.mark.parametrize("call", made)
def test_odd_arguments_work_or_are_refused_by_an_error_of_ours(call: str) -> None:
    refused = 0
    for value in ODD:
        try:
            made[call](value)
        except TrellmError as error:
            refused += 1
            assert len(str(error)) < 1500, "a message is read by people"
    assert refused > 0


@pytest.mark.parametrize(
    ("attempt", "hint"),
    [
        (lambda: generate.regex("a+", MODEL), "the model comes first"),
        (lambda: generate.json({"type": "null"}, MODEL), "the model comes first"),
        (lambda: generate.text("gpt2"), r"models\.transformers\('gpt2'\)"),
        (lambda: generate.text(Path("model")), r"models\.transformers\('model'\)"),
        (lambda: generate.text((1, 2)), r"models\.transformers\(model, tokenizer\)"),
        (lambda: generate.regex(MODEL, re.compile("a")), r"pass its \.pattern"),
        (lambda: generate.regex(MODEL, GUIDE), "the pattern must be a text, not RegexGuide"),
        (lambda: generate.choice(MODEL, "yes"), "put it into a list"),
        (lambda: generate.extract(MODEL, Path("report.txt")), "read_text"),
        (lambda: TEXT(b"a"), r"decode\('utf-8'\)"),
        (lambda: TEXT([[1, 2, "a"]]), "prompt 0 must be a text, token ids or the messages of a chat"),
        (lambda: TEXT(5), "a list of such prompts"),
        (lambda: TEXT([{"role": "user", "content": "hi"}]), "tokenizer has no chat template"),
        (lambda: TEXT("a\ud800"), "lone surrogate at character 1"),
        (lambda: TEXT("a", stop=["\udc80"]), "stop string 0 has a lone surrogate"),
        (lambda: TEXT("a", stop=None), "leave it out for none"),
        (lambda: TEXT("a", heal="yes"), "heal='yes': True or False"),
        (lambda: TEXT("a", seed=1.5), "seed=1.5: a whole number"),
        (lambda: TEXT("a", seed=2**64), "seed="),
        (lambda: TEXT(["a", "b"], seed=[1]), "1 seeds for 2 prompts"),
        (lambda: TEXT(["a"] * 20, search=Sample(n=60_000)), "limit of one call is 1,048,576"),
        (lambda: models.transformers((1, 2)), r"models\.transformers\(model, tokenizer\)"),
        (lambda: models.transformers(Odd(), torch.nn.Linear(1, 1)), "swap the two"),
        (lambda: models.transformers("./nowhere", dtype="fp16"), "'float16' is meant"),
        (lambda: models.transformers("./nowhere", device="cuda:256"), "no such device"),
        (lambda: models.from_function(VOCABULARY, len), "swap the two"),
    ],
)
def test_what_is_meant_is_said(attempt: Callable[[], object], hint: str) -> None:
    with pytest.raises(OptionError, match=hint):
        attempt()


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("temperature", r"search=Sample\("),
        ("top_p", r"search=Sample\("),
        ("do_sample", r"search=Sample\("),
        ("n", r"search=Sample\(n=3\)"),
        ("num_beams", r"search=Beam\(4\)"),
        ("length_penalty", r"search=Beam\("),
        ("max_new_tokens", "max_tokens=100"),
        ("max_length", "max_tokens=100"),
        ("stop_strings", "stop="),
        ("force_words_ids", "include="),
        ("suppress_tokens", "logit_bias="),
        ("logits_processor", "generate.regex"),
        ("limits", "limits=Limits"),
        ("max_token", "did you mean max_tokens"),
        ("logprobs", r"generator\.run\(prompts, logprobs=True\)"),
        ("trace", r"generator\.run\(prompts, trace=True\)"),
    ],
)
def test_options_known_from_elsewhere_point_to_those_here(option: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"^{option}=1: .*{hint}"):
        TEXT("a", **{option: 1})


def test_whole_numbers_of_numpy_are_whole_numbers() -> None:
    assert TEXT("a", max_tokens=np.int64(2), seed=np.uint64(2**64 - 1)) == TEXT("a", max_tokens=2)
    assert Sample(top_k=np.int32(3)).top_k == 3


def test_what_can_be_read_only_once_is_read_once() -> None:
    assert TEXT("a", max_tokens=3, stop=iter(["a"])) == ""
    assert TEXT(iter(["a", "b"]), max_tokens=1) == ["a", "a"]


class TestFolders:
    """What is no model is refused without asking the Hub."""

    def test_missing_empty_and_broken(self, tmp_path: Path) -> None:
        config = tmp_path / "config.json"
        for place, said in (
            (tmp_path / "nowhere", "there is no such folder"),
            ("./nowhere", "there is no such folder"),
            (tmp_path, "has no config.json"),
        ):
            with pytest.raises(OptionError, match=said):
                models.transformers(place)
        for content, said in (("{", "cannot be read as JSON"), ("[]", "no JSON object"), ("{}", "has no weights")):
            config.write_text(content)
            with pytest.raises(OptionError, match=said):
                models.transformers(tmp_path)
        with pytest.raises(OptionError, match="is a file"):
            models.transformers(config)

    def test_weights_that_are_none(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text('{"model_type": "gpt2", "n_layer": 1, "n_embd": 8, "n_head": 1}')
        (tmp_path / "model.safetensors").write_bytes(b"\x10" * 40)
        (tmp_path / "tokenizer.json").write_text("{}")
        with pytest.raises(OptionError, match="cannot be loaded"):
            models.transformers(tmp_path)
        (tmp_path / "config.json").write_text('{"model_type": "no such model"}')
        with pytest.raises(OptionError, match="cannot be loaded"):
            models.transformers(tmp_path)
