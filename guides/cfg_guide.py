"""Guides for context-free languages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property
from typing import Any, Literal

from ..checks import check_choice
from ..errors import GrammarError, LimitError, OptionError
from ..kernels.chart.layout import CALL, EPSILON
from ..tokenizers_adapter import Vocabulary
from ..tokenizers_adapter.marked import unmarked_text
from .arguments import states_of, vocabulary_of
from .chart.automaton import HORIZON, ChartAutomaton
from .grammar import Grammar, check, is_gbnf, parse_gbnf, parse_lark
from .grammar.ambiguity import without_ambiguity
from .grammar.grammar import Part, reachable, references, shortest_texts
from .grammar.inlining import inlined
from .grammar.notation import render, render_name
from .grammar.options import check_options, grammar_text
from .grammar.pieces import MarkedPieces
from .grammar.special_tokens import with_tokens_of
from .graph.graph import Graph, Link, NamedRule
from .graph.lowering import Lowering
from .lift.lifted_guide import LiftedGuide
from .lift.tables import horizon_of
from .limits import Limits, Meter
from .pictures import MAX_PICTURED, Arrow, Drawable, Picture, PictureNode, refuse_tokens, shortened
from .protocol import Capture, Findings
from .quoting.quotation import Context, Quote, fragment_of_quote
from .quoting.source import Span

Syntax = Literal["auto", "lark", "gbnf"]

_SYNTAXES = ("auto", "lark", "gbnf")


class _Rule(NamedRule):
    """A rule that the grammar's author wrote."""

    __slots__ = ("_known_as",)

    def __init__(self, known_as: str) -> None:
        self._known_as = known_as

    def name(self) -> str:
        """Return the rule's name as the grammar writes it."""
        return render_name(self._known_as)


class CFGGuide(LiftedGuide, Drawable):
    """Texts of a context-free grammar.

    grammar: the text of a grammar, or a `Grammar`
    start: the start rule; "start" for Lark and "root" for GBNF if not given
    syntax: the notation of the text, "lark", "gbnf", or "auto" (GBNF where a rule has `::=`)
    contexts: texts that `quote(name)` in a Lark grammar quotes from, by name; a text, several, or a `Quote`
    limits: bounds of each call, see `Limits`

    `vocabulary` extends the one given: special tokens that the grammar names have bytes that occur in no text.
    Raises GrammarError for a malformed grammar, LanguageError if it has no text or the vocabulary cannot
    spell one, LimitError if it is too large.
    """

    def __init__(
        self,
        grammar: str | Grammar,
        vocabulary: Vocabulary,
        start: str | None = None,
        syntax: Syntax = "auto",
        contexts: Mapping[str, Context] | None = None,
        *,
        limits: Limits | None = None,
    ) -> None:
        with Meter(limits):
            text = None if isinstance(grammar, Grammar) else grammar
            if not isinstance(grammar, Grammar):
                grammar = _read(grammar, start, syntax, contexts)
            else:
                if contexts is not None:
                    raise OptionError(
                        "contexts= needs the text of a grammar, not a Grammar; give contexts= to parse_lark"
                    )
                grammar = grammar if start is None else replace(grammar, start=start)
                check_options(grammar.start)
                check(grammar)
            vocabulary = vocabulary_of(vocabulary, "CFGGuide")
            self.grammar, marked = with_tokens_of(vocabulary, grammar)
            super().__init__(automaton_of(self.grammar, horizon_of(marked)), marked)
            made_of: dict[str, Any] = {"grammar": grammar, "vocabulary": vocabulary, "limits": limits}
            if text is not None:
                made_of |= {"grammar": text, "start": start, "syntax": syntax}
                quotes = {name: Quote.of(context) for name, context in (contexts or {}).items()}
                made_of |= {"contexts": quotes} if quotes else {}
            self._made_of = made_of

    def lower_into(self, graph: Graph) -> int:
        """Add the rules to a graph and return the start node of the start rule."""
        return graph_of(self.grammar, graph)[1]

    @cached_property
    def _marked(self) -> MarkedPieces:
        grammar = self.grammar
        names = dict.fromkeys([*_quotes_of(grammar), *grammar.captures, *grammar.stops])
        return MarkedPieces(grammar, list(names), graph_of, self._meter.limits)

    def spans(self, text: str | bytes) -> Mapping[str, Span]:
        """Return the places of the quotations in a text of this guide: "/name/0" is the first from the context `name`.

        text: where the grammar names special tokens, the bytes of its tokens, `guide.vocabulary.decode(token_ids)`

        An ambiguous text is read so that quotations and captures begin as early and are as long as possible. The result
        is empty for a text outside the grammar, such as a truncated one. Raises LimitError.
        """
        return self.findings(text).spans

    def captures(self, text: str | bytes) -> Mapping[str, tuple[Capture, ...]]:
        """Return the texts of the rules with `[capture]` in a text of this guide, in order, by capture name.

        The text is read as for `spans`. A capture excludes ignored text behind the rule, and the rule's `suffix`.
        Raises LimitError.
        """
        return self.findings(text).captures

    def findings(self, text: str | bytes) -> Findings:
        """Return the results of `spans` and `captures` from a single parse. Raises LimitError."""
        quotes, names, stops = _quotes_of(self.grammar), self.grammar.captures, self.grammar.stops
        counts: Counter[str] = Counter()
        spans: dict[str, Span] = {}
        captures: dict[str, list[Capture]] = {}
        data = text if isinstance(text, bytes) else text.encode(errors="replace")
        is_asked = bool(quotes or names or stops)
        for piece in self._marked.read(data) if is_asked and self.is_accepting(self.read(self.start, data)) else ():
            if piece.rule in quotes:
                name = piece.rule.removeprefix("quote(").removesuffix(")")
                span = quotes[piece.rule].span(data[piece.begin : piece.end].decode())
                assert span is not None
                spans[f"/{name}/{counts[name]}"] = span
                counts[name] += 1
            if piece.rule in names:
                captures.setdefault(names[piece.rule], []).append(self._capture(data, piece.begin, piece.end))
            if piece.stop is not None and (name := stops[piece.rule].capture) is not None:
                captures.setdefault(name, []).append(self._capture(data, *piece.stop))
        return Findings(spans, {name: tuple(several) for name, several in captures.items()})

    def _capture(self, data: bytes, begin: int, end: int) -> Capture:
        before, inside = (unmarked_text(self.vocabulary, part).decode() for part in (data[:begin], data[begin:end]))
        return Capture(inside, len(before), len(before) + len(inside))

    def __repr__(self) -> str:
        return f"CFGGuide({self.grammar!r})"

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the rules and their references. `tokens` is refused: a grammar's automaton is infinite."""
        refuse_tokens(tokens, "a grammar")
        return _rules_picture(self.grammar, states_of(max_states))


def _rules_picture(grammar: Grammar, max_states: int) -> Picture:
    """Draw a box for each written rule reachable from the start, with its body, and arrows to the rules it uses.

    Raises LimitError if there are more than `max_states` rules.
    """
    reached = reachable(grammar)
    rules = [name for name in grammar.rules if name in reached and name in (grammar.lines or grammar.rules)]
    if len(rules) > max_states:
        raise LimitError(
            f"the grammar has {len(rules):,} rules, too many for a picture of {max_states:,}; raise max_states"
        )
    number = {name: i for i, name in enumerate(rules)}
    nodes = tuple(PictureNode(render_name(name), "rule", shortened(render(grammar.rules[name]))) for name in rules)
    arrows = [Arrow(number[name], number[other]) for name in rules for other in _used(grammar, name, number)]
    start = grammar.start if grammar.start in number else next(iter(_used(grammar, grammar.start, number)))
    return Picture(nodes, tuple(arrows), number[start])


def _used(grammar: Grammar, rule: str, shown: Mapping[str, int]) -> list[str]:
    """Return the drawn rules that a rule refers to, directly or through rules that are not drawn."""
    found = dict.fromkeys(references(grammar.rules[rule]))
    queue = list(found)
    for name in queue:
        if name not in shown and name not in grammar.parts:
            queue += [other for other in references(grammar.rules[name]) if other not in found]
            found |= dict.fromkeys(queue)
    return [name for name in found if name in shown]


def _read(text: str, start: str | None, syntax: Syntax, contexts: Mapping[str, Context] | None) -> Grammar:
    check_choice(syntax, "syntax", _SYNTAXES)
    if syntax == "lark" or (syntax == "auto" and not is_gbnf(grammar_text(text))):
        return parse_lark(text, "start" if start is None else start, contexts=contexts)
    if contexts is not None:
        text = grammar_text(text)
        reason = "GBNF has no quotations: quote(name) and contexts= need syntax='lark'"
        raise GrammarError(reason, text, max(0, text.find("quote(")))
    return parse_gbnf(text, "root" if start is None else start)


def _quotes_of(grammar: Grammar) -> dict[str, Quote]:
    """Return the pieces of `quote(name)`, by these names."""
    return {name: part for name, part in grammar.parts.items() if isinstance(part, Quote) and name.startswith("quote(")}


def _fewest(part: Part) -> int:
    """Return the length in bytes of a short text of a piece."""
    return len(part.examples(1)[0].encode()) if isinstance(part, Quote) else part.fewest


def automaton_of(grammar: Grammar, horizon: int = HORIZON) -> ChartAutomaton:
    """Build the byte automaton of a checked grammar; a rule is lowered when the automaton first reaches it."""
    return ChartAutomaton(lambda: graph_of(grammar), horizon=horizon)


def graph_of(grammar: Grammar, graph: Graph | None = None) -> tuple[Graph, int]:
    """Lower a checked grammar into a graph, by default a new one; return the graph and the start node."""
    rules = without_ambiguity(inlined(grammar))
    graph = Graph() if graph is None else graph
    parts = grammar.parts
    lengths = cache(lambda: shortest_texts(rules, {name: _fewest(part) for name, part in parts.items()}))
    starts: dict[str, int] = {}
    written = grammar.lines or grammar.rules

    def define(name: str) -> None:
        if name in parts:
            graph.define(starts[name], links=(_link_to(parts[name], graph),))
        else:
            lowering.body(starts[name], rules[name])

    def resolve(name: str) -> int:
        if name not in starts:
            starts[name] = start = graph.lazy(lambda _: define(name), lambda: lengths()[name])
            if name in written or name in parts:
                graph.names[start] = _Rule(name)
        return starts[name]

    names = {id(rules[name]): render_name(name) for name in rules if name in written}
    lowering = Lowering(graph, resolve, lambda name: lengths()[name] == 0, names)
    return graph, resolve(grammar.start)


def _link_to(part: Part, graph: Graph) -> Link:
    """Return the link from a rule's start node to the language of a piece."""
    if isinstance(part, Quote):
        return EPSILON, graph.instantiate(fragment_of_quote(part, False), graph.final()), 0
    return CALL, part.lower_into(graph), graph.final()
