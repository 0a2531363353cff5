"""What a call may say beyond its prompts: every option is declared, documented and checked here, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, Self, TypedDict

from ..errors import OptionError
from ..guides.goals.specs import Goal, goals_of
from .randomness import fresh_seed
from .repetition import Controls
from .search import Beam, Greedy, Search

GREEDY = Greedy()


class TextOptions(TypedDict, total=False):
    """Types of the options that everything takes, `stream` included; see `Options`."""

    max_tokens: int | None
    search: Search | Beam
    include: str | Goal | Sequence[str | Goal]
    seed: int | Sequence[int] | None
    stop: str | Sequence[str]
    stop_ids: Sequence[int]
    heal: bool
    no_repeat_ngram_size: int
    repetition_penalty: float
    min_tokens: int


class CallOptions(TextOptions, total=False):
    """Types of the options of a call and of `generate.batch`."""

    batch_size: int
    progress: bool | None


class RunOptions(CallOptions, total=False):
    """Types of the options of `run`, which returns more than values."""

    logprobs: bool
    diagnostics: bool
    trace: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a call, with their defaults. Raises OptionError for unknown names and wrong values.

    max_tokens: most tokens of an output, EOS not counted; a constrained output is complete within them. By
        default 256 more than the shortest output takes, or what the context leaves.
    search: `Greedy()`, `Sample(...)` or `Beam(...)`.
    include: what the text must contain by its end: a string or another goal, or several in a list, see "Goals". The
        text is complete only then, and the last tokens of its budget are spent on what is missing.
    seed: makes samples reproducible, whatever else is in the batch: one number for all prompts (equal prompts
        then get equal outputs), or a list with one for each. The model itself may round differently in
        batches of another size, which shows only where a draw falls within rounding of a boundary.
    stop, stop_ids: strings and token ids that end a free text; they are not part of it.
    heal: where a token may begin in the prompt and go on into the output, cut the prompt back, and generate its
        end again, as it was; outputs are returned without it. See docs/healing.md.
    no_repeat_ngram_size, repetition_penalty, min_tokens: no n tokens in a row come twice; tokens that were there
        already, in the prompt too, are less likely, the more the penalty is above 1; EOS is withheld for so many
        tokens. Where a constraint leaves nothing else it wins, and the result's `overruled` says so.
    batch_size: how many rows run at once; others join as these finish. With beams a prompt takes `width` rows.
    progress: show a bar on standard error; by default for several prompts on a terminal.
    logprobs: (`run` only) also compute the log-probabilities of the tokens, which costs time.
    diagnostics: (`run` only) also record what the constraint did to each token; see `Diagnostics`. Costs time.
    trace: (`run` only, with `Beam(...)`) also record the beams of every step; see `SearchTrace`.
    """

    max_tokens: int | None = None
    search: Search | Beam = GREEDY
    include: Any = ()
    seed: Any = None
    stop: Any = ()
    stop_ids: Sequence[int] = ()
    heal: bool = True
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    batch_size: int = 16
    progress: bool | None = None
    logprobs: bool = False
    diagnostics: bool = False
    trace: bool = False

    @classmethod
    def of(cls, kind: type, given: Mapping[str, Any]) -> Self:
        """The options `given`, whose names must be among those of `kind`, one of the classes above."""
        possible = list(kind.__annotations__)
        for name in given:
            if name not in possible:
                near = get_close_matches(name, possible, 1)
                hint = f"did you mean {near[0]}?" if near else f"possible here are {', '.join(possible)}"
                raise OptionError(f"{name}={given[name]!r}: there is no such option; {hint}")
        return cls(**given)

    def __post_init__(self) -> None:
        if self.max_tokens is not None and (type(self.max_tokens) is not int or self.max_tokens < 1):
            raise OptionError(f"max_tokens={self.max_tokens!r}: a whole number of at least 1, or None")
        if isinstance(self.search, type) or not (hasattr(self.search, "pick") or isinstance(self.search, Beam)):
            raise OptionError(f"search={self.search!r}: a search such as Greedy(), Sample(temperature=0.8) or Beam(4)")
        if self.trace and not isinstance(self.search, Beam):
            raise OptionError(
                f"trace=True with search={self.search!r}: a trace is of the beams; use search=Beam(4), or leave it out"
            )
        if type(self.batch_size) is not int or self.batch_size < 1:
            raise OptionError(f"batch_size={self.batch_size!r}: a whole number of at least 1")
        if not isinstance(self.heal, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(f"heal={self.heal!r}: True or False")
        goals_of(self.include)
        _ = self.controls  # checks its part of the options
        strings: list[Any] = [self.stop] if isinstance(self.stop, str) else list(self.stop)
        if not all(isinstance(string, str) for string in strings):
            raise OptionError(f"stop={self.stop!r}: a string or a list of strings")

    @cached_property
    def controls(self) -> Controls:
        """The controls of repetition and length."""
        return Controls(self.no_repeat_ngram_size, self.repetition_penalty, self.min_tokens)

    def seeds(self, count: int) -> list[int]:
        """One seed for each prompt."""
        if self.seed is None:
            return [fresh_seed() for _ in range(count)]
        if isinstance(self.seed, int):
            return [self.seed] * count
        seeds: list[Any] = list(self.seed)
        if len(seeds) != count or not all(isinstance(seed, int) for seed in seeds):
            raise OptionError(f"seed: a whole number, or one for each of the {count} prompts")
        return seeds
