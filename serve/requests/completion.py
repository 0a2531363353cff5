"""What /v1/completions takes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ...engine.prompts.given import Prompt
from .constrained import Constrained

Ids = Annotated[list[Annotated[int, Field(ge=0, lt=2**31)]], Field(min_length=1, fail_fast=True)]


class Completion(Constrained):
    """The body of /v1/completions."""

    prompt: (
        str
        | Annotated[list[str], Field(min_length=1, fail_fast=True)]
        | Ids
        | Annotated[list[Ids], Field(min_length=1, fail_fast=True)]
    )
    echo: Literal[False] | None = None
    best_of: Literal[1] | None = None
    logprobs: Annotated[int, Field(ge=0, le=20)] | None = None

    @property
    def prompts(self) -> list[Prompt]:
        """One or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if isinstance(self.prompt[0], int):
            return [tuple(self.prompt)]  # type: ignore[arg-type]
        return [each if isinstance(each, str) else tuple(each) for each in self.prompt]  # type: ignore[union-attr]

    @property
    def budget(self) -> int | None:
        """The most tokens of a text; 16 in OpenAI's API where it is not said, here as for chats."""
        return self.max_tokens

    @property
    def budget_field(self) -> str:
        """Which field says that."""
        return "max_tokens"

    @property
    def scores(self) -> int | bool | None:
        """True for the log-probabilities of tokens, a number for the likeliest ones too."""
        return True if self.logprobs == 0 else self.logprobs
