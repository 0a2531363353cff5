"""Pictures of automata in Graphviz' language."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..errors import LimitError
from .dfa import Dfa, byte_runs

if TYPE_CHECKING:
    from .regular import RegularGuide

MAX_TOKENS = 24


def dot(guide: RegularGuide, *, max_states: int, tokens: bool) -> str:
    """The minimised automaton of a guide as a directed graph; `tokens` adds each state's allowed tokens.

    Raises LimitError if it has more than `max_states` states.
    """
    whole = guide.dfa()
    small = whole.minimised()
    if len(small) > max_states:
        raise LimitError(
            f"the automaton has {len(small):,} states, too many for a picture of {max_states:,}; raise max_states"
        )
    lines = [
        "digraph {",
        "  rankdir=LR;",
        '  node [shape=circle, fontname="sans-serif"];',
        "  begin [shape=point];",
    ]
    lines.append(f"  begin -> {small.start};")
    for state in range(len(small)):
        shape = "doublecircle" if small.is_accepting(state) else "circle"
        tip = f', xlabel="{_quoted(_tokens_in(guide, whole, small, state))}"' if tokens else ""
        lines.append(f"  {state} [shape={shape}{tip}];")
    for state in range(len(small)):
        for target, label in edge_labels(small, state):
            lines.append(f'  {state} -> {target} [label="{_quoted(label)}"];')
    return "\n".join([*lines, "}", ""])


def edge_labels(dfa: Dfa, state: int) -> list[tuple[int, str]]:
    """The targets of a state, each with its bytes in words."""
    by_target: dict[int, list[tuple[int, int]]] = {}
    for low, high, target in byte_runs(dfa.transitions[state]):
        by_target.setdefault(target, []).append((low, high))
    return [(target, describe_bytes(runs)) for target, runs in by_target.items()]


def describe_bytes(runs: Sequence[tuple[int, int]]) -> str:
    """Ranges of bytes in words: printable ASCII as characters, others as hexadecimal numbers."""
    parts = [_byte(low) if low == high else f"{_byte(low)}-{_byte(high)}" for low, high in runs]
    return " ".join(parts)


def _byte(value: int) -> str:
    return chr(value) if 0x20 < value < 0x7F else "␣" if value == 0x20 else f"x{value:02X}"


def _tokens_in(guide: RegularGuide, whole: Dfa, small: Dfa, state: int) -> str:
    """The tokens allowed in a state of the minimised automaton, some of them if there are many."""
    mask = guide.mask(_matching_state(whole, small, state))
    ids = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
    texts = guide.vocabulary.tokens
    first: list[int] = ids[:MAX_TOKENS].tolist()
    shown = [(texts[token] or b"EOS").decode("utf-8", "backslashreplace") for token in first]
    more = f" and {len(ids) - MAX_TOKENS:,} more" if len(ids) > MAX_TOKENS else ""
    return ", ".join(shown) + more


def _matching_state(whole: Dfa, small: Dfa, wanted: int) -> int:
    """A state of the whole automaton that the minimised one merged into `wanted`."""
    pairs = {(whole.start, small.start)}
    queue = list(pairs)
    for state, merged in queue:
        if merged == wanted:
            return state
        for low, _, target in byte_runs(whole.transitions[state]):
            pair = (target, small.step(merged, low))
            if pair not in pairs:
                pairs.add(pair)
                queue.append(pair)
    raise AssertionError("every state of the minimised automaton is reached")


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
