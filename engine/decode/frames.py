"""Frames: text before and after an answer that is not part of it, or a sentence that contains the answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...checks import brief, check_int, check_text, implements, items_of
from ...errors import LimitError, OptionError
from ...guides.automata.dfa import Dfa
from ...guides.healing import AlignedGuide
from ...guides.json_guide import JSONGuide
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide, Guide
from ...guides.regular_guide import ChoiceGuide, RegexGuide, RegularGuide
from ...guides.substring_guide import SubstringGuide
from ...guides.tagged.after_guide import MAX_FREE, AfterGuide
from ...guides.tagged.closed_guide import ClosedGuide
from ...guides.tagged.mention_guide import MentionGuide
from ...tokenizers_adapter.marked import token_of
from ..formats import NaturalSpelling
from ..models.protocol import Model, SourceModel

_EXAMPLE = """frame=('The answer is "', '"')"""

MAX_LOOKED_AT = 2000
MAX_NAMED = 1000
"""Greatest number of choices in a frame by default. The automaton of free text that names more is large."""
MAX_OF_FRAGMENT = 64
"""Greatest length in bytes of a pattern's texts for quotation marks, if the pattern also matches a sentence."""
MARKS = ('"', "**", "`")
"""Marks around quotations, best first by benchmarks/answers.py. The first one that no document contains is used."""
MAX_SENTENCE, MAX_REASONING = 48, 256
"""Tokens of sentences and of reasoning beyond the shortest answer, if `max_tokens` is not given."""
LEAD = "The answer is"
SENTENCE_LEAD = "So the answer is"
"""Default texts before answers; the best ones of benchmarks/answers.py."""
BLOCK = "```json\n"
"""Default text before objects and arrays. They end by themselves, so the code block needs no closing mark."""

_SCALARS = b'"-0123456789tfn'
"""First bytes of JSON values other than objects and arrays."""

FrameOption = Literal["auto", "sentence", "reasoning"]
IN_FREE_TEXT = ("sentence", "reasoning")


@dataclass(frozen=True, slots=True)
class Frame:
    """Text around an answer. `before` is read by the model as the start of its answer. `behind` is the closing mark,
    which the model writes in place of EOS. One of them may be empty. Raises OptionError.
    """

    before: str
    behind: str

    def __post_init__(self) -> None:
        check_text(self.before, "frame, the text before the answer")
        check_text(self.behind, "frame, the closing mark")
        if not self.before and not self.behind:
            raise OptionError(f"frame=('', ''): expected a text before the answer, one after it, or both: {_EXAMPLE}")

    def closed(self, guide: Guide, limits: Limits | None) -> Guide:
        """Return the guide followed by the closing mark. Raises OptionError, LanguageError."""
        if not self.behind:
            return guide
        if isinstance(guide, RegularGuide):
            _check_that_it_ends(guide, self.behind)
        return ClosedGuide(_read_by_bytes(guide), self.behind, limits=limits)

    def around(self, guide: Guide, limits: Limits | None) -> Guide:
        """Return the guide with the text before it and the closing mark after it, both written by the model.

        Raises OptionError, LanguageError.
        """
        closed = self.closed(guide, limits)
        return AlignedGuide(_read_by_bytes(closed), self.before.encode(), limits=limits) if self.before else closed

    def safe(self, text: bytes | bytearray) -> int:
        """Return the number of bytes of a text before a possible beginning of the closing mark."""
        mark = self.behind.encode()
        longest = min(len(mark), len(text))
        return len(text) - next((count for count in range(longest, 0, -1) if mark.startswith(text[-count:])), 0)

    def split(self, text: str) -> tuple[None, str]:
        """Return the free text, which is None here, and the answer in a text without `before`."""
        return None, text.removesuffix(self.behind)

    def within(self, text: str) -> str:
        """Return the answer in a text with `before` and `behind`."""
        return text.removeprefix(self.before).removesuffix(self.behind)


class Sentence:
    """A sentence, or free text, that names the answer.

    A sentence begins with "So the answer is", which the model reads, and the model writes the rest. Free text may have
    several lines, all written by the model, and its last answer counts.
    guide: guide of the answer
    natural: natural spelling of such answers
    is_last: True for free text

    Choices are also accepted in lower case, in upper case and with a capital first letter, unless that is another
    choice.
    Raises OptionError for a guide whose texts cannot be named: see `MentionGuide`.
    """

    behind = ""

    def __init__(
        self, guide: Any, natural: NaturalSpelling | None = None, limits: Limits | None = None, *, is_last: bool = False
    ) -> None:
        self.before, self.most = ("", MAX_REASONING) if is_last else (SENTENCE_LEAD, MAX_SENTENCE)
        if not isinstance(guide, RegularGuide) and natural is None:
            other = "free text" if guide is None else brief(guide)
            raise OptionError(
                f'frame="{IN_FREE_TEXT[is_last]}" needs a choice, a pattern, a format or a machine, not '
                f"{other}; give two texts, {_EXAMPLE}, or leave it out"
            )
        self.answer, named, self._written = guide, guide, _unchanged
        if natural is not None:
            named, self._written = RegexGuide(natural.pattern, guide.vocabulary, limits=limits), natural.written
        elif isinstance(guide, ChoiceGuide):
            spellings = _spellings(guide.choices)
            named, self._written = ChoiceGuide(spellings, guide.vocabulary, limits=limits), spellings.__getitem__
        self._naming = MentionGuide(named, is_last=is_last, limits=limits)

    def closed(self, guide: Guide, limits: Limits | None) -> Guide:
        """Return the guide of the sentence after its beginning."""
        return self._naming

    def around(self, guide: Guide, limits: Limits | None) -> Guide:
        """Return the guide of the whole sentence, with any beginning."""
        return self._naming

    def safe(self, text: bytes | bytearray) -> int:
        """Return 0: no byte of a partial text is certain to be part of the answer."""
        return 0

    def split(self, text: str) -> tuple[str, str]:
        """Return the free text before the answer, and the answer in its original spelling; "" if there is none."""
        data = text.encode()
        place = self._naming.named(data)
        if place is None:
            return text, ""
        return data[: place[0]].decode(errors="replace"), self._written(data[slice(*place)].decode())

    def within(self, text: str) -> str:
        """Return the answer in a complete text."""
        return self.split(text)[1]


def frame_of(value: Any) -> Frame | FrameOption | None:
    """Check the `frame` option of `generate.X`. Raises OptionError."""
    if value is None or value == "auto" or value in IN_FREE_TEXT:
        return value
    both = None if isinstance(value, str) else items_of(value)
    if both is None or len(both) != 2:
        raise OptionError(
            f"frame={brief(value)}: expected two texts, before and after the answer, {_EXAMPLE}, or "
            '"sentence", "reasoning", "auto" or None'
        )
    return Frame(*both)


def frame_for(model: Model, guide: Any, natural: NaturalSpelling | None = None) -> Frame | FrameOption | None:
    """Return the default frame of answers to chats, or None.

    Quotations stand in quotation marks, or in other marks if the documents contain those: a chat model seldom ends
    right after a fragment, and ends reliably after a closing mark. Choices, one-word patterns with a digit, and formats
    as natural text stand in a sentence. Other one-line patterns stand in quotation marks, unless they match the
    beginning of the sentence and have long texts. JSON objects and arrays stand in a code block, as chat models write
    them. Models that are trained to give bare answers, and encoder-decoders, have no frame.
    """
    if getattr(model, "answers_bare", False) or implements(model, SourceModel):
        return None
    if isinstance(guide, SubstringGuide):
        texts = [*guide.source.documents, guide.source.refusal or ""]
        free = (mark for mark in MARKS if not any(mark in text for text in texts))
        return next((Frame(f"{LEAD} {mark}", mark) for mark in free), None)
    if natural is not None and not isinstance(guide, RegularGuide):
        return "sentence"
    if isinstance(guide, JSONGuide):
        return None if any(guide.read(guide.start, bytes([byte])) != DEAD for byte in _SCALARS) else Frame(BLOCK, "")
    if isinstance(guide, ChoiceGuide):
        return "sentence" if _can_be_named(guide.choices) else None
    return _frame_of_pattern(guide) if isinstance(guide, RegularGuide) else None


def _can_be_named(choices: Sequence[str]) -> bool:
    """Test whether a sentence can name each choice.

    Not nameable: many choices, single letters (one is an article), choices without letter or digit, and choices with
    white space around them.
    """
    return len(choices) <= MAX_NAMED and all(
        choice.isprintable()
        and choice == choice.strip()
        and any(map(str.isalnum, choice))
        and (len(choice) > 1 or choice.isdigit())
        for choice in choices
    )


def _frame_of_pattern(guide: RegularGuide) -> Frame | FrameOption | None:
    try:
        dfa = guide.dfa(MAX_LOOKED_AT)
    except LimitError:
        return None
    if dfa.is_accepting(dfa.start):
        return None
    if guide.read(guide.start, LEAD.encode()) != DEAD:
        is_begun = (dfa.transitions[dfa.start] != DEAD).sum() == 1
        if is_begun or _longest(dfa) > MAX_OF_FRAGMENT:
            return None
    read = (dfa.transitions != DEAD).any(0)
    if not read[list(b"\t\n\r ")].any() and not _ends_without(dfa, b"0123456789"):
        return "sentence"
    if read[list(b"\n\r")].any():
        return None
    return next((Frame(f"{LEAD} {mark}", mark) for mark in MARKS if not read[mark.encode()[0]]), None)


def _longest(dfa: Dfa) -> int:
    """Return the length in bytes of the longest text, at most `MAX_OF_FRAGMENT` + 1."""
    reached, count = np.array([dfa.start]), 0
    while len(reached) and count <= MAX_OF_FRAGMENT + 1:
        after = np.unique(dfa.transitions[reached])
        reached, count = after[after != DEAD], count + 1
    return count - 1


def _ends_without(dfa: Dfa, letters: bytes) -> bool:
    """Test whether some accepted text contains none of `letters`."""
    transitions = dfa.transitions.copy()
    transitions[:, list(letters)] = DEAD
    reached, new = {dfa.start}, [dfa.start]
    while new:
        after = set(transitions[new].ravel().tolist()) - reached - {DEAD}
        reached |= after
        new = list(after)
    return bool(dfa.accepting[list(reached)].any())


def _spellings(choices: Sequence[str]) -> dict[str, str]:
    """Map each spelling to its choice. Choices map to themselves; other spellings of two choices are left out."""
    found: dict[str, str | None] = {}
    for choice in choices:
        for spelt in {choice.lower(), choice.upper(), choice[:1].upper() + choice[1:]}:
            found[spelt] = None if found.get(spelt, choice) != choice else choice
    return {spelt: choice for spelt, choice in found.items() if choice is not None} | {each: each for each in choices}


def _unchanged(text: str) -> str:
    return text


def _check_that_it_ends(guide: RegularGuide, mark: str) -> None:
    """Raise OptionError if an answer can contain the mark after another answer. The mark would not end that answer.

    Automata of more than `MAX_LOOKED_AT` states are not checked.
    """
    try:
        dfa = guide.dfa(MAX_LOOKED_AT)
    except LimitError:
        return
    states = np.flatnonzero(dfa.accepting)
    for byte in mark.encode():
        states = dfa.transitions[states, byte]
        states = states[states != DEAD]
    if len(states):
        raise OptionError(
            f"frame: an answer may contain the closing mark {mark!r}, which therefore cannot end it; exclude the mark "
            "from the constraint, for example by [^...]*, or give another mark"
        )


def _read_by_bytes(guide: Guide) -> ByteGuide:
    if not implements(guide, ByteGuide):
        raise OptionError(f"frame= needs a guide that reads bytes, not {brief(guide)}; leave it out")
    return guide


THINKING = 1024


@dataclass(frozen=True, slots=True)
class After:
    """A marker that ends free text before a constraint.

    marker: a text such as "</think>", or a token id
    thinking: greatest number of tokens before it

    Raises OptionError.
    """

    marker: str | int
    thinking: int = THINKING

    def __post_init__(self) -> None:
        marker: Any = self.marker
        if isinstance(marker, str):
            if not check_text(marker, "after"):
                raise OptionError('after="": expected the marker after which the constraint begins, such as "</think>"')
        else:
            check_int(marker, "after", 0)
        object.__setattr__(self, "thinking", check_int(self.thinking, "thinking", 0, MAX_FREE))

    @classmethod
    def of(cls, marker: str | int | None, thinking: int | None) -> After | None:
        """Combine the options of `generate.X`. Raises OptionError."""
        if marker is None:
            if thinking is not None:
                raise OptionError(f"thinking={thinking!r} needs the marker that ends the free text, after=...")
            return None
        return cls(marker, THINKING if thinking is None else thinking)

    def before(self, guide: Guide | None, model: Model, limits: Limits | None) -> AfterGuide:
        """Return the guide after the marker. A marker that spells a special token stands for that token."""
        if guide is None:
            raise OptionError("after= needs a constraint that begins after it; for free text use stop=")
        token = self.marker if not isinstance(self.marker, str) else special_token(model, self.marker)
        return AfterGuide(guide, self.marker if token is None else token, most=self.thinking, limits=limits)


def special_token(model: Model, text: str) -> int | None:
    """Return the special token that the tokenizer writes as this text; None if there is none."""
    token, vocabulary = token_of(model.tokenizer, text), model.vocabulary
    return token if token in vocabulary.special_ids and token not in vocabulary.eos_ids else None
