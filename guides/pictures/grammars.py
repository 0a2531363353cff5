"""Grammars as pictures: which rule refers to which."""

from __future__ import annotations

from collections.abc import Mapping

from ...errors import LimitError
from ..grammar import Grammar
from ..grammar.grammar import reachable, references
from ..grammar.notation import render, render_name
from .parts import Arrow, Node
from .picture import Picture

MAX_BODY = 60


def grammar_picture(grammar: Grammar, max_states: int) -> Picture:
    """A box for each rule that somebody wrote and the start reaches, its body under it, and arrows to what it uses.

    Raises LimitError if there are more than `max_states` rules.
    """
    reached = reachable(grammar)
    rules = [name for name in grammar.rules if name in reached and name in (grammar.lines or grammar.rules)]
    if len(rules) > max_states:
        raise LimitError(
            f"the grammar has {len(rules):,} rules, too many for a picture of {max_states:,}; raise max_states"
        )
    number = {name: i for i, name in enumerate(rules)}
    nodes = tuple(Node(render_name(name), "rule", _shortened(render(grammar.rules[name]))) for name in rules)
    arrows = [Arrow(number[name], number[other]) for name in rules for other in _used(grammar, name, number)]
    start = grammar.start if grammar.start in number else next(iter(_used(grammar, grammar.start, number)))
    return Picture(nodes, tuple(arrows), number[start])


def _used(grammar: Grammar, rule: str, shown: Mapping[str, int]) -> list[str]:
    """The rules shown that a rule refers to, itself or through rules that are not shown."""
    found = dict.fromkeys(references(grammar.rules[rule]))
    queue = list(found)
    for name in queue:
        if name not in shown and name not in grammar.quotes:
            queue += [other for other in references(grammar.rules[name]) if other not in found]
            found |= dict.fromkeys(queue)
    return [name for name in found if name in shown]


def _shortened(text: str) -> str:
    return text if len(text) <= MAX_BODY else f"{text[: MAX_BODY - 1]}…"
