"""Guides for context-free languages."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Literal

from ..errors import OptionError
from ..tokenizers_adapter import Vocabulary
from .automaton import HORIZON, ChartAutomaton
from .grammar import Grammar, check, parse_gbnf, parse_lark
from .grammar.grammar import nullable
from .grammar.inlining import inlined
from .grammar.notation import render_name
from .grammar.shortest import shortest_texts
from .graph import Graph
from .lift import LiftedGuide
from .lower import Lowering
from .pictures import Drawable, Picture
from .pictures.grammars import grammar_picture
from .pictures.picture import MAX_STATES
from .tables import horizon_of

Syntax = Literal["lark", "gbnf"]

_READERS = {"lark": parse_lark, "gbnf": parse_gbnf}


class CFGGuide(LiftedGuide, Drawable):
    """Texts of a context-free grammar.

    grammar: the text of a grammar, or a `Grammar`; start: its start rule ("start" for Lark, "root" for GBNF
    if not given); syntax: the language that the text is in, "lark" or "gbnf".
    Raises GrammarError for a malformed grammar, LanguageError if it has no text or the vocabulary cannot
    spell one, LimitError if it is too large.
    """

    def __init__(
        self, grammar: str | Grammar, vocabulary: Vocabulary, start: str | None = None, syntax: Syntax = "lark"
    ) -> None:
        if isinstance(grammar, str):
            if syntax not in _READERS:
                raise OptionError(f"syntax must be one of {', '.join(map(repr, _READERS))}, not {syntax!r}")
            default = "start" if syntax == "lark" else "root"
            grammar = _READERS[syntax](grammar, default if start is None else start)
        else:
            grammar = grammar if start is None else replace(grammar, start=start)
            check(grammar)
        self.grammar = grammar
        super().__init__(automaton_of(grammar, horizon_of(vocabulary)), vocabulary)

    def __repr__(self) -> str:
        return f"CFGGuide({self.grammar!r})"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_STATES) -> Picture:
        """The rules, and which refers to which; a grammar's automaton has no end, and so no picture with `tokens`."""
        if tokens:
            raise OptionError("a picture of a grammar shows its rules, which have no allowed tokens; leave out tokens")
        return grammar_picture(self.grammar, max_states)


def automaton_of(grammar: Grammar, horizon: int = HORIZON) -> ChartAutomaton:
    """The byte automaton of a checked grammar; rules are lowered when the automaton first reaches them."""
    rules = inlined(grammar)
    graph = Graph()
    empty = cache(lambda: nullable(rules))
    starts: dict[str, int] = {}
    written = grammar.lines or grammar.rules

    def resolve(name: str) -> int:
        if name not in starts:
            starts[name] = start = graph.lazy(
                lambda: lowering.body(starts[name], rules[name]), lambda: shortest()[name]
            )
            if name in written:
                graph.names[start] = lambda: render_name(name)
        return starts[name]

    shortest = shortest_texts(rules)
    names = {id(rules[name]): render_name(name) for name in rules if name in written}
    lowering = Lowering(graph, resolve, lambda name: name in empty(), names)
    return ChartAutomaton(graph, resolve(grammar.start), horizon=horizon)
