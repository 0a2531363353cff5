"""Numbers for the states of an automaton in the making."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TypeVar

State = TypeVar("State", bound=Hashable)


class Numbers(dict[State, int]):
    """States by what they stand for, numbered from 0 on as they are met: `numbers[state]`.

    states: what each number stands for; who goes through it while rows are made comes to all that are reached
    """

    def __init__(self) -> None:
        super().__init__()
        self.states: list[State] = []

    def __missing__(self, state: State) -> int:
        # In this order: broken off in between, the state is met anew, and no two have one number.
        self.states.append(state)
        number = self[state] = len(self.states) - 1
        return number
