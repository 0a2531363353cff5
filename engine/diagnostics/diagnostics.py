"""Diagnostics of one text: its steps, their summary, and output formats."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, overload

from ...errors import OptionError
from ...guides.protocol import Guide
from ...tokenizers_adapter import Vocabulary
from ..scores import Trace
from ..search import FinishReason
from .hints import LOW_MASS, Hint, hints, warning
from .page import SHOWN, STYLE, page, plain, rich_table, section
from .step import COLUMNS, Bias, Step, Words

WORST = 5


@dataclass(frozen=True)
class Summary:
    """Totals of the steps of a text.

    tokens: number of tokens, including a chosen EOS; forced: number of tokens without alternative
    logprob, raw_logprob: log-probability of the text under the constraint step by step, and under the model alone
    log_feasible_mass: natural logarithm of the probability that the model alone stays within the constraint along this
        path; equals raw_logprob - logprob, the log importance weight of a text sampled at temperature 1
    worst: the steps of least feasible mass, below one half, least first; hints: advice
    log_weight: log_feasible_mass at the temperature of `Sample`, the log importance weight of the text; None as for
        `Step.log_weight`
    bias: the estimated bias of masked sampling from all samples of the prompt; None for a single text
    """

    tokens: int
    forced: int
    logprob: float
    raw_logprob: float
    log_feasible_mass: float
    worst: tuple[Step, ...]
    hints: tuple[Hint, ...]
    log_weight: float | None = None
    bias: Bias | None = None

    def __str__(self) -> str:
        lines = [
            f"{self.tokens} token{'s' if self.tokens != 1 else ''}, {self.forced} forced; "
            f"log-probability {self.logprob:z.2f} under the constraint, {self.raw_logprob:z.2f} without; "
            f"log feasible mass {self.log_feasible_mass:z.2f}"
        ]
        if self.worst:
            lines.append(
                "worst: " + ", ".join(f"token {step.position} (mass {step.feasible_mass:.2g})" for step in self.worst)
            )
        if self.bias is not None:
            lines.append(f"sampling: {self.bias}")
        return "\n".join([*lines, *(f"hint: {hint}" for hint in self.hints)])


@dataclass(frozen=True, repr=False)
class Diagnostics(Sequence[Step]):
    """Effects of the constraint on each token of one text: a sequence of `Step`, including a chosen EOS.

    `str` and `print` give a table, `show` a coloured one on a terminal, notebooks the page of `to_html`.
    """

    steps: tuple[Step, ...]
    finish_reason: FinishReason
    _words: Words = field(compare=False)
    bias: Bias | None = None

    @classmethod
    def of(
        cls, traces: Sequence[Trace], vocabulary: Vocabulary, guide: Guide | None, finish: FinishReason
    ) -> Diagnostics:
        """Return the diagnostics of a finished sequence."""
        words = Words(guide)
        return cls(tuple(Step.of(i, trace, vocabulary, words) for i, trace in enumerate(traces)), finish, words)

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        return self.steps[index]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @staticmethod
    def together(several: Sequence[Diagnostics]) -> list[Diagnostics]:
        """Return the diagnostics of all samples of one prompt, each with their common `bias` if it is known."""
        weights = [one._log_weight for one in several]
        known = [weight for weight in weights if weight is not None]
        if len(known) < max(2, len(several)):
            return list(several)
        bias = Bias.of(known)
        return [replace(one, bias=bias) for one in several]

    @property
    def _log_weight(self) -> float | None:
        found = 0.0
        for step in self.steps:
            if step.log_weight is None:
                return None
            found += step.log_weight
        return found

    @cached_property
    def summary(self) -> Summary:
        """Totals of the steps."""
        steps = self.steps
        low = sorted((step for step in steps if step.feasible_mass < LOW_MASS), key=lambda step: step.log_feasible_mass)
        return Summary(
            tokens=len(steps),
            forced=sum(step.forced for step in steps),
            logprob=sum(step.logprob for step in steps),
            raw_logprob=sum(step.raw_logprob for step in steps),
            log_feasible_mass=sum(step.log_feasible_mass for step in steps),
            worst=tuple(low[:WORST]),
            hints=hints(steps, self._words.guide, self.finish_reason, self.bias),
            log_weight=self._log_weight,
            bias=self.bias,
        )

    @cached_property
    def warning(self) -> str | None:
        """A line on the step where the constraint may have overruled the model, with what the model wanted, and advice.

        None if the model kept at least a twentieth of its probability wherever there was a choice.
        """
        return warning(self.steps, self._words.guide)

    def table(self, *columns: str) -> str:
        """Return the steps as an aligned table, with these columns of `to_dicts`. Raises OptionError for unknown
        columns."""
        unknown = [column for column in columns if column not in COLUMNS]
        if unknown:
            raise OptionError(f"{unknown[0]!r} is not a column; the columns are {', '.join(COLUMNS)}")
        return plain(self.steps, columns or SHOWN)

    def __str__(self) -> str:
        return f"{self.table()}\n{self.summary}"

    def __repr__(self) -> str:
        return f"<Diagnostics of {len(self)} tokens, log feasible mass {self.summary.log_feasible_mass:.2f}>"

    def __rich__(self) -> Any:
        return rich_table(self.steps, str(self.summary))

    def show(self) -> None:
        """Print the table, in colours on a terminal if the package rich is installed."""
        if sys.stdout.isatty():
            try:
                import rich
            except ImportError:
                pass
            else:
                rich.print(self)
                return
        print(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return a JSON-compatible dict for each step."""
        return [step.to_dict() for step in self.steps]

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame with a row for each step. Raises OptionError if pandas is not installed."""
        try:
            import pandas  # pyright: ignore[reportMissingTypeStubs]
        except ImportError:
            raise OptionError("to_pandas needs pandas: pip install pandas, or use to_dicts()") from None
        return pandas.DataFrame(self.to_dicts(), columns=list(COLUMNS))

    def to_html(self, title: str = "trellm diagnostics") -> str:
        """Return a self-contained page: the text, with tokens tinted by feasible mass, and the table."""
        return page([(title, self.to_section())])

    def to_section(self) -> str:
        """Return the text's section of a page. `page.page` joins several under their titles."""
        summary = self.summary
        headline = str(summary).partition("\n")[0]
        if summary.bias is not None:
            headline += f"; sampling: {summary.bias}"
        return section(self.steps, headline, summary.hints)

    def _repr_html_(self) -> str:
        return f"<style>{STYLE}</style>{self.to_section()}"

    def __getstate__(self) -> object:
        """Compute all lazy values before pickling, since the guide is not pickled."""
        self.summary  # noqa: B018
        for step in self.steps:
            step.expected  # noqa: B018
        return super().__getstate__()
