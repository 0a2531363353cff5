"""Hints: known patterns of a model forced away from its choice, with advice."""

from __future__ import annotations

import codecs
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any, Literal

from ...guides import AlignedGuide, RegexGuide
from ...guides.explain import quoted
from ...guides.protocol import DEAD, Guide
from ...guides.required_content import GoalGuide, Phrase
from ..search import FinishReason
from .step import Bias, Step, late

Kind = Literal["budget", "stop", "whitespace", "case", "spelling", "preface", "word", "digit", "sampling"]

LOW_MASS = 0.5
LOST_MASS = 0.05
"""Feasible mass below which the constraint may decide the answer against the model: see docs/answers.md."""
LATE_MASS = 0.1
WANTED = 0.2
SIMILAR = 0.75
_SHOWN = 6
_LATE = (
    "after its first tokens the masks left this text {mass:.2g} of its probability, so that masked sampling may "
    "deviate from the model's own distribution: sample 16 with diagnostics=True and search=Sample(n=16) to measure it, "
    "or use search=Exact()"
)

_INSIDE = "the text has {phrase} inside a word, {word}: Phrase({phrase}, word=True) requires a separate word"
_LETTER = r"[^\W\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u9fff\uf900-\uffef\U00020000-\U0003ffff]"
"""A word character, except in scripts without spaces between words."""
_OTHER_DIGIT = (
    "\\d in the pattern matches digits of any script, as in Python's re, and the text has {digit}: write [0-9], or use "
    "the flag a"
)

_HEADLINES: dict[Kind, str] = {
    "budget": "the budget cut the text short",
    "stop": "the model wanted to stop earlier",
    "whitespace": "the model wanted other white space",
    "case": "the model wanted another case",
    "spelling": "the model wanted another spelling",
    "preface": "the model wanted to say something before the answer",
}
_ADVICE: dict[Kind, str] = {
    "budget": "raise max_tokens",
    "stop": "let the text end there: make what follows optional",
    "whitespace": 'allow it: whitespace="any" or "pretty" for JSON, \\s* in a pattern, a space before a choice',
    "case": "write the constraint as the model does, or ignore case (the flag i of a pattern)",
    "spelling": "use the model's spelling, or add it as an alternative",
    "preface": "allow it: frame=('The answer is \"', '\"'), frame=\"sentence\" or after=; or end the prompt with it",
}


@dataclass(frozen=True)
class Hint:
    """A recognised pattern. kind: its name; positions: the tokens concerned; text: the advice"""

    kind: Kind
    positions: tuple[int, ...]
    text: str

    def __str__(self) -> str:
        return self.text


def hints(
    steps: Sequence[Step], guide: Guide | None, finish: FinishReason, bias: Bias | None = None
) -> tuple[Hint, ...]:
    """Return the recognised patterns of a text. Each step counts only for its most specific one.

    bias: estimate from all samples of the prompt, which replaces the step's own in the sampling hint
    """
    by_kind: dict[Kind, list[Step]] = {}
    for step in steps:
        if not step.leading_allowed and step.feasible_mass < LOW_MASS and step.leading_probability >= WANTED:
            kind = _kind(steps, step, guide)
            if kind is not None:
                by_kind.setdefault(kind, []).append(step)
    if finish == "length" and steps:
        by_kind.setdefault("budget", []).append(steps[-1])
    return (
        *(Hint(kind, tuple(step.position for step in found), _words(kind, found)) for kind, found in by_kind.items()),
        *_about_text(steps, guide.child if isinstance(guide, AlignedGuide) else guide),
        *_sampling(steps, bias),
    )


def warning(steps: Sequence[Step], guide: Guide | None) -> str | None:
    """Return a line on the step where the constraint may have overruled the model; None if there is none.

    It is the step of least feasible mass with a choice, a different leading token and a mass below `LOST_MASS`. Steps
    that differ only in white space do not count.
    """
    candidates = [
        step for step in steps if not step.leading_allowed and not step.forced and step.feasible_mass < LOST_MASS
    ]
    found: list[tuple[Step, Kind | None]] = [
        (step, kind)
        for step in candidates
        if (kind := _kind(steps, step, guide)) != "whitespace"
        and (step.leading_token is None or step.leading_token.strip())
    ]
    if not found:
        return None
    step, kind = min(found, key=lambda each: each[0].log_feasible_mass)
    advice = (
        "allow it: a wider constraint, a frame (frame=) or free text first (after=)" if kind is None else _ADVICE[kind]
    )
    return (
        f"token {step.position}: the model wanted {_example(step)}; the constraint left {step.feasible_mass:.2g} of "
        f"its probability: {advice}"
    )


def _about_text(steps: Sequence[Step], guide: Guide | None) -> Iterator[Hint]:
    """Yield hints on text that meets the constraint in an unintended way."""
    if not isinstance(guide, (GoalGuide, RegexGuide)):
        return
    text, positions = _text(steps, guide)
    if isinstance(guide, GoalGuide):
        for goal in guide.goals:
            if isinstance(goal, Phrase) and isinstance(goal.text, str) and not goal.word:
                yield from _inside_words(text, positions, goal.text)
        guide = guide.child
    if isinstance(guide, RegexGuide) and _asks_for_any_digit(guide):
        found = next((place for place in re.finditer(r"\d", text) if not place[0].isascii()), None)
        if found is not None:
            yield Hint("digit", (positions[found.start()],), _OTHER_DIGIT.format(digit=quoted(found[0])))


def _asks_for_any_digit(guide: RegexGuide) -> bool:
    has_class = re.search(r"(?<!\\)(?:\\\\)*\\d", guide.pattern) is not None
    return has_class and guide.dialect == "python" and not guide.flags & re.ASCII


def _inside_words(text: str, positions: Sequence[int], phrase: str) -> Iterator[Hint]:
    """Yield a hint if a phrase occurs only inside words."""
    found = [*re.finditer(re.escape(phrase), text)]
    words = [_word_around(text, *place.span()) for place in found]
    if words and all(words):
        where = (positions[found[0].start()],)
        yield Hint("word", where, _INSIDE.format(phrase=repr(phrase), word=quoted(words[0])))


def _word_around(text: str, begin: int, end: int) -> str:
    """Return the word that contains a match; "" if it is a whole word or lies between words."""
    before = re.search(f"{_LETTER}*$", text[:begin]) if re.match(_LETTER, text[begin:]) else None
    behind = re.match(f"{_LETTER}*", text[end:]) if re.search(f"{_LETTER}$", text[:end]) else None
    more = before[0] if before else "", behind[0] if behind else ""
    return f"{more[0]}{text[begin:end]}{more[1]}" if any(more) else ""


def _text(steps: Sequence[Step], guide: Guide) -> tuple[str, list[int]]:
    """Return the text of the tokens, and for each character the position of the token that completes it."""
    text, positions, decoder = "", list[int](), codecs.getincrementaldecoder("utf-8")("replace")
    for step in steps:
        more = "" if step.ends else decoder.decode(guide.vocabulary.tokens[step.token_id] or b"")
        text += more
        positions += [step.position] * len(more)
    return text, positions


def _sampling(steps: Sequence[Step], bias: Bias | None) -> Iterator[Hint]:
    """Yield a hint if masked sampling is far from the model's own distribution."""
    found = late(steps)
    if found is None:
        return
    mass, positions = found
    if bias is None and mass < math.log(LATE_MASS):
        yield Hint("sampling", positions, _LATE.format(mass=math.exp(mass)))
    elif bias is not None and bias.is_far:
        yield Hint("sampling", positions, bias.advice)


def _kind(steps: Sequence[Step], step: Step, guide: Guide | None) -> Kind | None:
    wanted = step.leading_token
    if step.leading_ends:
        return "stop"
    if wanted is None or guide is None or step.ends:
        return None
    if guide.advance(step.state, step.leading_token_id) != DEAD:
        return "budget"
    got = _following(steps, step, len(wanted))
    for kind, recognised in _PATTERNS:
        if recognised(wanted, got, lambda text: _may_follow(guide, step.state, text)):
            return kind
    before = "".join(earlier.token or "" for earlier in steps[: step.position])
    return "preface" if not before.strip() and any(map(str.isalpha, wanted)) else None


def _following(steps: Sequence[Step], step: Step, length: int) -> str:
    """Return the text written in place of a wanted text of `length`, with some characters more."""
    got = ""
    for later in steps[step.position :]:
        got += later.token or ""
        if len(got) > 2 * length + 8:
            break
    return got


def _may_follow(guide: Guide, state: int, text: str) -> bool:
    read: Any = getattr(guide, "read", None)
    return bool(text) and read is not None and read(state, text.encode()) != DEAD


Allows = Callable[[str], bool]


def _is_spacing(wanted: str, got: str, allows: Allows) -> bool:
    bare = wanted.lstrip()
    if not bare:
        return True
    if bare != wanted:
        return allows(bare) or got.startswith(bare)
    return got[:1].isspace() and got.lstrip().startswith(bare)


def _is_casing(wanted: str, got: str, allows: Allows) -> bool:
    for text in (wanted, wanted.lstrip()):
        variants = {text.lower(), text.upper(), text.title(), text.swapcase()} - {text}
        if got[: len(text)].casefold() == text.casefold() or any(map(allows, variants)):
            return True
    return False


def _is_spelling(wanted: str, got: str, allows: Allows) -> bool:
    letters, others = _letters(wanted), _letters(got)
    if not letters:
        return False
    return others.startswith(letters) or any(
        SequenceMatcher(None, letters, others[:length]).ratio() >= SIMILAR
        for length in range(max(2, len(letters) - 1), len(letters) + 2)
    )


def _letters(text: str) -> str:
    return re.sub(r"[\W_]", "", text).casefold()


_PATTERNS: tuple[tuple[Kind, Callable[[str, str, Allows], bool]], ...] = (
    ("whitespace", _is_spacing),
    ("case", _is_casing),
    ("spelling", _is_spelling),
)


def _words(kind: Kind, found: Sequence[Step]) -> str:
    clearest = min(found, key=lambda step: step.log_feasible_mass)
    return f"{_HEADLINES[kind]} at {_places(found)} ({_example(clearest)}): {_ADVICE[kind]}"


def _places(found: Iterable[Step]) -> str:
    positions = [str(step.position) for step in found]
    more = f" and {len(positions) - _SHOWN} more" if len(positions) > _SHOWN else ""
    return f"token{'s' * (len(positions) > 1)} {', '.join(positions[:_SHOWN])}{more}"


def _example(step: Step) -> str:
    if step.leading_token_id == step.token_id:
        return f"it ends in {quoted(step.name)}"
    wanted = _shown(step.leading_token, step.leading_name)
    return f"{wanted} {step.leading_probability:.2f}, got {_shown(step.token, step.name)}"


def _shown(text: str | None, name: str) -> str:
    return name if text is None else quoted(text)
