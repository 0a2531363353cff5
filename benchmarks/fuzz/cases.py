"""The kinds of cases: what each makes, and how what came out of it is checked."""

from __future__ import annotations

import json
import re
import signal
import sys
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from random import Random
from typing import Any

from inputs import grammars, regexes, schemas
from inputs.corpus import Corpus
from inputs.damaged_files import damaged
from inputs.mutation import size, word
from inputs.option_sets import option_set
from probe import Probe, Walk, Wrong

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from json_walks import first_error, number, whole

TOKENS = 16
TEXTS = [
    "",
    "a",
    "the cat sat. The dog ran! ",
    "été 漢字 😀 x",
    'say "hi" \\ now',
    "1,000.5 a-b\n\n c",
    "aaaa" * 9,
    "ab" * 40,
]


class Case:
    """One case: its kind and what it is made of, in words, once `run` has begun."""

    def __init__(self, corpus: Corpus, vocabularies: list[Any], seed: str, kinds: list[str], unknown: bool) -> None:
        self.random = Random(seed)
        self.kind = self.random.choices(kinds, [KINDS[kind][0] for kind in kinds])[0]
        self.corpus = corpus
        self.vocabulary = self.random.choice(vocabularies)
        self.unknown = unknown
        self.shown = ""
        self.given: Any = None
        self.replacement: Any = None

    def run(self, probe: Probe) -> None:
        """Make the constraint, walk through it, and check the text."""
        KINDS[self.kind][1](self, probe)

    def text(self, probe: Probe, guide: Any) -> str | None:
        """A text of a guide for UTF-8, if its end is near."""
        data = self.walk(probe, guide)
        try:
            return None if data is None else data.decode()
        except UnicodeDecodeError as error:
            raise Wrong(f"the text is no UTF-8: {data!r:.200}") from error

    def walk(self, probe: Probe, guide: Any) -> bytes | None:
        """A text of a guide, if its end is near."""
        probe.made = True
        return Walk(probe, guide, self.random, self.unknown).run(self.random.choice([0, 3, TOKENS, TOKENS]))

    def note(self, given: Any, *beside: Any) -> Any:
        """Remember what the case is made of; the same, or what stands in for it."""
        if self.replacement is not None:
            given = self.replacement
        self.given = given
        self.shown = ", ".join(shown(each) for each in (given, *beside))
        return given


def shown(value: Any, most: int = 1500) -> str:
    """A value in Python's notation, cut short."""
    try:
        text = repr(value)
    except (RecursionError, ValueError) as error:
        text = f"<{type(error).__name__}: {error}>"
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 3 :]} ({len(text):,} characters)"


def regex_parts(case: Case) -> tuple[str, int, Any]:
    """A random pattern, flags and dialect."""
    random = case.random
    dialect = random.choice(["python", "python", "ecma"])
    flags = random.choice([0, 0, 0, 0, 0, re.I, re.S, re.M, re.I | re.S])
    if random.random() < 0.1:
        flags = random.choice([re.X, re.A, random.randrange(512)])
    return regexes.pattern(random, case.corpus.patterns, dialect == "ecma"), int(flags), dialect


def run_regex(case: Case, probe: Probe) -> None:
    """A random pattern; texts match it as `re` means it."""
    from trellm.guides import RegexGuide

    pattern, flags, dialect = regex_parts(case)
    pattern = case.note(pattern, flags, dialect)
    guide = probe.call(RegexGuide, pattern, case.vocabulary, flags, dialect)
    text = case.text(probe, guide)
    if text is None or dialect == "ecma" or len(text) > 200:
        return
    with oracle():
        if re.fullmatch(pattern, text, flags) is None:
            raise Wrong(f"re does not match {text!r}")


def run_schema(case: Case, probe: Probe) -> None:
    """A random schema; texts are instances, as `jsonschema` means it."""
    from jsonschema import Draft202012Validator
    from jsonschema.validators import validator_for
    from trellm.guides import JSONGuide

    schema = schemas.schema(case.random, case.corpus.schemas)
    options = schemas.options(case.random)
    schema = case.note(schema, options)
    guide = probe.call(JSONGuide, schema, case.vocabulary, **options)
    text = case.text(probe, guide)
    if text is None:
        return
    twice: list[str] = []
    rounded: list[str] = []

    def fraction(written: str) -> float:
        value = number(written)
        if Fraction(value) != Fraction(written):
            rounded.append(written)
        return value

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            twice.append("a name")
        return dict(pairs)

    instance = json.loads(text, parse_float=fraction, parse_int=whole, object_pairs_hook=members)
    # What counts twice here, a parser keeps once; and the oracle calculates with rounded numbers.
    if twice or rounded:
        return
    if options.get("formats", True) and case.random.random() < 0.25 and not options.get("resources"):
        with oracle():
            given = json.loads(schema) if isinstance(schema, str) else schema
            validator_for(given, default=Draft202012Validator).check_schema(given)  # else it means what it likes
            found = first_error(given, instance)
            if found is not None:
                raise Wrong(f"jsonschema: {found.message[:200]} in {text[:300]!r}")


def run_lark(case: Case, probe: Probe) -> None:
    """A random grammar in Lark's language, sometimes with quotations."""
    from trellm.guides import CFGGuide

    grammar = grammars.lark(case.random, case.corpus.lark)
    contexts = {"c": case.random.choice(TEXTS)} if "quote" in grammar or case.random.random() < 0.02 else None
    grammar = case.note(grammar, contexts)
    case.text(probe, probe.call(CFGGuide, grammar, case.vocabulary, contexts=contexts))


def run_gbnf(case: Case, probe: Probe) -> None:
    """A random grammar in GBNF."""
    from trellm.guides import CFGGuide

    grammar = grammars.gbnf(case.random, case.corpus.gbnf)
    grammar = case.note(grammar)
    case.text(probe, probe.call(CFGGuide, grammar, case.vocabulary, syntax="gbnf"))


def run_quotation(case: Case, probe: Probe) -> None:
    """Quotations from random texts; they stand in them."""
    from trellm.guides import SubstringGuide

    random = case.random
    texts = [random.choice(TEXTS) + word(random, 30) for _ in range(random.choice([1, 1, 2, 5]))]
    options: dict[str, Any] = {
        "boundary": random.choice(["word", "character", "sentence", "line"]),
        "min_chars": max(1, size(random)) if random.random() < 0.3 else 1,
        "max_chars": size(random) if random.random() < 0.3 else None,
        "whitespace": random.choice(["exact", "exact", "collapsed"]),
        "none_text": word(random) if random.random() < 0.2 else None,
    }
    context = texts[0] if len(texts) == 1 else texts
    case.note(context, options)
    text = case.text(probe, probe.call(SubstringGuide, context, case.vocabulary, **options))
    if text is None or options["whitespace"] != "exact" or text == options["none_text"]:
        return
    if not any(text in each for each in texts):
        raise Wrong(f"{text!r} is no quotation")


def run_choices(case: Case, probe: Probe) -> None:
    """One of several random texts."""
    from trellm.guides import ChoiceGuide

    random = case.random
    many = random.choice([0, 1, 2, 5, 50]) if random.random() < 0.95 else 5000
    choices = [word(random, random.choice([3, 10, 100])) for _ in range(many)]
    case.note(choices)
    text = case.text(probe, probe.call(ChoiceGuide, choices, case.vocabulary))
    if text is not None and text not in choices:
        raise Wrong(f"{text!r} is no choice")


def small_guide(case: Case, probe: Probe) -> Any:
    """A guide for others to be built around."""
    from trellm.guides import CFGGuide, FreeGuide, JSONGuide, RegexGuide, SubstringGuide

    random, vocabulary = case.random, case.vocabulary
    kind = random.randrange(6)
    if kind == 0:
        return FreeGuide(vocabulary)
    if kind == 1:
        return probe.call(RegexGuide, random.choice([".*", "[ab ]{0,20}", "(?s).*", *regexes.KNOWN]), vocabulary)
    if kind == 2:
        return probe.call(JSONGuide, schemas.tree(random, 1), vocabulary)
    if kind == 3:
        return probe.call(CFGGuide, random.choice(grammars.LARK_KNOWN), vocabulary, contexts={"c": "a b"})
    if kind == 4:
        return probe.call(SubstringGuide, random.choice(TEXTS), vocabulary)
    return probe.call(RegexGuide, regexes.alternation(random, 2, False), vocabulary)


def run_goals(case: Case, probe: Probe) -> None:
    """A guide with random goals; texts meet them."""
    from trellm.guides import GoalGuide

    goals = [random_goal(case.random, 2) for _ in range(case.random.choice([1, 1, 2, 3, 8]))]
    case.note(goals)
    child = small_guide(case, probe)
    case.note(goals, child)
    guide = probe.call(GoalGuide, child, goals, max_states=case.random.choice([100, 5000, 100_000]))
    text = case.walk(probe, guide)
    if text is not None and guide.missing(text):
        raise Wrong(f"{text!r} does not meet {guide.missing(text)}")


def random_goal(random: Random, depth: int) -> Any:
    """A random goal, well formed or not."""
    from trellm import AllOf, AnyOf, Gap, Ordered, Phrase, Template
    from trellm.errors import OptionError

    text = random.choice(["a", "ab", "aba", " ", "é", word(random), word(random, 30)])
    kind = random.randrange(7) if depth else 0
    try:
        if kind < 2:
            return text
        if kind == 2:
            return Phrase(text, word=random.random() < 0.5)
        inside = [random_goal(random, depth - 1) for _ in range(random.choice([1, 2, 3]))]
        if kind == 3:
            gap = random.choice(
                [..., Gap(), Gap(0, 2), Gap(1, 3, random.choice([4, 8, 30])), Gap(max_chars=size(random))]
            )
            return Template(inside[0], gap, *inside[1:], "a")
        return random.choice([AnyOf, Ordered, AllOf])(*inside)
    except OptionError:
        return text


def run_healing(case: Case, probe: Probe) -> None:
    """A random prompt's end in front of a guide; texts begin with it."""
    from trellm.guides import AlignedGuide

    random = case.random
    tail = random.choice([word(random), word(random, 40)]).encode(errors="ignore") or random.randbytes(
        random.randint(0, 5)
    )
    case.note(tail)
    child = small_guide(case, probe)
    case.note(tail, child)
    counted = random.random() < 0.9
    guide = probe.call(AlignedGuide, child, tail, counts_tail=counted)
    probe.made = True
    if not counted:  # so that the laws of distances do not hold within the tail
        probe.call(guide.mask, guide.start)
        probe.call(guide.mask_within, guide.start, random.randint(0, 9))
        return
    text = case.walk(probe, guide)
    if text is not None and not text.startswith(tail):
        raise Wrong(f"{text!r} does not begin with {tail!r}")


def run_options(case: Case, probe: Probe) -> None:
    """A public function with arguments of right and wrong values and types."""
    name, function, arguments, named = option_set(case.random)
    case.note(name, arguments, named)
    probe.call(function, *arguments, **named)


def run_file(case: Case, probe: Probe) -> None:
    """A saved guide, or a tokenizer's file, with random changes to its bytes."""
    name, function, note = damaged(case.random)
    case.note(name, note)
    guide = probe.call(function)
    if guide is not None:
        case.walk(probe, guide)


class OracleGaveUp(Exception):  # noqa: N818
    """What the text is compared with takes too long."""


@contextmanager
def oracle() -> Generator[None]:
    """Ask what cannot be trusted with any input: for at most a second, and its own exceptions say nothing of us."""

    def ring(*_: object) -> None:
        raise OracleGaveUp

    old = signal.signal(signal.SIGPROF, ring)
    signal.setitimer(signal.ITIMER_PROF, 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except Wrong:
        raise
    except Exception:
        return  # an oracle's own failure is no verdict
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, old)


KINDS: dict[str, tuple[float, Callable[[Case, Probe], None]]] = {
    "regex": (25, run_regex),
    "schema": (28, run_schema),
    "lark": (13, run_lark),
    "gbnf": (6, run_gbnf),
    "quotation": (5, run_quotation),
    "choices": (3, run_choices),
    "goals": (1.5, run_goals),
    "healing": (6, run_healing),
    "options": (6, run_options),
    "file": (2, run_file),
}
"""How often each kind comes, and what runs it."""
