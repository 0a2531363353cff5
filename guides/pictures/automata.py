"""Finite automata as pictures: the smallest ones of their language."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ...errors import LimitError
from ...tokenizers_adapter import Vocabulary
from ..automata.dfa import Dfa, byte_runs
from ..automata.numbers import Numbers
from ..chart.protocol import ByteAutomaton
from ..protocol import DEAD, Mask, tokens_of
from .picture import Arrow, Picture, PictureNode, shortened

MAX_TOKENS = 24
# How many states may be looked at on the way to a smallest automaton of one.
LARGER = 100


class Minimal:
    """The smallest automaton of a finite one, with a state of the whole automaton for each of its states.

    Raises LimitError if it has more than `max_states` states.
    """

    def __init__(self, whole: Dfa, max_states: int, states: Sequence[int] | None = None) -> None:
        self.dfa = whole.minimised()
        if len(self.dfa) > max_states:
            raise _too_large(f"{len(self.dfa):,} states", max_states)
        matching = _matching(whole, self.dfa)
        self.states = [matching[state] if states is None else states[matching[state]] for state in range(len(self.dfa))]

    @classmethod
    def of(cls, automaton: ByteAutomaton, max_states: int) -> Minimal:
        """Of any automaton with finitely many states; at most LARGER times as many are looked at."""
        numbers: Numbers[int] = Numbers()
        _ = numbers[automaton.start]
        rows: list[list[int]] = []
        for state in numbers.states:
            if len(numbers) > LARGER * max_states:
                raise _too_large(f"more than {LARGER * max_states:,} states before it is minimised", max_states)
            targets = (automaton.step(state, byte) for byte in range(256))
            rows.append([DEAD if target == DEAD else numbers[target] for target in targets])
        accepting = np.array([automaton.is_accepting(state) for state in numbers.states])
        return cls(Dfa(np.array(rows, np.int32), accepting, 0), max_states, numbers.states)

    def picture(self, note: Callable[[int], str]) -> Picture:
        """The automaton with `note(state)` under each state, a state of the whole automaton."""
        dfa = self.dfa
        nodes = tuple(
            PictureNode(str(state), "final" if dfa.is_accepting(state) else "state", note(self.states[state]))
            for state in range(len(dfa))
        )
        arrows = [
            Arrow(state, target, shortened(label))
            for state in range(len(dfa))
            for target, label in edge_labels(dfa, state)
        ]
        return Picture(nodes, tuple(arrows), dfa.start)


def _too_large(found: str, most: int) -> LimitError:
    return LimitError(f"the automaton has {found}, too many for a picture of {most:,}; raise max_states")


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


def tokens_in(mask: Mask, vocabulary: Vocabulary, most: int = MAX_TOKENS) -> str:
    """The tokens that a mask allows, some of them if there are many."""
    ids = tokens_of(mask)
    shown = [(vocabulary.tokens[token] or b"EOS").decode("utf-8", "backslashreplace") for token in ids[:most]]
    more = f" and {len(ids) - most:,} more" if len(ids) > most else ""
    return ", ".join(shown) + more


def _matching(whole: Dfa, small: Dfa) -> dict[int, int]:
    """For each state of the minimised automaton the first of the whole one that was merged into it."""
    found: dict[int, int] = {}
    pairs = {(whole.start, small.start)}
    queue = list(pairs)
    for state, merged in queue:
        found.setdefault(merged, state)
        for low, _, target in byte_runs(whole.transitions[state]):
            pair = (target, small.step(merged, low))
            if pair not in pairs:
                pairs.add(pair)
                queue.append(pair)
    return found
