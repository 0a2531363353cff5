"""Traces of beam searches, step by step: a record of their beams, as text and as a picture."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from unicodedata import east_asian_width

from ...guides.explain import visible
from ...guides.pictures import Arrow, Picture, PictureNode
from ...tokenizers_adapter import Vocabulary
from ..stopping import FinishReason
from .beam import Beam, BeamHypothesis

COLUMNS = ("step", "beam", "parent", "token", "logprob", "bank", "finished", "score")
_LEFT = [column in ("token", "finished") for column in COLUMNS]


@dataclass(frozen=True)
class TracedBeam:
    """A hypothesis that was kept in a step, or finished in it.

    parent: the number, in the step before, of the beam that it continues; None in the first step
    token_id, token: its last token, and the token's text; None where it has none, as EOS
    logprob: of the whole hypothesis, the sum of the model's natural log-probabilities; score: what it would be ranked
        by, or was if it finished, see `Beam`
    bank: how far it is with the goals of `include`; None without goals
    finish_reason: None if it goes on
    """

    parent: int | None
    token_id: int
    token: str | None
    logprob: float
    score: float
    bank: int | None
    finish_reason: FinishReason | None


@dataclass(frozen=True)
class SearchTrace:
    """A prompt's beam search.

    steps: the beams of each step, in the order in which they were picked, and after them those that finished
    best: of each result, best first, the step in which it finished and its number there
    """

    steps: tuple[tuple[TracedBeam, ...], ...]
    best: tuple[tuple[int, int], ...]

    def path(self, result: int = 0) -> list[int]:
        """The numbers, step by step, of the beams that led to a result."""
        step, number = self.best[result]
        numbers = [number]
        while (parent := self.steps[step][numbers[-1]].parent) is not None:
            numbers.append(parent)
            step -= 1
        return numbers[::-1]

    def __str__(self) -> str:
        """An aligned table; spaces in tokens are shown as ␣, and * marks what led to the best result."""
        kept = set(enumerate(self.path()))
        rows: list[list[str]] = [[*COLUMNS]]
        for step, beams in enumerate(self.steps):
            for number, beam in enumerate(beams):
                mark = "*" if (step, number) in kept else ""
                rows.append([str(step), f"{mark}{number}", *_cells(beam)])
        return aligned(rows, _LEFT)

    def __repr__(self) -> str:
        return f"<SearchTrace of {len(self.steps)} steps>"

    def to_svg(self) -> str:
        """A tree for a web page, a step in each column; what led to the best result is highlighted."""
        nodes, arrows = [PictureNode("prompt", "rule")], list[Arrow]()
        first: list[int] = []  # the node of beam 0 of each step
        for step, beams in enumerate(self.steps):
            first.append(len(nodes))
            for beam in beams:
                parent = 0 if beam.parent is None else first[step - 1] + beam.parent
                arrows.append(Arrow(parent, len(nodes)))
                nodes.append(PictureNode(_name(beam), "rule", _note(beam)))
        kept = {0, *(first[step] + number for step, number in enumerate(self.path()))}
        return Picture(tuple(nodes), tuple(arrows), 0, frozenset(kept)).to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()


class Recorder:
    """Writes a search down as it goes on."""

    def __init__(self, search: Beam, vocabulary: Vocabulary) -> None:
        self._search = search
        self._vocabulary = vocabulary
        self._steps: list[tuple[TracedBeam, ...]] = []
        self._numbers: dict[int, int] = {}  # of the beams of the last step, by their identity
        self._finished: list[tuple[BeamHypothesis, int, int]] = []

    def add(self, taken: Iterable[tuple[BeamHypothesis, int, BeamHypothesis, int | None]]) -> None:
        """Enter a step: of each hypothesis its parent, its last token, itself, and its bank; those that go on first."""
        step = len(self._steps)
        beams: list[TracedBeam] = []
        numbers: dict[int, int] = {}
        ordered = sorted(taken, key=lambda entry: entry[2].finish is not None)
        for number, (parent, token, after, bank) in enumerate(ordered):
            if after.finish is None:
                numbers[id(after)] = number
            else:
                self._finished.append((after, step, number))
            text = self._vocabulary.tokens[token]
            beams.append(
                TracedBeam(
                    parent=self._numbers[id(parent)] if step else None,
                    token_id=token,
                    token=None if text is None else text.decode(errors="backslashreplace"),
                    logprob=after.total,
                    score=self._search.score(after.total, after.length),
                    bank=bank,
                    finish_reason=after.finish,
                )
            )
        self._steps.append(tuple(beams))
        self._numbers = numbers

    def trace(self, best: Sequence[BeamHypothesis]) -> SearchTrace:
        """The record of a search that came to these results."""
        places = {id(one): (step, number) for one, step, number in self._finished}
        return SearchTrace(tuple(self._steps), tuple(places[id(one)] for one in best))


def _name(beam: TracedBeam) -> str:
    if beam.token is None:
        return "EOS" if beam.finish_reason == "complete" else f"token {beam.token_id}"
    return visible(beam.token).replace(" ", "␣")


def _cells(beam: TracedBeam) -> list[str]:
    """Cells of a beam's row after the first two columns."""
    parent, bank = ("" if value is None else str(value) for value in (beam.parent, beam.bank))
    score = "" if beam.finish_reason is None else f"{beam.score:.3f}"
    return [parent, _name(beam), f"{beam.logprob:.3f}", bank, beam.finish_reason or "", score]


def _note(beam: TracedBeam) -> str:
    """The note under a node."""
    parts = [f"{beam.logprob:.2f}"]
    if beam.bank is not None:
        parts.append(f"bank {beam.bank}")
    if beam.finish_reason is not None:
        parts.append(f"{beam.finish_reason}: {beam.score:.2f}")
    return ", ".join(parts)


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Rows of cells as lines; `left` says of each column whether its texts stand to the left."""
    widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
    lines: list[str] = []
    for row in rows:
        cells = [_padded(text, width, left=side) for text, width, side in zip(row, widths, left, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def _width(text: str) -> int:
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _padded(text: str, width: int, *, left: bool) -> str:
    space = " " * (width - _width(text))
    return text + space if left else space + text
