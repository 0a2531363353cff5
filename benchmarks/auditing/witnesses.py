"""Witnesses of errors, each checkable by itself: without engines by `holds`, with its engine by `repeats`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from .engines import STUCK, Driver
from .judge import Judge

ENDED, DEAD, STOPS, REFUSED, NAMES = KINDS = ("ended", "dead", "stuck", "refused", "names")


@dataclass(frozen=True)
class Witness:
    """One error of an engine.

    text: what the tokens spell, bytes beyond UTF-8 as half surrogates; for "refused" and "names" one spelling
    texts: all spellings of a value that is refused, with the number of tokens that are allowed of each
    why: what `Judge` says
    """

    engine: str
    version: str
    kind: str
    id: str
    schema: dict[str, Any]
    tokens: list[int]
    text: str
    why: str = ""
    texts: dict[str, int] = field(default_factory=dict[str, int])

    def holds(self) -> bool:
        """True if the schema and the text show an error, whoever made it; which "stuck" needs no judge for."""
        judge, text = Judge(self.schema), self.text.encode("utf-8", "surrogateescape")
        match self.kind:
            case "ended":
                return judge.finished(text)[0] is False
            case "dead":
                return judge.dead(text) is not None
            case "stuck":
                return True
            case _:
                return bool(self.texts) and all(judge.verdict(json.loads(each)) is True for each in self.texts)

    def repeats(self, call: Callable[..., Any], encoded: Callable[[str], list[int]]) -> bool:
        """True if the engine errs so again. call: of an engine's process that has taken the schema"""
        match self.kind:
            case "stuck":
                return call(Driver.walk, "", len(self.tokens) + 1, self.tokens).outcome == STUCK
            case "ended" | "dead":
                found = call(Driver.follow, self.tokens)
                return found.refused is None and (found.may_end or self.kind == "dead")
            case _:
                every = [call(Driver.follow, encoded(each)) for each in self.texts]
                return all(found.refused is not None or not found.may_end for found in every)


def written(witnesses: Iterable[Witness], path: Path) -> None:
    """Write a line of JSON for each."""
    lines = (json.dumps(asdict(each)) + "\n" for each in witnesses)
    path.write_text("".join(lines), encoding="utf-8")


def kept(path: Path) -> list[Witness]:
    """The witnesses of a file."""
    return [Witness(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]
