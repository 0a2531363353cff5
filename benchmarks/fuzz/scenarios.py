"""What is interrupted: guides of all kinds, made and used, and generation; each with the answers that must stand."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

TEXTS, TOKENS = 3, 10

Answers = list[tuple[list[int], list[tuple[bytes, bool, int, bytes]]]]
Make = Callable[[str], Any]


@dataclass
class Scenario:
    """act: what is interrupted, given what `prepare` made; guides: those that it leaves behind.

    make: another guide of the same constraint, the tag being the same for those that may share what they remember
    """

    name: str
    make: Make
    prepare: Callable[[], Any]
    act: Callable[[Any], Any]
    answers: Answers = field(default_factory=list)
    check: Callable[[Any], str] | None = None

    def guides(self, prepared: Any) -> list[Any]:
        """The guides that were made before the interruption."""
        return [] if prepared is None or not hasattr(prepared, "mask") else [prepared]


def recorded(guide: Any) -> Answers:
    """What a guide says along some texts."""
    from trellm.guides import mask_within
    from trellm.guides.laws import walk

    random = Random(0)
    paths = [[token for _, token in walk(guide, random, TOKENS)][:-1] for _ in range(TEXTS)]
    found: Answers = []
    for path in paths:
        said: list[tuple[bytes, bool, int, bytes]] = []
        state = guide.start
        for token in [*path, None]:
            distance = guide.distance(state)
            within = mask_within(guide, state, distance + 1).tobytes()
            said.append((guide.mask(state).tobytes(), guide.is_accepting(state), distance, within))
            if token is not None:
                state = guide.advance(state, token)
        found.append((path, said))
    return found


def differences(guide: Any, answers: Answers) -> str:
    """Where a guide says something else; empty if it does not."""
    from trellm.guides import mask_within

    for path, said in answers:
        state = guide.start
        for at, (mask, accepting, distance, within) in enumerate(said):
            place = f"after {path[:at]}"
            if guide.mask(state).tobytes() != mask:
                return f"another mask {place}"
            if guide.is_accepting(state) != accepting or guide.distance(state) != distance:
                return f"another distance {place}: {guide.distance(state)}, not {distance}"
            if mask_within(guide, state, distance + 1).tobytes() != within:
                return f"another mask within {distance + 1} {place}"
            if at < len(path):
                state = guide.advance(state, path[at])
                if state == -1:
                    return f"token {path[at]} leads nowhere {place}"
    return ""


def makers(vocabulary: Any, sparse: Any) -> dict[str, Make]:
    """Guides of all kinds by name; sparse: a vocabulary that lacks bytes."""
    from trellm.guides import (
        AlignedGuide,
        CFGGuide,
        ChoiceGuide,
        FreeGuide,
        GoalGuide,
        JSONGuide,
        RegexGuide,
        SubstringGuide,
    )

    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer", "maximum": 99}, "b": {"enum": ["x", "yy", None]},
        "c": {"items": {"type": "string", "maxLength": 3}}},
        "required": ["a", "b"],
    }  # fmt: skip
    grammar = 'start: e\ne: e "+" e | "(" e ")" | NUMBER | "x" start?\nNUMBER: /[0-9]+/'
    return {
        "regex": lambda tag: RegexGuide(r"(?!foo)[a-f]{2,7}(\d+|é\b)(?=x|y)[xyz]", vocabulary),
        "sparse regex": lambda tag: RegexGuide("(ab|cd)*[0-9]{2,5}", sparse),
        "json": lambda tag: JSONGuide({**schema, "title": tag}, vocabulary),
        "json text": lambda tag: JSONGuide(json.dumps({**schema, "title": tag}), vocabulary, order="schema"),
        "sparse json": lambda tag: JSONGuide({"type": "array", "items": {"type": "integer"}, "title": tag}, sparse),
        "grammar": lambda tag: CFGGuide(grammar, vocabulary),
        "choices": lambda tag: ChoiceGuide(["yes", "no", "never", "été"], vocabulary),
        "quotation": lambda tag: SubstringGuide("the cat sat on the mat. The dog ran.", vocabulary, none_text="none"),
        "quotation with limits": lambda tag: SubstringGuide(["a b c d e", "x y a b"], vocabulary, min_chars=3,
        max_chars=5),
        "quotation in json": lambda tag: JSONGuide({"x-quote": "c", "title": tag}, vocabulary,
        contexts={"c": "one two three"}),
        "goals": lambda tag: GoalGuide(RegexGuide("[a-d ]{3,9}", vocabulary), ["ab", "c d"]),
        "free goals": lambda tag: GoalGuide(FreeGuide(vocabulary), ["ab", "cd"]),
        "healed regex": lambda tag: AlignedGuide(RegexGuide("[a-c]{2,4}x", vocabulary), b"ab a"),
        "healed json": lambda tag: AlignedGuide(JSONGuide({**schema, "title": tag}, vocabulary), b'{"'),
    }  # fmt: skip


def use(guide: Any) -> None:
    """Ask a guide all that it can be asked."""
    from trellm.guides.explain import expected

    recorded(guide)
    state = guide.start
    expected(guide, state)
    guide.read(state, b"ab")


def scenarios() -> list[Scenario]:
    """All of them, with the answers of guides that nothing has touched."""
    from trellm import Vocabulary

    vocabulary = Vocabulary.from_bytes()
    long = Vocabulary([*vocabulary.tokens[:256], b"aa", b"ab", b'{"', b'":', b"the ", b" cat", b"a b", None], [263])
    crowded = Vocabulary(long.tokens, [263])
    sparse = Vocabulary([*(bytes([byte]) for byte in range(32, 127)), b"ab", b"12", None], [97])
    found: list[Scenario] = []
    for name, make in makers(long, sparse).items():
        answers = recorded(make("reference"))
        found.append(Scenario(f"making: {name}", make, lambda: None, lambda _, make=make: make("same"), answers))
        found.append(Scenario(f"using: {name}", make, lambda make=make: make("same"), use, answers))
        found.append(Scenario(f"going on: {name}", make, lambda make=make: _used(make("same")), use, answers))
        if hasattr(getattr(make("reference"), "automaton", None), "collect"):
            found.append(
                Scenario(f"collecting: {name}", make, lambda make=make: _used(make("same")), _collect, answers)
            )
    for name, make in makers(crowded, sparse).items():
        if name in ("regex", "json", "grammar", "quotation", "goals", "healed regex"):
            answers = recorded(make("evicting reference"))
            found.append(
                Scenario(f"evicting: {name}", make, lambda make=make: _evicting(make("evicting")), use, answers)
            )
    found += _complete(long)
    found += _generating(vocabulary)
    return found


def _used(guide: Any) -> Any:
    recorded(guide)
    return guide


def _collect(guide: Any) -> None:
    guide.automaton.collect()
    recorded(guide)


def _evicting(guide: Any) -> Any:
    """A guide whose table of masks has room for few."""
    guide.table.max_rows = 8
    return guide


def _complete(vocabulary: Any) -> list[Scenario]:
    """Computing all masks, saving and loading."""
    from trellm.guides import RegexGuide

    pattern = "[a-c]{1,4}x|é+"

    def make(tag: str) -> Any:
        return RegexGuide(pattern, vocabulary)

    folder = tempfile.mkdtemp(prefix="guides")
    saved = Path(folder) / "saved.safetensors"
    make("").save(saved)
    answers = recorded(make(""))

    def save(guide: Any) -> None:
        guide.save(Path(folder) / "again.safetensors")

    return [
        Scenario("precompiling", make, lambda: make(""), lambda guide: guide.precompile(), answers),
        Scenario("saving", make, lambda: make(""), save, answers),
        Scenario("loading", make, lambda: None, lambda _: RegexGuide.load(saved, vocabulary), answers),
        Scenario("drawing", make, lambda: make(""), lambda guide: guide.to_svg(tokens=True), answers),
    ]


def _generating(vocabulary: Any) -> list[Scenario]:
    """Calls of generators, in batches, with beams, goals and healing."""
    import numpy as np
    from trellm import Beam, Sample, generate, models
    from trellm.errors import TrellmError

    tokens = Vocabulary_of_pairs(vocabulary)
    model = models.from_function(lambda ids: np.cos(np.arange(tokens.size) * (1.3 + sum(ids) % 7)), tokens)
    prompts = ["p ", "q a", "a"]
    options: dict[str, dict[str, Any]] = {
        "greedy": {},
        "samples": {"search": Sample(n=2), "seed": 1},
        "beams": {"search": Beam(2, n=2)},
        "goals": {"include": ["ab"]},
    }
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    found: list[Scenario] = []
    for kind, make in {
        "regex": lambda: generate.regex(model, "[ab ]{3,12}"),
        "json": lambda: generate.json(model, {**schema, "title": "generated"}),
        "extract": lambda: generate.extract(model, "a b ab aab. b a"),
    }.items():
        for how, given in options.items():
            if how == "goals" and kind == "json":
                continue

            def act(generator: Any, given: dict[str, Any] = given) -> Any:
                return generator(prompts, max_tokens=24, **given)

            expected = repr(act(make()))

            def check(generator: Any, act: Any = act, make: Any = make, expected: str = expected) -> str:
                for each in (generator, make()):
                    try:
                        said = repr(act(each))
                    except TrellmError:
                        if each is generator:  # which may say that it is broken, but only itself
                            continue
                        raise
                    if said != expected:
                        return f"generates {said[:200]}, not {expected[:200]}"
                return ""

            found.append(Scenario(f"generating: {kind}, {how}", lambda tag: None, make, act, [], check))
    return found


def Vocabulary_of_pairs(vocabulary: Any) -> Any:  # noqa: N802
    from trellm import Vocabulary

    return Vocabulary([*vocabulary.tokens[:256], b"a ", b"ab", b" a", None], [259])
