"""Frames: text that stands before and behind an answer, or around it in a sentence, and is no part of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ...checks import brief, conforms, items_of, text_of, whole
from ...errors import LimitError, OptionError
from ...guides.automata.dfa import Dfa
from ...guides.healing import AlignedGuide
from ...guides.json_guide import JSONGuide
from ...guides.limits import Limits
from ...guides.protocol import DEAD, ByteGuide, Guide
from ...guides.regular_guide import ChoiceGuide, RegexGuide, RegularGuide
from ...guides.substring_guide import SubstringGuide
from ...guides.tagged.after_guide import MOST_FREE, AfterGuide
from ...guides.tagged.closed_guide import ClosedGuide
from ...guides.tagged.mention_guide import MentionGuide
from ...tokenizers_adapter.marked import token_of
from ..formats import Natural
from ..models.protocol import Model, SourceModel

_EXAMPLE = """frame=('The answer is "', '"')"""

MOST_LOOKED_AT = 2000
MOST_NAMED = 1000
"""Choices above which answers stand alone by default: an automaton of free text that may name them is large."""
MOST_OF_FRAGMENT = 64
"""Bytes of texts that stand in quotation marks though a sentence would match: longer ones may be meant as such."""
MARKS = ('"', "**", "`")
"""Marks around quotations, the first one that is not in the documents; from the best one, by benchmarks/answers.py."""
MOST_SENTENCE, MOST_REASONING = 48, 256
"""Tokens of sentences and of reasoning, more than the shortest answer takes, where `max_tokens` says nothing."""
LEAD = "The answer is"
SENTENCE_LEAD = "So the answer is"
"""Texts before answers by default; from the best ones, by benchmarks/answers.py."""
BLOCK = "```json\n"
"""Text before objects and arrays by default. These end by themselves, so that nothing has to close the block."""

_SCALARS = b'"-0123456789tfn'
"""First bytes of JSON that is neither an object nor an array."""

FrameOption = Literal["auto", "sentence", "reasoning"]
IN_FREE_TEXT = ("sentence", "reasoning")


@dataclass(frozen=True, slots=True)
class Frame:
    """before: what the model reads as the beginning of its answer; behind: the closing mark that it writes in place of
    EOS; either may be empty, not both.

    Raises OptionError.
    """

    before: str
    behind: str

    def __post_init__(self) -> None:
        text_of(self.before, "frame, the text before the answer")
        text_of(self.behind, "frame, the closing mark")
        if not self.before and not self.behind:
            raise OptionError(f"frame=('', ''): a text before the answer, one behind it, or both: {_EXAMPLE}")

    def closed(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide with the closing mark behind it. Raises OptionError, LanguageError."""
        if not self.behind:
            return guide
        if isinstance(guide, RegularGuide):
            _check_that_it_ends(guide, self.behind)
        return ClosedGuide(_read_by_bytes(guide), self.behind, limits=limits)

    def around(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide with the closing mark behind it and the text before it, both of which the model writes.

        Raises OptionError, LanguageError.
        """
        closed = self.closed(guide, limits)
        return AlignedGuide(_read_by_bytes(closed), self.before.encode(), limits=limits) if self.before else closed

    def safe(self, text: bytes | bytearray) -> int:
        """Number of bytes of a text before anything that may yet turn out the closing mark."""
        mark = self.behind.encode()
        longest = min(len(mark), len(text))
        return len(text) - next((count for count in range(longest, 0, -1) if mark.startswith(text[-count:])), 0)

    def split(self, text: str) -> tuple[None, str]:
        """Nothing free, and the answer in a text behind what stands before it."""
        return None, text.removesuffix(self.behind)

    def within(self, text: str) -> str:
        """The answer in a text that has all."""
        return text.removeprefix(self.before).removesuffix(self.behind)


class Sentence:
    """A sentence that begins with "So the answer is", which the model reads, and names the answer, which it writes; or
    free text of any lines, all of which it writes, the last answer of which counts.

    guide: of the answer; natural: how people write such answers; is_last: whether it is free text
    Choices count in small letters, capitals and with a capital first letter too, where that is no other choice.
    Raises OptionError for a guide whose texts cannot be named: see `MentionGuide`.
    """

    behind = ""

    def __init__(
        self, guide: Any, natural: Natural | None = None, limits: Limits | None = None, *, is_last: bool = False
    ) -> None:
        self.before, self.most = ("", MOST_REASONING) if is_last else (SENTENCE_LEAD, MOST_SENTENCE)
        if not isinstance(guide, RegularGuide) and natural is None:
            other = "free text" if guide is None else brief(guide)
            raise OptionError(
                f'frame="{IN_FREE_TEXT[is_last]}" is for choices, patterns, formats and machines, whose texts can be '
                f"named, not for {other}; give two texts, {_EXAMPLE}, or leave it out"
            )
        self.answer, named, self._written = guide, guide, _unchanged
        if natural is not None:
            named, self._written = RegexGuide(natural.pattern, guide.vocabulary, limits=limits), natural.written
        elif isinstance(guide, ChoiceGuide):
            spellings = _spellings(guide.choices)
            named, self._written = ChoiceGuide(spellings, guide.vocabulary, limits=limits), spellings.__getitem__
        self._naming = MentionGuide(named, is_last=is_last, limits=limits)

    def closed(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide of the sentence, behind its beginning."""
        return self._naming

    def around(self, guide: Guide, limits: Limits | None) -> Guide:
        """The guide of a sentence, all of which the model writes, with whatever beginning."""
        return self._naming

    def safe(self, text: bytes | bytearray) -> int:
        """No byte of a text is sure to be one of the answer before all is there."""
        return 0

    def split(self, text: str) -> tuple[str, str]:
        """The free text before the answer in a text, and the answer as it was asked for; nothing where that is not."""
        data = text.encode()
        place = self._naming.named(data)
        if place is None:
            return text, ""
        return data[: place[0]].decode(errors="replace"), self._written(data[slice(*place)].decode())

    def within(self, text: str) -> str:
        """The answer in a text that has all."""
        return self.split(text)[1]


def frame_of(value: Any) -> Frame | FrameOption | None:
    """The frame that the option of `generate.X` names. Raises OptionError."""
    if value is None or value == "auto" or value in IN_FREE_TEXT:
        return value
    both = None if isinstance(value, str) else items_of(value)
    if both is None or len(both) != 2:
        raise OptionError(
            f"frame={brief(value)}: two texts, before and behind the answer, {_EXAMPLE}, or "
            '"sentence", "reasoning", "auto" or None'
        )
    return Frame(*both)


def frame_for(model: Model, guide: Any, natural: Natural | None = None) -> Frame | FrameOption | None:
    """The frame of answers to chats by default; None for none.

    Quotations stand in quotation marks, or in other marks where the documents have those: a chat model seldom ends
    right behind a fragment, and does behind a mark that closes it. Choices, patterns of one word that has a digit, and
    numbers and dates as JSON stand in a sentence; other patterns of one line in quotation marks, unless they match the
    sentence's beginning and have texts that are long. Objects and arrays as JSON stand in a block of code, as chat
    models write them.
    Nothing stands around the answers of a model that was trained to give nothing else, and of encoder-decoders.
    """
    if getattr(model, "answers_bare", False) or conforms(model, SourceModel):
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
    """True if a sentence can name each: not letters alone, one of which is an article, nor what has no letter or digit,
    or white space around it."""
    return len(choices) <= MOST_NAMED and all(
        choice.isprintable()
        and choice == choice.strip()
        and any(map(str.isalnum, choice))
        and (len(choice) > 1 or choice.isdigit())
        for choice in choices
    )


def _frame_of_pattern(guide: RegularGuide) -> Frame | FrameOption | None:
    try:
        dfa = guide.dfa(MOST_LOOKED_AT)
    except LimitError:
        return None
    if dfa.is_accepting(dfa.start):
        return None
    if guide.read(guide.start, LEAD.encode()) != DEAD:
        is_begun = (dfa.transitions[dfa.start] != DEAD).sum() == 1
        if is_begun or _longest(dfa) > MOST_OF_FRAGMENT:
            return None
    read = (dfa.transitions != DEAD).any(0)
    if not read[list(b"\t\n\r ")].any() and not _ends_without(dfa, b"0123456789"):
        return "sentence"
    if read[list(b"\n\r")].any():
        return None
    return next((Frame(f"{LEAD} {mark}", mark) for mark in MARKS if not read[mark.encode()[0]]), None)


def _longest(dfa: Dfa) -> int:
    """Bytes of the longest text, up to one more than `MOST_OF_FRAGMENT`."""
    reached, count = np.array([dfa.start]), 0
    while len(reached) and count <= MOST_OF_FRAGMENT + 1:
        after = np.unique(dfa.transitions[reached])
        reached, count = after[after != DEAD], count + 1
    return count - 1


def _ends_without(dfa: Dfa, letters: bytes) -> bool:
    """True if a text has none of some bytes."""
    transitions = dfa.transitions.copy()
    transitions[:, list(letters)] = DEAD
    reached, new = {dfa.start}, [dfa.start]
    while new:
        after = set(transitions[new].ravel().tolist()) - reached - {DEAD}
        reached |= after
        new = list(after)
    return bool(dfa.accepting[list(reached)].any())


def _spellings(choices: Sequence[str]) -> dict[str, str]:
    """Each choice by the ways in which it may be written, those that two have in common left out but for themselves."""
    found: dict[str, str | None] = {}
    for choice in choices:
        for spelt in {choice.lower(), choice.upper(), choice[:1].upper() + choice[1:]}:
            found[spelt] = None if found.get(spelt, choice) != choice else choice
    return {spelt: choice for spelt, choice in found.items() if choice is not None} | {each: each for each in choices}


def _unchanged(text: str) -> str:
    return text


def _check_that_it_ends(guide: RegularGuide, mark: str) -> None:
    """Raise OptionError where a text may go on with the mark behind another one: the mark would not end that.

    Only automata of up to `MOST_LOOKED_AT` states are looked at.
    """
    try:
        dfa = guide.dfa(MOST_LOOKED_AT)
    except LimitError:
        return
    states = np.flatnonzero(dfa.accepting)
    for byte in mark.encode():
        states = dfa.transitions[states, byte]
        states = states[states != DEAD]
    if len(states):
        raise OptionError(
            f"frame: an answer can itself go on with the closing mark {mark!r}, which would not end it; leave the mark "
            "out of the constraint, as [^...]* does, or give another mark"
        )


def _read_by_bytes(guide: Guide) -> ByteGuide:
    if not conforms(guide, ByteGuide):
        raise OptionError(f"frame= cannot stand around {brief(guide)}, which does not read bytes; leave it out")
    return guide


THINKING = 1024


@dataclass(frozen=True, slots=True)
class After:
    """marker: a text such as "</think>", or a token id; thinking: how many tokens may come before it.

    Raises OptionError.
    """

    marker: str | int
    thinking: int = THINKING

    def __post_init__(self) -> None:
        marker: Any = self.marker
        if isinstance(marker, str):
            if not text_of(marker, "after"):
                raise OptionError('after="": the marker behind which the constraint begins, such as "</think>"')
        else:
            whole(marker, "after", 0)
        object.__setattr__(self, "thinking", whole(self.thinking, "thinking", 0, MOST_FREE))

    @classmethod
    def of(cls, marker: str | int | None, thinking: int | None) -> After | None:
        """The options of `generate.X` as one. Raises OptionError."""
        if marker is None:
            if thinking is not None:
                raise OptionError(f"thinking={thinking!r} without after=, the marker up to which there is free text")
            return None
        return cls(marker, THINKING if thinking is None else thinking)

    def before(self, guide: Guide | None, model: Model, limits: Limits | None) -> AfterGuide:
        """The guide behind the marker, which is a token where it is written as a special one."""
        if guide is None:
            raise OptionError("after= is for constraints, which come behind it; free text has none: use stop=")
        token = self.marker if not isinstance(self.marker, str) else special_token(model, self.marker)
        return AfterGuide(guide, self.marker if token is None else token, most=self.thinking, limits=limits)


def special_token(model: Model, text: str) -> int | None:
    """The token without bytes that a tokenizer writes as a text; None where it has none."""
    token, vocabulary = token_of(model.tokenizer, text), model.vocabulary
    return token if token in vocabulary.special_ids and token not in vocabulary.eos_ids else None
