"""Goals as frozen specifications, validated when they are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import index
from types import EllipsisType
from typing import Any, Protocol, runtime_checkable

from ...checks import brief, check_any_text, check_bool, items_of
from ...errors import LimitError, OptionError
from ..arguments import check_bytes

MAX_PARTS = 20_000


@dataclass(frozen=True, init=False, repr=False)
class Phrase:
    """These characters somewhere in the text, in any tokens.

    text: a string, bytes, or token ids, which stand for the bytes that they spell
    word: no letter, digit or underscore may be adjacent to it (the prompt does not count)
    """

    text: str | bytes | tuple[int, ...]
    word: bool

    def __init__(self, text: str | bytes | Sequence[int], word: bool = False) -> None:
        value = _phrase(text)
        object.__setattr__(self, "text", value)
        object.__setattr__(self, "word", check_bool(word, "Phrase: word"))

    def __repr__(self) -> str:
        text = list(self.text) if isinstance(self.text, tuple) else self.text
        return f"Phrase({text!r}, word=True)" if self.word else f"Phrase({text!r})"


@dataclass(frozen=True, repr=False)
class Gap:
    """Any characters between two parts of a `Template`.

    min_words, max_words: bounds of the number of words, which white space separates; max_words None for no bound
    max_chars: the most characters; None for no bound
    """

    min_words: int = 0
    max_words: int | None = None
    max_chars: int | None = None

    def __post_init__(self) -> None:
        for name in ("min_words", "max_words", "max_chars"):
            value = getattr(self, name)
            if not (value is None and name != "min_words") and (type(value) is not int or value < 0):
                raise OptionError(f"Gap: {name}={brief(value)}: expected a whole number of at least 0")
        if self.max_words is not None and self.max_words < self.min_words:
            raise OptionError(f"{self!r}: max_words is less than min_words")
        if self.max_chars is not None and self.max_chars < 2 * self.min_words - 1:
            raise OptionError(f"{self!r}: max_chars is too small for min_words")

    def __repr__(self) -> str:
        changed = (f"{name}={value}" for name, value in vars(self).items() if value != getattr(Gap, name))
        return f"Gap({', '.join(changed)})"


@dataclass(frozen=True, init=False, repr=False)
class AnyOf:
    """At least one of several goals. word: treat strings among them as phrases with `word=True`"""

    goals: tuple[Goal, ...]

    def __init__(self, *goals: Goal | str, word: bool = False) -> None:
        object.__setattr__(self, "goals", _parts("AnyOf", goals, word))

    def __repr__(self) -> str:
        return _shown("AnyOf", self.goals)


@dataclass(frozen=True, init=False, repr=False)
class Ordered:
    """Several goals, each after the end of the previous one, with anything between them. word: as for `AnyOf`"""

    goals: tuple[Goal, ...]

    def __init__(self, *goals: Goal | str, word: bool = False) -> None:
        object.__setattr__(self, "goals", _parts("Ordered", goals, word))

    def __repr__(self) -> str:
        return _shown("Ordered", self.goals)


@dataclass(frozen=True, init=False, repr=False)
class Template:
    """Parts that follow each other, with gaps: `Template("the", ..., "School of", Gap(max_words=3), "in")`.

    parts: strings and other goals, gaps with bounds, and `...` for gaps of any length; the first and the last part are
        no gaps. Parts without a gap between them are adjacent
    word: treat strings among them as phrases with `word=True`, so that gaps begin and end at word boundaries
    """

    parts: tuple[Goal | Gap, ...]

    def __init__(self, *parts: Goal | Gap | EllipsisType | str, word: bool = False) -> None:
        read = tuple(_template_part(part, word) for part in parts)
        if all(isinstance(part, Gap) for part in read):
            raise OptionError(f"{_shown('Template', read)} has no literal part; give it at least one text")
        if isinstance(read[0], Gap) or isinstance(read[-1], Gap):
            raise OptionError(
                f"{_shown('Template', read)} begins or ends with a gap, which has no effect; leave it out"
            )
        object.__setattr__(self, "parts", read)

    def __repr__(self) -> str:
        return _shown("Template", self.parts)


@dataclass(frozen=True, init=False, repr=False)
class AllOf:
    """Several goals in any order, overlapping or not; the same as a list of them. word: as for `AnyOf`"""

    goals: tuple[Goal, ...]

    def __init__(self, *goals: Goal | str, word: bool = False) -> None:
        if not goals:
            raise OptionError("AllOf() is empty; give it at least one goal")
        object.__setattr__(self, "goals", tuple(goal_of(_worded("AllOf", goal, word)) for goal in goals))

    def __repr__(self) -> str:
        return _shown("AllOf", self.goals)


@runtime_checkable
class CustomGoal(Protocol):
    """A goal defined by the caller: any hashable object with this method. It may be nested in `AllOf` only."""

    def automaton(self) -> tuple[Any, Any]:
        """Return the automaton over the bytes of the text, with start state 0: `after` and `met`.

        after: the state after each byte, integers [states, 256]; met: bool [states], whether a text that ends there
        meets the goal
        """
        ...


Goal = Phrase | AnyOf | Ordered | Template | AllOf | CustomGoal


def goal_of(goal: Any) -> Goal:
    """Return the goal, or the phrase of a string. Raises OptionError."""
    if isinstance(goal, (Phrase, AnyOf, Ordered, Template, AllOf)):
        return goal
    if isinstance(goal, str):
        return Phrase(goal)
    if isinstance(goal, CustomGoal) and not isinstance(goal, type):
        if getattr(goal, "__hash__", None) is None:
            raise OptionError(f"{brief(goal)} is a goal that cannot be hashed; make its class a frozen dataclass")
        return goal
    if goal is Ellipsis or isinstance(goal, Gap):
        raise OptionError("gaps belong between the parts of a Template")
    if isinstance(goal, (list, tuple)):
        raise OptionError(
            f"{brief(goal)} is no goal; a phrase by its token ids is Phrase({brief(goal)}), "
            "one of several is AnyOf(...)"
        )
    raise OptionError(
        f"{brief(goal)} ({type(goal).__name__}) is no goal; goals are strings, Phrase, AnyOf, Ordered, "
        "Template and AllOf"
    )


def goals_of(include: Any) -> tuple[Goal, ...]:
    """Return the goals of `include=` as a flat tuple: AllOf is flattened, duplicates are dropped.

    include: a goal, or several in a list or tuple; strings stand for phrases. Raises OptionError.
    """
    several: list[Any] = [*include] if isinstance(include, (list, tuple)) else [include]
    if several and all(isinstance(goal, int) for goal in several):
        raise OptionError(f"include={brief(include)}: a phrase by its token ids is Phrase({brief(several)})")
    found: list[Goal] = []
    pending = [goal_of(goal) for goal in reversed(several)]
    _check_size(pending)
    known: set[Goal] = set()
    while pending:
        goal = pending.pop()
        if isinstance(goal, AllOf):
            pending += reversed(goal.goals)
        elif not _is_known(goal, known):
            known.add(goal)
            found.append(goal)
    return tuple(found)


def _check_size(goals: Sequence[Goal]) -> None:
    """Raise LimitError if goals have too many parts; shared parts count each time.

    The cost of comparing goals, and the sizes of their automata, grow with this number.
    """
    sizes: dict[int, int] = {}
    pending: list[Any] = list(goals)
    while pending:
        part = pending[-1]
        inner: Sequence[Any] = part.parts if isinstance(part, Template) else ()
        if isinstance(part, (AnyOf, Ordered, AllOf)):
            inner = part.goals
        unknown = [each for each in inner if id(each) not in sizes]
        if unknown:
            pending += unknown
            continue
        sizes[id(pending.pop())] = 1 + sum(sizes[id(each)] for each in inner)
    size = sum(sizes[id(goal)] for goal in goals)
    if size > MAX_PARTS:
        raise LimitError(f"the goals have {size:,} parts; the fixed limit is {MAX_PARTS:,}: ask for fewer")


def _is_known(goal: Goal, known: set[Goal]) -> bool:
    try:
        return goal in known
    except RecursionError:
        raise OptionError("a goal is nested deeper than the rest of Python's stack allows; use fewer levels") from None


def _phrase(text: Any) -> str | bytes | tuple[int, ...]:
    if isinstance(text, str):
        value: str | bytes | tuple[int, ...] = check_any_text(text, "a phrase")
    elif isinstance(text, bytes):
        value = check_bytes(text)
    else:
        try:
            value = tuple(map(index, text))
        except TypeError:
            raise OptionError(f"Phrase({brief(text)}): a text or token ids, not {type(text).__name__}") from None
    if not value:
        raise OptionError("an empty phrase has no effect; leave it out, or give it at least one character")
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise OptionError(
                f"the phrase {brief(value)} has a lone surrogate at character {error.start}, which no text can have"
            ) from None
    return value


def _parts(name: str, goals: Sequence[Any], word: Any) -> tuple[Goal, ...]:
    """Convert the goals nested in another one."""
    if len(goals) == 1 and (several := items_of(goals[0])) and not all(isinstance(each, int) for each in several):
        goals = several  # a list of token ids is not several goals
    if not goals:
        raise OptionError(f"{name}() is empty; give it at least one goal")
    return tuple(_inner(name, goal, word) for goal in goals)


def _template_part(part: Any, word: Any) -> Goal | Gap:
    if part is Ellipsis:
        return Gap()
    return part if isinstance(part, Gap) else _inner("Template", part, word)


def _worded(name: str, goal: Any, word: Any) -> Any:
    """Convert a string to a phrase. word: whether the phrase keeps word boundaries"""
    keeps = check_bool(word, f"{name}: word")
    return Phrase(goal, keeps) if isinstance(goal, str) else goal


def _inner(name: str, goal: Any, word: Any) -> Goal:
    read = goal_of(_worded(name, goal, word))
    if not isinstance(read, (Phrase, AnyOf, Ordered, Template)):
        raise OptionError(f"{read!r} cannot be inside {name}(...); make it another goal of include")
    return read


def _shown(name: str, parts: Sequence[Any]) -> str:
    return f"{name}({', '.join(map(_shown_part, parts))})"


def _shown_part(part: Any) -> str:
    if part == Gap():
        return "..."
    is_string = isinstance(part, Phrase) and isinstance(part.text, str) and not part.word
    return repr(part.text) if is_string else repr(part)
