"""Searches: parameters, token choice, hypotheses, traces of beam search, and stop strings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from itertools import chain, zip_longest
from typing import Any, Literal, Protocol
from unicodedata import east_asian_width

from torch import Tensor

from ..checks import check_int, check_number
from ..errors import OptionError
from ..guides.explain import visible
from ..guides.pictures import Arrow, Picture, PictureNode
from ..kernels.logits.select import masked_argmax, masked_sample
from ..sampling import BEAM_OPTIONS, SAMPLE_OPTIONS
from ..tokenizers_adapter import Vocabulary
from .scores import Ranked, Trace, as_list

FinishReason = Literal["complete", "stop", "length"]


class StopStrings:
    """Incremental search for the first of several stop strings."""

    def __init__(self, strings: Iterable[str]) -> None:
        self.strings = tuple(string.encode() for string in strings)
        if not all(self.strings):
            raise OptionError("stop: an empty string would end every text before it begins")
        self._longest = max(map(len, self.strings), default=0)

    def __bool__(self) -> bool:
        return bool(self.strings)

    def also(self, string: str) -> StopStrings:
        """Return the stop strings with another one, or the same if it is empty."""
        return StopStrings([*(each.decode() for each in self.strings), string]) if string else self

    def find(self, text: bytes | bytearray, known: int) -> int:
        """Return the position of the first stop string in `text`, -1 if there is none.

        known: the first `known` bytes contain no complete stop string
        """
        begin = max(0, known - self._longest + 1)
        found = [at for string in self.strings if (at := text.find(string, begin)) >= 0]
        return min(found, default=-1)

    def safe(self, text: bytes | bytearray) -> int:
        """Return the number of bytes of `text` before a possible beginning of a stop string."""
        for begin in range(max(0, len(text) - self._longest + 1), len(text)):
            tail = bytes(text[begin:])
            if any(string.startswith(tail) for string in self.strings):
                return begin
        return len(text)


UNUSABLE = -1


class Search(Protocol):
    """A search: validated parameters and the choice of the next token."""

    @property
    def n(self) -> int:
        """Number of texts for each prompt."""
        ...

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """Return the column chosen in each row of `logits`, float32 [rows, columns]; -1 if none can be.

        masks: int32 [rows, ceil(columns / 32)], bit c % 32 of word c // 32 allows column c; None allows all
        draws: one uniform random number for each row
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Hypothesis:
    """A partial or finished text of a search with several texts.

    inside: number of tokens inside the healed prompt tail
    """

    tokens: tuple[int, ...]
    text: bytes
    state: int
    inside: int = 0
    finish: FinishReason | None = None


MANY = 1 << 16
"""Greatest number of texts for a prompt."""


@dataclass(frozen=True)
class Sample:
    """Random tokens among the allowed ones, by their probability.

    temperature: divides the logits; below 1 sharpens
    top_k: keep only the k most likely tokens
    top_p: keep only the most likely tokens that together reach probability p
    min_p: keep only tokens at least min_p times as likely as the most likely one
    n: number of texts for each prompt

    The filters apply in this order, to the allowed tokens.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0
    n: int = 1

    def __post_init__(self) -> None:
        for name, option in SAMPLE_OPTIONS.items():
            value = getattr(self, name)
            if value is not None or getattr(Sample, name) is not None:  # None is the default of some
                object.__setattr__(self, name, option.checked(value, name))
        object.__setattr__(self, "n", check_int(self.n, "n", 1, MANY))

    @property
    def is_filtered(self) -> bool:
        """True if a filter may remove unlikely tokens."""
        return self.top_k is not None or self.top_p < 1 or self.min_p > 0

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """Draw a column of each row by inverting the distribution function. See `Search.pick`."""
        choice = masked_sample(
            logits,
            draws,
            masks,
            temperature=self.temperature,
            top_k=self.top_k or 0,
            top_p=self.top_p,
            min_p=self.min_p,
        )
        return as_list(choice.tokens)


@dataclass(frozen=True)
class Greedy:
    """The most likely of the allowed tokens in each step; of equal ones, the lowest id."""

    @property
    def n(self) -> int:
        """Number of texts for each prompt: 1."""
        return 1

    def pick(self, logits: Tensor, masks: Tensor | None, draws: Sequence[float]) -> list[int]:
        """Return the column of the greatest allowed logit in each row. See `Search.pick`."""
        return as_list(masked_argmax(logits, masks).tokens)


WIDEST = 1 << 10


@dataclass(frozen=True, kw_only=True)
class Target:
    """The base of `Exact`, `SMC` and `Importance`: the target distribution of their texts.

    It is the model's distribution of whole texts, EOS included, as `Sample` with these parameters draws them without a
    constraint, conditioned on meeting the constraint within `max_tokens` tokens. temperature, top_k, top_p and min_p
    apply to all tokens, before any mask.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "top_k", Sample(**self.random).top_k)

    @property
    def random(self) -> dict[str, Any]:
        """The sampling parameters by name, as of `Sample`."""
        return {each.name: getattr(self, each.name) for each in fields(Target)}

    @property
    def n(self) -> int:
        """Number of texts for each prompt."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """Greatest number of texts that the model reads at once for a prompt."""
        raise NotImplementedError

    @property
    def is_filtered(self) -> bool:
        """True if a filter removes tokens regardless of the constraint."""
        return Sample(**self.random).is_filtered


MAX_PARTICLES = 1 << 14

Potential = Callable[[str, bool], float | bool]
"""A function of a partial text and of True if it is complete. It returns a log-weight, or a bool to accept or
reject."""


@dataclass(frozen=True)
class Exact(Target):
    """`n` independent texts, distributed as the model's own given that they meet the constraint within `max_tokens`.

    Attempts are rejected where the model alone would leave the constraint. Later attempts use what earlier ones learnt
    about the prompt's texts, in later calls too unless they have a seed, which reproduces. If the model hardly ever
    stays within
    the constraint this takes long: use `SMC` then.
    parallel: most attempts at once; attempts: most attempts for each text, beyond which SamplingError is raised
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    Source: P. Parys and others, "Constrained Adaptive Rejection Sampling" (2025), with a mask's mass in place of the
    token that the mask refuses.
    """

    n: int = 1  # pyright: ignore[reportIncompatibleMethodOverride]
    parallel: int = 8
    attempts: int = 10_000

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n", check_int(self.n, "n", 1, MANY))
        object.__setattr__(self, "parallel", check_int(self.parallel, "parallel", 1, WIDEST))
        object.__setattr__(self, "attempts", check_int(self.attempts, "attempts"))

    @property
    def rows(self) -> int:
        """The attempts, and their prompt."""
        return self.parallel + 1


@dataclass(frozen=True)
class Importance(Target):
    """`n` texts drawn under the masks as by `Sample`, each with the importance weight that corrects for the masks.

    A weight is the product of the masks' probability masses, step by step. Weighted means are means over the model's
    texts that meet the constraint. The mean weight is an unbiased estimate of the probability that the model writes
    such a text. Results have `log_weight`, `log_z`, `ess`, `distance`.
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    """

    n: int = 16  # pyright: ignore[reportIncompatibleMethodOverride]

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n", check_int(self.n, "n", 1, MAX_PARTICLES))

    @property
    def rows(self) -> int:
        """Number of texts at once."""
        return self.n


@dataclass(frozen=True)
class SMC(Target):
    """Sequential Monte Carlo: `particles` texts at once, weighted as by `Importance`, and resampled.

    If the effective number of particles falls below the share `ess` of them, particles are resampled by weight.
    n: number of texts returned; 0 for all, each with its `log_weight`. Fewer are drawn by weight, and are unweighted
    potential: further weights, `potential(text, complete)`: the natural logarithm of a weight, -inf to reject a text,
        or True or False; of partial texts it guides the search, of complete ones it defines the target
    accepts: a predicate `accepts(text, complete)` for each token: a token after which it is False is replaced by
        another draw
    resampling: "systematic" or "stratified"
    temperature, top_k, top_p, min_p: of the model's distribution, see `Target`; by name
    Sources: A. Lew and others, "Sequential Monte Carlo Steering of Large Language Models" (2023); of `accepts`, B.
    Lipkin and others, "Fast Controlled Generation from Language Models with Adaptive Weighted Rejection Sampling"
    (2025), their geometric estimate of the accepted mass.
    """

    particles: int = 16
    n: int = 0  # pyright: ignore[reportIncompatibleMethodOverride]
    potential: Potential | None = None
    accepts: Potential | None = None
    ess: float = 0.5
    resampling: Literal["systematic", "stratified"] = "systematic"

    def __post_init__(self) -> None:
        super().__post_init__()
        particles = check_int(self.particles, "particles", 1, MAX_PARTICLES)
        object.__setattr__(self, "particles", particles)
        object.__setattr__(self, "n", check_int(self.n, "n", 0, particles) or particles)
        for name in ("potential", "accepts"):
            value = getattr(self, name)
            if value is not None and not callable(value):
                raise OptionError(
                    f"{name}={value!r}: expected a function of the text so far and of whether it is complete"
                )
        meaning = "a share of the particles from 0 (never resample) to 1"
        if not 0 <= check_number(self.ess, "ess", meaning) <= 1:
            raise OptionError(f"ess={self.ess!r}: {meaning}")
        if self.resampling not in ("systematic", "stratified"):
            raise OptionError(f'resampling={self.resampling!r}: expected "systematic" or "stratified"')

    @property
    def rows(self) -> int:
        """Number of texts at once."""
        return self.particles


@dataclass(frozen=True)
class Beam:
    """Beam search: the `width` most likely partial texts are continued; the `n` best finished texts are returned.

    A text's score is the sum of the model's log-probabilities of its tokens, EOS included, divided by (number
    of tokens, EOS included) ** `length_penalty`: above 0 favours long texts, below 0 short ones.
    early_stopping: when a prompt is done. False: once `width` texts are finished and the best beam, scored at its
        present length, is no better than the worst of them. True: once `width` texts are finished. "never": as False,
        but a beam is scored at the length most favourable to it, so that nothing better is missed.
    sibling_penalty: above 0, beams differ more: where beams are chosen, it is subtracted from the log-probability of a
        candidate once for each likelier candidate that continues the same beam. Scores do not contain it. Source: J. Li
        and others, "A Simple, Fast Diverse Decoding Algorithm for Neural Generation" (2016).
    n: texts for each prompt, best first, each with its score; fewer if no more are found. Under a constraint, equal
        texts with different tokens count once, with the best score.
    Without a sibling penalty, scores and search are those of transformers' `generate(num_beams=width)`.
    """

    width: int
    length_penalty: float = 1.0
    n: int = 1
    early_stopping: bool | Literal["never"] = False
    sibling_penalty: float = 0.0

    def __post_init__(self) -> None:
        width = check_int(self.width, "width")
        object.__setattr__(self, "width", width)
        n = check_int(self.n, "n")
        if n > width:
            raise OptionError(
                f"n={self.n!r}: expected a whole number from 1 to width={width}; wider beams find more texts"
            )
        object.__setattr__(self, "n", n)
        for name, option in BEAM_OPTIONS.items():
            object.__setattr__(self, name, option.checked(getattr(self, name), name))
        stopping: Any = self.early_stopping
        if not isinstance(stopping, (bool, str)) or stopping not in (False, True, "never"):
            raise OptionError(f'early_stopping={self.early_stopping!r}: expected False, True or "never"')

    def score(self, total: float, length: int) -> float:
        """Return the ranking score of a text of `length` tokens with log-probability `total`."""
        return total / length**self.length_penalty


@dataclass(frozen=True, slots=True)
class BeamHypothesis(Hypothesis):
    """A hypothesis of beam search.

    total: its log-probability; length: tokens including EOS or stop id, which `tokens` lacks
    overruled: repetition and length controls that did not hold
    logprobs: of each token, among the allowed ones and among all; empty unless requested
    best: top log-probabilities at each token, of both; traces: diagnostics; empty unless requested
    """

    total: float = 0.0
    length: int = 0
    overruled: frozenset[str] = frozenset()
    logprobs: tuple[tuple[float, float], ...] = ()
    best: tuple[tuple[Ranked, Ranked], ...] = ()
    traces: tuple[Trace, ...] = ()


class FinishedBeams:
    """The best finished hypotheses of a prompt, at most `width`, best first.

    budget: most tokens of an output; by_text: equal texts with different tokens count once
    """

    def __init__(self, search: Beam, budget: int, by_text: bool) -> None:
        self._search = search
        self._budget = budget
        self._by_text = by_text
        self.best: list[tuple[float, BeamHypothesis]] = []

    def add(self, hypotheses: list[BeamHypothesis]) -> None:
        """Add hypotheses that finished in the same step."""
        scored = [(self._search.score(one.total, one.length), one) for one in hypotheses]
        ranked = sorted([*self.best, *scored], key=lambda entry: -entry[0])
        if self._by_text:
            first: dict[bytes, tuple[float, BeamHypothesis]] = {}
            for entry in ranked:
                first.setdefault(entry[1].text, entry)
            ranked = list(first.values())
        self.best = ranked[: self._search.width]

    def settled(self, leader: BeamHypothesis) -> bool:
        """Test whether the search ends even though `leader`, the best running beam, could continue."""
        search = self._search
        if len(self.best) < search.width:
            return False
        if search.early_stopping is True:
            return True
        longest = search.early_stopping == "never" and search.length_penalty > 0
        hoped = search.score(leader.total, self._budget if longest else leader.length)
        return hoped <= self.best[-1][0]


def round_robin(progress: Sequence[int], count: int) -> list[int]:
    """Select up to `count` candidates from banks in turn. Return their indices in order of selection.

    progress: progress of each candidate with its goals, the most likely candidate first

    Candidates of equal progress form a bank. The first of each bank is selected, from the most progress down, then the
    second of each, and so on. Source: C. Huang, "Guiding Text Generation with Constrained Beam Search in
    Transformers" (Hugging Face 2022), after M. Post and D. Vilar, "Fast Lexically Constrained Decoding with Dynamic
    Beam Allocation for Neural Machine Translation" (2018).
    """
    banks: dict[int, list[int]] = {}
    for place, steps in enumerate(progress):
        banks.setdefault(steps, []).append(place)
    rounds = zip_longest(*(banks[steps] for steps in sorted(banks, reverse=True)))
    return [place for place in chain.from_iterable(rounds) if place is not None][:count]


COLUMNS = ("step", "beam", "parent", "token", "logprob", "bank", "finished", "score")
_LEFT = [column in ("token", "finished") for column in COLUMNS]


@dataclass(frozen=True)
class TracedBeam:
    """A hypothesis that was kept or finished in a step.

    parent: number of the continued beam in the step before; None in the first step
    token_id, token: its last token, and the token's text; None for tokens without text such as EOS
    logprob: log-probability of the whole hypothesis under the model; score: its ranking score, see `Beam`
    bank: progress with the goals of `include`; None without goals
    finish_reason: None if unfinished
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

    steps: the beams of each step, in order of selection, followed by those that finished
    best: for each result, best first, the step in which it finished and its number there
    """

    steps: tuple[tuple[TracedBeam, ...], ...]
    best: tuple[tuple[int, int], ...]

    def path(self, result: int = 0) -> list[int]:
        """Return the numbers, step by step, of the beams that led to a result."""
        step, number = self.best[result]
        numbers = [number]
        while (parent := self.steps[step][numbers[-1]].parent) is not None:
            numbers.append(parent)
            step -= 1
        return numbers[::-1]

    def __str__(self) -> str:
        """Return an aligned table. Spaces in tokens are shown as ␣, and * marks the path of the best result."""
        highlighted = set(enumerate(self.path()))
        rows: list[list[str]] = [[*COLUMNS]]
        for step, beams in enumerate(self.steps):
            for place, beam in enumerate(beams):
                mark = "*" if (step, place) in highlighted else ""
                rows.append([str(step), f"{mark}{place}", *_cells(beam)])
        return aligned(rows, _LEFT)

    def __repr__(self) -> str:
        return f"<SearchTrace of {len(self.steps)} steps>"

    def to_svg(self) -> str:
        """Return a tree with a column for each step. The path of the best result is highlighted."""
        nodes, arrows = [PictureNode("prompt", "rule")], list[Arrow]()
        first: list[int] = []  # the node of beam 0 of each step
        for step, beams in enumerate(self.steps):
            first.append(len(nodes))
            for beam in beams:
                parent = 0 if beam.parent is None else first[step - 1] + beam.parent
                arrows.append(Arrow(parent, len(nodes)))
                nodes.append(PictureNode(_name(beam), "rule", _note(beam)))
        highlighted = {0, *(first[step] + number for step, number in enumerate(self.path()))}
        return Picture(tuple(nodes), tuple(arrows), 0, frozenset(highlighted)).to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()


class Recorder:
    """A recorder of a beam search."""

    def __init__(self, search: Beam, vocabulary: Vocabulary) -> None:
        self._search = search
        self._vocabulary = vocabulary
        self._steps: list[tuple[TracedBeam, ...]] = []
        self._numbers: dict[int, int] = {}  # of the last step's beams by id
        self._finished: list[tuple[BeamHypothesis, int, int]] = []

    def add(self, chosen: Iterable[tuple[BeamHypothesis, int, BeamHypothesis, int | None]]) -> None:
        """Add a step: parent, last token, hypothesis and bank of each. Unfinished ones come first."""
        step = len(self._steps)
        beams: list[TracedBeam] = []
        numbers: dict[int, int] = {}
        ordered = sorted(chosen, key=lambda entry: entry[2].finish is not None)
        for place, (parent, token, after, bank) in enumerate(ordered):
            if after.finish is None:
                numbers[id(after)] = place
            else:
                self._finished.append((after, step, place))
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
        """Return the trace of a search with these results."""
        places = {id(one): (step, number) for one, step, number in self._finished}
        return SearchTrace(tuple(self._steps), tuple(places[id(one)] for one in best))


def _name(beam: TracedBeam) -> str:
    if beam.token is None:
        return "EOS" if beam.finish_reason == "complete" else f"token {beam.token_id}"
    return visible(beam.token).replace(" ", "␣")


def _cells(beam: TracedBeam) -> list[str]:
    """Return the cells of a beam's row after the first two columns."""
    parent, bank = ("" if value is None else str(value) for value in (beam.parent, beam.bank))
    score = "" if beam.finish_reason is None else f"{beam.score:.3f}"
    return [parent, _name(beam), f"{beam.logprob:.3f}", bank, beam.finish_reason or "", score]


def _note(beam: TracedBeam) -> str:
    """Return the note under a node."""
    parts = [f"{beam.logprob:.2f}"]
    if beam.bank is not None:
        parts.append(f"bank {beam.bank}")
    if beam.finish_reason is not None:
        parts.append(f"{beam.finish_reason}: {beam.score:.2f}")
    return ", ".join(parts)


def aligned(rows: Sequence[Sequence[str]], left: Sequence[bool]) -> str:
    """Format rows of cells as lines. left: True for columns that are aligned to the left"""
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
