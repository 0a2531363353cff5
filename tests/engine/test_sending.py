"""Generators and models in other processes: a description arrives, and gives the same texts."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from interegular import parse_pattern
from trellm import Generator, Limits, Vocabulary, generate, models
from trellm.errors import OptionError
from trellm.guides import RegexGuide

from .support import structure_of

TEXT = "the cat sat on the mat, and the dog sat on the cat. " * 3 + "Sent."
PROMPT = "the cat "
ADDRESS: dict[str, Any] = {"type": "object", "properties": {"a": {"enum": ["b", "c"]}}, "required": ["a"]}


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: Literal[1, 2]


def call(a: Literal["b", "c"]) -> None:
    """A function whose arguments are written."""


def shout(text: str) -> str:
    return text.upper()


def flat(ids: Sequence[int]) -> list[float]:
    """Every token is as likely as its number says, the end most of all."""
    return [number / 7 for number in range(4)]


MAKERS: dict[str, Callable[[Any], Generator[Any]]] = {
    "text": lambda m: generate.text(m),
    "regex": lambda m: generate.regex(m, "[a-c]{2,5}", 2, limits=Limits(work=10**7)),
    "ecma": lambda m: generate.regex(m, "[a-c]{2,5}", dialect="ecma"),
    "after": lambda m: generate.regex(m, "[a-c]{2,5}", after="the", thinking=9),
    "choice": lambda m: generate.choice(m, ["cat", "dog"]),
    "choice of a dict": lambda m: generate.choice(m, {"cat": 1, "dog": 2}),
    "choice of an Enum": lambda m: generate.choice(m, Colour),
    "machine": lambda m: generate.fsm(m, parse_pattern("[ab]{2,4}").to_fsm()),
    "grammar": lambda m: generate.cfg(m, 'start: "a" start | "b"'),
    "gbnf, quoting": lambda m: generate.cfg(m, "start: quote(book)", contexts={"book": TEXT}),
    "extract": lambda m: generate.extract(m, TEXT, max_chars=9, none_text="no"),
    "several spans": lambda m: generate.extract(m, TEXT, spans=2, max_chars=9),
    "int": lambda m: generate.format(m, int),
    "bool": lambda m: generate.format(m, bool),
    "Enum": lambda m: generate.format(m, Colour),
    "json": lambda m: generate.json(m, ADDRESS, whitespace="compact"),
    "json text": lambda m: generate.json(m, '{"enum": [1, "a"]}'),
    "json of a type": lambda m: generate.json(m, Point),
    "json of a generic type": lambda m: generate.json(m, list[Literal[1, 2]]),
    "json of a function": lambda m: generate.json(m, call),
    "own": lambda m: Generator(m, RegexGuide("[ab]{2}", m.vocabulary), shout),
}


@pytest.fixture(scope="module")
def model() -> Any:
    return models.ziplm(TEXT)


def told(generator: Generator[Any]) -> list[Any]:
    options: dict[str, Any] = {"max_tokens": 60, "seed": 5, "logprobs": True}
    found = generator.run([PROMPT, "a dog "], **options)
    results = [one for each in found for one in (each if isinstance(each, list) else [each])]
    return [(each.text, each.value, each.token_ids, each.finish_reason, each.thought, each.score) for each in results]


@pytest.mark.parametrize(
    ("name", "pickler"),
    [*((name, "pickle") for name in MAKERS), *((name, "cloudpickle") for name in ("regex", "json of a type", "own"))],
)
def test_what_arrives_gives_the_same_tokens(model: Any, name: str, pickler: str) -> None:
    generator = MAKERS[name](model)
    data = pytest.importorskip(pickler).dumps(generator)
    other = pickle.loads(data)
    assert type(other) is type(generator) and other is not generator
    assert "model" not in vars(other) and pickle.loads(data) is other, "once in a process, and not before it is used"
    assert len(data) < 6000, "without the vocabulary and without what was compiled"
    again = pickle.loads(pickle.dumps(other))
    assert again is other and "model" not in vars(other), "it is sent on without being made"
    assert told(other) == told(generator)
    assert other.model is pickle.loads(pickle.dumps(model)), "one model of an origin in a process"
    assert "model" in vars(other)


def test_classes_and_functions_of_a_script_travel_by_value(model: Any) -> None:
    cloudpickle = pytest.importorskip("cloudpickle")

    class Local(Enum):
        CAT = "cat"

    generator = Generator(model, RegexGuide("[ab]{2}", model.vocabulary), lambda text: text * 2)
    for module in (pickle, cloudpickle):
        assert told(pickle.loads(module.dumps(generator))) == told(generator)
    (value,) = pickle.loads(cloudpickle.dumps(generate.choice(model, Local)))([PROMPT])
    assert value.name == "CAT"


def test_without_cloudpickle_what_cannot_travel_is_named(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    local = Generator(model, None, lambda text: text)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"^convert= of the generator, .*cannot be sent to another process"):
        pickle.dumps(local)
    own = models.from_function(lambda ids: flat(ids), Vocabulary([b"a", b"b", b"c", None], eos_ids=(3,)))
    with pytest.raises(OptionError, match=r"^logits= of models.from_function .*top level of a module, or install"):
        pickle.dumps(generate.text(own))


def test_functions_travel_by_name_and_by_value() -> None:
    vocabulary = Vocabulary([b"a", b"b", b"c", None], eos_ids=(3,))
    pytest.importorskip("cloudpickle")
    for function in (flat, lambda ids: flat(ids)):
        own = models.from_function(function, vocabulary, context=40)
        generator = generate.regex(own, "[ab]{3}")
        other = pickle.loads(pickle.dumps(generator))
        assert other("c") == generator("c") == "bbb" and other.model.context == 40
        assert pickle.loads(pickle.dumps(own)).vocabulary is vocabulary


def test_a_loaded_model_does_not_travel(hugging_face: Any, tokenizer: Any) -> None:
    loaded = models.transformers(hugging_face("gpt2"), tokenizer)
    for each in (loaded, generate.regex(loaded, "a+")):
        with pytest.raises(OptionError, match=r"wraps a loaded model, whose weights are not sent; give its name"):
            pickle.dumps(each)
    twin = copy.deepcopy(loaded)
    assert twin is not loaded and twin.model is not loaded.model and twin.origin is None
    assert generate.regex(twin, "a+")("", max_tokens=3) == generate.regex(loaded, "a+")("", max_tokens=3)


def test_models_are_loaded_once_in_a_process(hugging_face: Any, tokenizer: Any, tmp_path: Path,
                                            monkeypatch: pytest.MonkeyPatch) -> None:  # fmt: skip
    hugging_face("gpt2").save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    loaded = models.transformers("model", dtype="float32", cache=False)
    data = [pickle.dumps(generate.text(loaded)), pickle.dumps(generate.regex(loaded, "a+")), pickle.dumps(loaded)]
    monkeypatch.chdir("/")
    others = [pickle.loads(each) for each in data]
    assert others[2] is others[0].model is others[1].model is loaded
    text = others[0](PROMPT, max_tokens=4)
    del others, loaded
    import gc

    gc.collect()
    made: Any = pickle.loads(data[0])
    assert made(PROMPT, max_tokens=4) == text
    other = pickle.loads(data[1])
    assert other.model is made.model
    assert not other.model._has_cache


def test_weights_that_were_changed_since_they_were_loaded_do_not_travel(
    hugging_face: Any, tokenizer: Any, tmp_path: Path
) -> None:
    """Others would write what the folder's weights say; nor does what arrives get a model that was changed."""
    hugging_face("gpt2").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = models.transformers(str(tmp_path))
    generator = generate.text(loaded)
    text = generator(PROMPT, max_tokens=4)
    data, twin = pickle.dumps(generator), copy.deepcopy(loaded)
    with torch.no_grad():
        next(loaded.model.parameters()).mul_(-0.7)
    for each in (generator, loaded, copy.copy(loaded), copy.deepcopy(loaded)):
        with pytest.raises(OptionError, match=r"were changed since it was loaded, and are not sent; save it"):
            pickle.dumps(each)
    arrived: Any = pickle.loads(data)
    assert arrived(PROMPT, max_tokens=4) == text and arrived.model is not loaded
    assert pickle.loads(pickle.dumps(twin)) is arrived.model


def test_copies_of_generators_are_copies(model: Any) -> None:
    generator = generate.choice(model, ["cat", "dog"])
    assert copy.copy(generator).guide is generator.guide and copy.copy(generator).model is model


def test_what_a_generator_does_not_have() -> None:
    generator: Any = pickle.loads(pickle.dumps(generate.text(models.ziplm(TEXT))))
    with pytest.raises(AttributeError, match="nothing"):
        _ = generator.nothing
    assert isinstance(structure_of(Point).convert('{"x": 1}'), Point)


@pytest.mark.slow
def test_another_process(model: Any, tmp_path: Path) -> None:
    """All at once, in a process that has none of it; what tests define does not go there."""
    own = ("own", "Enum", "choice of an Enum", "json of a type", "json of a function", "several spans")
    names = [name for name in MAKERS if name not in own]
    generators = [MAKERS[name](model) for name in names]
    (tmp_path / "generators").write_bytes(pickle.dumps(generators))
    code = (
        "import pickle, sys\n"
        "generators = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert not any('model' in vars(g) for g in generators)\n"
        f"results = [[(e.text, e.token_ids, e.score) for e in g.run([{PROMPT!r}, 'a dog '], max_tokens=60, seed=5,\n"
        "    logprobs=True)] for g in generators]\n"
        "assert len({id(g.model) for g in generators}) == 1\n"
        "pickle.dump(results, open(sys.argv[2], 'wb'))\n"
    )
    out = tmp_path / "results"
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "generators"), str(out)], check=True)
    found = pickle.loads(out.read_bytes())
    assert found == [[(each[0], each[2], each[5]) for each in told(generator)] for generator in generators]
