"""Special tokens in grammars: one by its name, `<|im_end|>`, or one of several by ids, `<[5,7-9]>`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice

from ...errors import GrammarError
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import marker_bytes, with_markers
from ..graph.graph import Graph
from ..graph.lowering import Lowering
from ..syntax import Alternation, Literal
from .grammar import Grammar
from .options import NO_TEXT

WRITTEN = r"< (?: \[ [^\]\n]*+ \] | [^\s<>\[\]=][^\s<>]*+ ) >"
"""Pattern of special tokens in both notations, for `re.VERBOSE`."""
_WRITTEN = re.compile(WRITTEN, re.VERBOSE)
_IDS = re.compile(r"<\[\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*\]>", re.ASCII)
_SHOWN = 8


@dataclass(frozen=True)
class SpecialTokens:
    """One special token, or one of several, as a part of a grammar.

    written: the source text; offset: its position; ids: the tokens, once resolved
    """

    written: str
    offset: int = 0
    ids: tuple[int, ...] = ()

    @property
    def fewest(self) -> int:
        """The length in bytes of the shortest marker."""
        return min(len(marker_bytes(token)) for token in self.ids)

    def lower_into(self, graph: Graph) -> int:
        """Add the markers to a graph and return the start node of their rule."""
        return Lowering(graph).rule(Alternation(tuple(Literal(marker_bytes(token)) for token in self.ids)))

    def of(self, vocabulary: Vocabulary, text: str) -> SpecialTokens:
        """Resolve the tokens in a vocabulary. text: the grammar's, for errors. Raises GrammarError."""
        ids = tuple(dict.fromkeys(self._token_ids(vocabulary, text)))
        added = set(vocabulary.added_tokens.values())
        for token in ids:
            spelt = vocabulary.tokens[token]
            if token in vocabulary.eos_ids:
                reason = (
                    f"the token {token} is an end-of-sequence token, which cannot occur within a text; leave it out"
                )
                raise GrammarError(reason, text, self.offset)
            if spelt is not None and token not in added:
                reason = f"the token {token} has the text {spelt.decode(errors='backslashreplace')!r}; write that"
                raise GrammarError(f"{reason}, whatever tokens spell it", text, self.offset)
        return replace(self, ids=ids)

    def _token_ids(self, vocabulary: Vocabulary, text: str) -> Iterator[int]:
        """Yield the token ids in order."""
        if not self.written.startswith("<["):
            if self.written not in vocabulary.added_tokens:
                names = [name for name in vocabulary.added_tokens if name.startswith("<")]
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                known = f"there are {', '.join(islice(names, _SHOWN))}{more}" if names else "it names none"
                reason = f"the vocabulary has no special token {self.written}; {known}"
                raise GrammarError(reason, text, self.offset)
            yield vocabulary.added_tokens[self.written]
            return
        if not _IDS.fullmatch(self.written):
            reason = "ids of special tokens must be numbers and ranges without blanks; any token, or any but some, is"
            raise GrammarError(f"{reason} {NO_TEXT}", text, self.offset)
        for span in self.written[2:-2].split(","):
            low, _, high = span.partition("-")
            first, last = int(low), int(high or low)
            if last < first:
                raise GrammarError(f"{span} is no range of tokens", text, self.offset)
            if last >= vocabulary.size:
                reason = f"there is no token {last}; ids are 0 to {vocabulary.size - 1}"
                raise GrammarError(reason, text, self.offset)
            yield from range(first, last + 1)


def names_in(text: str) -> list[str]:
    """Pieces of the text of a grammar that are written as names of special tokens are, each once."""
    return [piece for piece in dict.fromkeys(_WRITTEN.findall(text)) if not piece.startswith("<[")]


def with_tokens_of(vocabulary: Vocabulary, grammar: Grammar) -> tuple[Grammar, Vocabulary]:
    """Resolve the special tokens of a grammar, and return it with the vocabulary that has these as markers.

    Raises GrammarError for tokens that are unknown, have a text, or end texts.
    """
    text = grammar.source or str(grammar)
    named = {name: part for name, part in grammar.parts.items() if isinstance(part, SpecialTokens)}
    found = {name: part.of(vocabulary, text) for name, part in named.items()}
    markers = {token for part in found.values() for token in part.ids}
    return replace(grammar, parts=grammar.parts | found), with_markers(vocabulary, markers)
