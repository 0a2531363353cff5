"""Command-line options of searches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from ..sampling import BEAM_OPTIONS, SAMPLE_OPTIONS, NumberOption
from .flags import BiasType, NumberType, flag_of, with_options

if TYPE_CHECKING:
    from ..engine.search import Beam, Search, Target


_SEARCH_OF_OPTION = {"attempts": "exact", "parallel": "exact", "particles": "smc", "ess": "smc", "resampling": "smc"}
_CONTROLS = ("no_repeat_ngram_size", "repetition_penalty", "min_tokens", "frequency_penalty", "presence_penalty")


@dataclass(frozen=True)
class SearchOptions:
    """Options of sampling, beam search, controls and samplers of whole texts; None if not given."""

    random: dict[str, Any]
    beams: dict[str, Any]
    controls: dict[str, Any]
    drawing: dict[str, Any]
    kind: str | None
    width: int | None
    samples: int

    @property
    def uses_drafts(self) -> bool:
        """True if texts are generated token by token, so that drafts apply."""
        return self.width is None and self.kind is None

    def options(self) -> dict[str, Any]:
        """Return options of a call. The search is greedy by default."""
        return {"search": self._search(), **_without_none(self.controls)}

    def _search(self) -> Search | Beam | Target:
        from ..engine.search import Beam, Greedy, Sample

        random, beams, drawing = _without_none(self.random), _without_none(self.beams), _without_none(self.drawing)
        if random.get("temperature") == 0:
            if self.kind is not None or self.samples > 1:
                flag = f"-n {self.samples}" if self.kind is None else f"--search {self.kind}"
                raise click.UsageError(
                    f"{flag} samples texts, but --temperature 0 always takes the likeliest tokens; leave one of them "
                    "out"
                )
            random = {}  # ineffective in greedy search
        if self.kind is not None:
            if self.width is not None or beams:
                raise click.UsageError(
                    f"--search {self.kind} and --beams exclude each other; leave out --beams and its options"
                )
            return self._target(self.kind, random, drawing)
        if drawing:
            raise click.UsageError(f"{_flags(drawing)} needs --search {_SEARCH_OF_OPTION[next(iter(drawing))]}")
        if self.width is not None:
            if random:
                raise click.UsageError(
                    f"--beams searches for the likeliest texts without sampling; leave out {_flags(random)}"
                )
            return Beam(self.width, n=self.samples, **beams)
        if beams:
            raise click.UsageError(f"{_flags(beams)} needs --beams WIDTH")
        return Sample(**random, n=self.samples) if random or self.samples > 1 else Greedy()

    def _target(self, kind: str, random: dict[str, Any], drawing: dict[str, Any]) -> Target:
        """Return a sampler of whole texts."""
        from ..engine.search import SMC, Exact, Importance

        for name in drawing:
            if _SEARCH_OF_OPTION[name] != kind:
                raise click.UsageError(f"{_flags({name: None})} needs --search {_SEARCH_OF_OPTION[name]}")
        if kind == "exact":
            return Exact(self.samples, **drawing, **random)
        return SMC(n=self.samples, **drawing, **random) if kind == "smc" else Importance(self.samples, **random)


def _option(name: str, option: NumberOption) -> Callable[[Any], Any]:
    """Return the flag of an option of `Sample` or `Beam`."""
    if name == "temperature":
        about = f"{option.about} [default: 0, the likeliest tokens]"
        return click.option("--temperature", "--temp", type=NumberType(0, option.most), help=about)
    about = f"{option.about} Needs --beams." if name in BEAM_OPTIONS else option.about
    numbers = NumberType(option.least, option.most, above=option.is_open)
    kind = click.IntRange(int(option.least)) if option.is_whole else numbers
    return click.option(flag_of(name), type=kind, help=about)


_OPTIONS = (
    *(_option(*each) for each in SAMPLE_OPTIONS.items()),
    click.option(
        "--beams",
        "width",
        type=click.IntRange(1),
        metavar="WIDTH",
        help="Search for the likeliest texts by beam search.",
    ),
    *(_option(*each) for each in BEAM_OPTIONS.items()),
    click.option(
        "--early-stopping",
        type=click.Choice(["no", "yes", "never"]),
        help="With --beams: whether to stop at WIDTH finished texts; never: only stop when no better one is possible.",
    ),
    click.option(
        "--search",
        "target",
        type=click.Choice(["exact", "smc", "importance"]),
        help="Sample whole texts from the model's distribution given the constraint: exactly; by particles; with "
        "weights.",
    ),
    click.option("--attempts", type=click.IntRange(1), help="With --search exact: most attempts at a text."),
    click.option("--parallel", type=click.IntRange(1), help="With --search exact: attempts in parallel."),
    click.option("--particles", type=click.IntRange(1), help="With --search smc: number of particles."),
    click.option(
        "--ess",
        type=NumberType(0, 1),
        help="With --search smc: resample below this share of effective particles. [default: 0.5]",
    ),
    click.option(
        "--resampling", type=click.Choice(["systematic", "stratified"]), help="With --search smc: resampling scheme."
    ),
    click.option(
        "-n",
        "samples",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        help="Texts for each prompt: random, or the best.",
    ),
    click.option(
        "--no-repeat-ngram-size", type=click.IntRange(0), metavar="N", help="No N consecutive tokens occur twice."
    ),
    click.option(
        "--repetition-penalty",
        type=NumberType(0, above=True),
        help="Above 1: tokens that have occurred before are less likely.",
    ),
    click.option(
        "--min-tokens",
        type=click.IntRange(0),
        help="Fewest tokens of an output, if the constraint allows them.",
    ),
    click.option(
        "--frequency-penalty",
        type=NumberType(-2, 2),
        help="Above 0: each occurrence in the output makes a token less likely.",
    ),
    click.option(
        "--presence-penalty",
        type=NumberType(-2, 2),
        help="Above 0: tokens that occur in the output are less likely.",
    ),
    click.option(
        "--logit-bias",
        type=BiasType(),
        multiple=True,
        metavar="TOKEN=NUMBER",
        help="Add to the score of a token, an id or a text such as '\" the\"'; -inf bans it; repeatable.",
    ),
)


def search_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the search options to a subcommand, which gets them as `searching`."""

    @wraps(function)
    def command(*args: Any, width: int | None, early_stopping: str | None, samples: int, **others: Any) -> Any:
        stopping = None if early_stopping is None else {"no": False, "yes": True}.get(early_stopping, early_stopping)
        searching = SearchOptions(
            {name: others.pop(name) for name in SAMPLE_OPTIONS},
            {name: others.pop(name) for name in BEAM_OPTIONS} | {"early_stopping": stopping},
            {name: others.pop(name) for name in _CONTROLS} | {"logit_bias": _biases(others.pop("logit_bias"))},
            {name: others.pop(name) for name in _SEARCH_OF_OPTION},
            others.pop("target"),
            width,
            samples,
        )
        return function(*args, searching=searching, **others)

    return with_options(command, _OPTIONS)


def _biases(pairs: Sequence[tuple[int | str, float]]) -> dict[int | str, float] | None:
    """Return the biases of all flags by token."""
    for number, (token, _) in enumerate(pairs):
        if any(token == other for other, _ in pairs[:number]):
            raise click.UsageError(f"--logit-bias: duplicate token {token!r}; give each token once")
    return dict(pairs) or None


def _without_none(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _flags(options: dict[str, Any]) -> str:
    return ", ".join(map(flag_of, options))
