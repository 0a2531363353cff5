"""The guide for quotations: exact substrings of a context."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..checks import brief, check_bool
from ..errors import LanguageError, OptionError
from ..kernels.answers import EXHAUSTED
from ..kernels.jit.compiling import call
from ..kernels.suffix.quoting import Quotable, QuotingMeter, count_tokens, fewest_tokens, walk_quotable
from ..tokenizers_adapter import Vocabulary
from .arguments import check_bytes, check_left, states_of, vocabulary_of
from .explain import NOTHING, either, expectation
from .lift.table_guide import StateTableGuide
from .lift.tables import VocabularyTables
from .limits import Limits, Meter, current
from .locks import new_lock
from .pictures import MAX_PICTURED, Drawable, Picture
from .pictures.automata import MinimalAutomaton, tokens_in
from .protocol import DEAD, NEVER, Mask
from .quoting.quotation import SubstringAutomaton
from .quoting.source import Boundary, Occurrence, QuotedContext, QuotingRules, Span, WhiteSpace

MAX_PLACES = 4
MAX_AHEAD = 512
MAX_REMEMBERED = 1 << 18
MIN_STRIDE = 64


class SubstringGuide(StateTableGuide, Drawable):
    """Exact substrings of a context. See `guides.protocol.Guide` for the methods.

    context: a text, or several of which one is quoted
    boundary: the units of a quotation, at least one: "word" (words and punctuation), "character", "sentence" or "line";
        defined by `guides.quoting.source.boundaries`
    min_chars, max_chars: fewest and most characters of a quotation
    whitespace: "collapsed" reads each run of white space in the context as one space; spans refer to the original
    none_text: one more allowed text. It has no span, even if the context contains it.
    limits: bounds of each call, see `Limits`

    Raises OptionError for an invalid argument, LanguageError if there is nothing to quote or the vocabulary can spell
    no quotation.
    """

    def __init__(
        self,
        context: str | Sequence[str],
        vocabulary: Vocabulary,
        *,
        boundary: Boundary = "word",
        min_chars: int = 1,
        max_chars: int | None = None,
        whitespace: WhiteSpace = "exact",
        none_text: str | None = None,
        limits: Limits | None = None,
    ) -> None:
        vocabulary = vocabulary_of(vocabulary, "SubstringGuide")
        if none_text is not None and (not isinstance(none_text, str) or not none_text):  # pyright: ignore
            raise OptionError(f"none_text={brief(none_text)}: expected a text that is not empty, or None")
        self._meter = Meter(limits)
        with self._meter:
            self.source = QuotedContext(
                context, QuotingRules(boundary, min_chars, max_chars, whitespace), refusal=none_text
            )
            needed = _tokens_needed(self.source.quotable, VocabularyTables.of(vocabulary))
            self._prepare(vocabulary, self.source.quotable, needed)
        documents = self.source.documents
        options = {"boundary": boundary, "min_chars": min_chars, "max_chars": max_chars, "whitespace": whitespace}
        self._made_of = {
            "context": context if isinstance(context, str) else tuple(documents),
            "vocabulary": vocabulary,
            **options,
            "none_text": none_text,
            "limits": limits,
        }

    def _prepare(self, vocabulary: Vocabulary, quotable: Quotable, needed: NDArray[np.int32]) -> None:
        super().__init__(vocabulary)
        self._automaton = SubstringAutomaton(quotable, self._meter)
        self._needed = needed
        self._accepting: dict[int, bool] = {}
        self._distances: dict[int, int] = {}
        self._lock = new_lock()
        self._scratch = np.empty((256 * (self._tables.branches.deepest + 1), 3), np.int32)
        # With an incomplete vocabulary, quotations that cannot be spelt must be told from those that take many tokens,
        # and every quotation counts.
        self._most = NEVER if self._tables.spells_all_bytes else NEVER - 1
        several = max(MIN_STRIDE, int(len(quotable.starts) ** 0.5))
        self._stride = several if self._tables.spells_all_bytes else len(quotable.starts) + 1
        if self.distance(self.start) >= NEVER:
            raise LanguageError(
                "the vocabulary has no tokens that spell a quotation from this context. Use another tokenizer"
            )

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(document):,}" for document in self.source.documents)
        return f"SubstringGuide(<{sizes} characters>, boundary={self.source.rules.boundary!r})"

    @property
    def start(self) -> int:
        """The state before the first token."""
        return self._automaton.start

    @property
    def automaton(self) -> SubstringAutomaton:
        """The byte automaton of the guide."""
        return self._automaton

    def mask_within(self, state: int, left: int) -> Mask:
        """Return the allowed tokens after which `left - 1` tokens can complete the text, and EOS iff accepting."""
        return self._walk(self._automaton.check(state), min(check_left(left) - 1, self._most))

    def _advanced(self, state: int, token: int) -> int:
        data, start = self._tables.bytes.data, self._tables.bytes.start
        return self._spelt(self._automaton.read_part(state, data, start.item(token), start.item(token + 1)))

    def read(self, state: int, data: bytes) -> int:
        """Return the state after `data` in any tokenization; DEAD if no tokens complete the text from there."""
        return self._spelt(self._automaton.read(state, check_bytes(data)))

    def is_accepting(self, state: int) -> bool:
        """Test whether the text so far is complete."""
        state = self._automaton.check(state)
        known = self._accepting.get(state)
        if known is None:
            known = _remember(self._accepting, state, self._automaton.is_accepting(state))
        return known

    def distance(self, state: int) -> int:
        """Return the fewest tokens to an accepting state, EOS not counted.

        Exact without bounds of length; with bounds, only some occurrences of a frequent text are examined.
        """
        state = self._automaton.check(state)
        known = self._distances.get(state)
        if known is None:
            enough = 0 if self.is_accepting(state) else 1
            known = _remember(self._distances, state, self._fewest(state, enough))
        return known

    def fits(self, state: int, left: int) -> bool:
        """Test whether `distance(state) <= left`; faster than `distance` for a large `left`."""
        state = self._automaton.check(state)
        left = check_left(left)
        if state == DEAD:
            return left >= NEVER
        return left >= 0 and self._fewest(state, left) <= left

    def mask_below(self, state: int, node: int, left: int | None = None) -> Mask:
        """See `guides.healing.TrieGuide`."""
        most = self._most if left is None else min(check_left(left) - 1, self._most)
        return self._walk_below(self._automaton.check(state), self._tables.branch_of(node), most)

    def distance_below(self, state: int, node: int) -> int:
        """See `guides.healing.TrieGuide`."""
        if not self.mask_below(state, node).any():
            return NEVER
        # The masks grow with `left`: double the bound, then bisect.
        most = 1
        while not self.mask_below(state, node, most).any():
            most *= 2
        return bisect_left(range(most), True, most // 2 + 1, key=lambda left: self.mask_below(state, node, left).any())

    def describe(self, state: int) -> str:
        """Describe what follows in the context, and the places: the character offset, or document:offset."""
        state = self._automaton.check(state)
        if state == DEAD:
            return NOTHING
        words = expectation(self._automaton, state)
        if state == self.start:
            return f"a quotation from the context that begins with {words}"
        places = [place for at in self._automaton.positions(state) if (place := self.source.place(at, at))]
        several = len(self.source.documents) > 1
        shown = [f"{place.document}:{place.start}" if several else str(place.start) for place in places[:MAX_PLACES]]
        more = [f"{len(places) - MAX_PLACES:,} more"] if len(places) > MAX_PLACES else []
        return f"{words}, quoting the context at {either([*shown, *more])}" if shown else words

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the minimal automaton of a short context's quotations; `tokens` adds tokens allowed in each state."""
        minimal = MinimalAutomaton.of(self._automaton, states_of(max_states))
        check_bool(tokens, "tokens")
        return minimal.picture(lambda state: tokens_in(self.mask(state), self._vocabulary) if tokens else "")

    def ahead(self, state: int) -> bytes:
        """Return the bytes that follow in the documents, up to 512, if the text so far occurs once; else no bytes."""
        return self._automaton.ahead(state, MAX_AHEAD)

    def places(self, text: str) -> list[Occurrence]:
        """Return the places in the documents where a text occurs as a quotation; none for other texts."""
        data = text.encode(errors="replace")
        found = (self.source.place(begin, begin + len(data)) for begin in self._automaton.occurrences(data))
        return [place for place in found if place is not None]

    def without(self, taken: Sequence[Occurrence]) -> SubstringGuide | None:
        """Return a guide for the quotations that do not overlap the taken places; None if there are none.

        It shares this guide's index and keeps `none_text`. Places taken from this guide before become available again.
        """
        taken = tuple(taken)
        quotable = self.source.without(taken)
        if quotable is None:
            return None
        return _RemainingGuide(self, quotable, taken)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_without, (dict(self._made_of or {}),)

    def span(self, text: str) -> Span | None:
        """Return the first span of a text, with all its places; None for `none_text` and for no quotation."""
        places = [] if text == self.source.refusal else self.places(text)
        return self.source.span(places) if places else None

    def _check(self, state: int) -> int:
        return self._automaton.check(state)

    def _compute_mask(self, state: int) -> Mask:
        return self._walk(state, self._most)

    def _walk(self, state: int, most: int) -> Mask:
        """Return the allowed tokens after which `most` further tokens complete the text, and EOS iff accepting."""
        mask = self._walk_below(state, 0, most)
        if self.is_accepting(state):
            mask |= self._tables.eos_words
        return mask

    def _walk_below(self, state: int, root: int, most: int) -> Mask:
        """Return the tokens below a node of `branches`, read from there, after which `most` further tokens suffice."""
        mask = np.zeros(self._tables.words, np.uint32)
        state = self._automaton.check(state)
        if state == DEAD:
            return mask
        node, depth = self._automaton.place(state)
        with self._lock, self._counting():
            arguments: tuple[Any, ...] = (self._tables.branches, self._needed, self._stride, node, depth, root, most)
            _counted(walk_quotable, self._automaton.quotable, *arguments, self._scratch, mask)
        return mask

    def _counting(self) -> AbstractContextManager[object]:
        """Return the meter as a context manager, or a null context inside a call that it already counts."""
        return nullcontext() if current() is self._meter else self._meter

    def _fewest(self, state: int, enough: int) -> int:
        if state == DEAD:
            return NEVER
        node, depth = self._automaton.place(state)
        quotable, trie = self._automaton.quotable, self._tables.branches
        with self._lock, self._counting():
            return _counted(fewest_tokens, quotable, trie, self._needed, self._stride, node, depth, enough)

    def _spelt(self, state: int) -> int:
        """Return the state itself, or DEAD if the vocabulary cannot spell a completion."""
        if state != DEAD and self._most < NEVER and self._fewest(state, self._most) > self._most:
            return DEAD
        return state


class _RemainingGuide(SubstringGuide):
    """The quotations of a guide that do not overlap the taken places."""

    def __init__(self, original: SubstringGuide, quotable: Quotable, taken: tuple[Occurrence, ...]) -> None:
        self.source = original.source
        self._meter = original._meter
        self._prepare(original.vocabulary, quotable, original._needed)
        self._made_of = {**(original._made_of or {}), "taken": taken}

    def _made_as(self) -> type[SubstringGuide]:
        return SubstringGuide


def _tokens_needed(quotable: Quotable, tables: VocabularyTables) -> NDArray[np.int32]:
    needed = np.empty(len(quotable.text), np.int32)
    _counted(count_tokens, quotable.text, quotable.ends, tables.branches, needed)
    return needed


def _counted(kernel: Any, *arguments: Any) -> int:
    """Call a kernel and return its result. Raises LimitError if the kernel exceeds the work limit."""
    meter = current() or Meter()
    answer = int(call(kernel, *arguments, QuotingMeter(meter.counts)))
    if answer == EXHAUSTED:
        raise meter.refusal()
    return answer


def _remember(known: dict[int, Any], state: int, answer: Any) -> Any:
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known[state] = answer
    return answer


def _rebuild_without(made_of: dict[str, Any]) -> SubstringGuide | None:
    """Rebuild a guide, without the places taken from it."""
    taken: tuple[Occurrence, ...] | None = made_of.pop("taken", None)
    guide = SubstringGuide(**made_of)
    return guide if taken is None else guide.without(taken)
