"""What generation gives back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from ..guides.source import Span
    from .diagnostics import Diagnostics
    from .search.trace import SearchTrace

FinishReason = Literal["complete", "stop", "length"]


@dataclass(frozen=True)
class Generation:
    """One generated text.

    value: the text in its Python type; token_ids: without EOS and stop ids
    overlap: how many bytes of the first of token_ids are the end of the prompt, which was healed; 0 for most
    finish_reason: "complete" (EOS, or the constraint is met and the text ends), "stop" (a stop string or id),
        "length" (max_tokens)
    logprobs, raw_logprobs: natural logarithms of the tokens' probabilities among the allowed tokens, and
        among all, at temperature 1; None unless asked for
    score: the sum of logprobs and of that of EOS, where it was chosen, and of those of tokens within a prompt's end
        that was generated again; None likewise; of a text found by beam search,
        always what it was ranked by, see `Beam`
    spans: where the quoted strings of a JSON value stand, by their JSON pointers, and the quotations of a grammar,
        as "/name/0" for the first from the context `name`; empty if nothing was to be quoted
    overruled: which of no_repeat_ngram_size and min_tokens did not hold, because the constraint left nothing else
    diagnostics: what the constraint did to each token; None unless asked for
    unmet: the goals of `include` that the text does not meet; there are some only where a stop string cut it short
    trace: how the beam search went that found it; one for all results of a prompt; None unless asked for
    """

    text: str
    value: Any
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    overlap: int = 0
    logprobs: tuple[float, ...] | None = None
    raw_logprobs: tuple[float, ...] | None = None
    score: float | None = None
    spans: Mapping[str, Span] = field(default_factory=dict[str, "Span"])
    overruled: tuple[str, ...] = ()
    diagnostics: Diagnostics | None = None
    unmet: tuple[str, ...] = ()
    trace: SearchTrace | None = None


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during generation. `finished` has an entry for every prompt: its result, None if unfinished."""

    def __init__(self, finished: Sequence[Any]) -> None:
        done = sum(result is not None for result in finished)
        super().__init__(f"{done} of {len(finished)} prompts were finished; see .finished")
        self.finished = list(finished)
