"""The distribution that searches draw from which are right about a whole text."""

from __future__ import annotations

from dataclasses import dataclass

from .sample import Sample


@dataclass(frozen=True, kw_only=True)
class Target:
    """What `Exact`, `SMC` and `Importance` have in common: the model whose texts they draw.

    It is the model as `Sample` with these parameters draws from it where there is no constraint: temperature, top_k,
    top_p and min_p apply to all tokens, before any is refused. The target is that distribution over whole texts, EOS
    included, given that the text meets the constraint and has at most `max_tokens` tokens.
    """

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        checked = Sample(self.temperature, self.top_k, self.top_p, self.min_p)
        object.__setattr__(self, "top_k", checked.top_k)

    @property
    def n(self) -> int:
        """How many texts each prompt gets."""
        raise NotImplementedError

    @property
    def rows(self) -> int:
        """How many texts the model may read at once for a prompt."""
        raise NotImplementedError

    @property
    def is_filtered(self) -> bool:
        """Whether some tokens are left out whatever the constraint says."""
        return self.top_k is not None or self.top_p < 1 or self.min_p > 0
