"""Log-probabilities of a prompt's tokens, noted chunk by chunk as the prompt is read."""

from __future__ import annotations

import math

from ...errors import ModelError
from ..models.protocol import Hidden, Model
from ..scores import token_scores
from .forward_output import logits_of
from .sequence import SequenceState

AT_ONCE = 64 << 20
"""Bytes of logits that are held at once: with a vocabulary of 128k tokens those of 131 places."""


def score_prompt(model: Model, hidden: Hidden, first: int, sequence: SequenceState, count: int) -> None:
    """Note what the model said of each token of a prompt that follows one of the last `count` that were read.

    first: where in `hidden` those begin
    """
    prompt, read = sequence.request.start.prompt, len(sequence.table.tokens)
    assert len(sequence.prompt_scores) == read - count, "all of the prompt is read by the sequence itself"
    following, size = prompt[read - count + 1 : read + 1], max(1, AT_ONCE // (4 * model.vocabulary.size))
    for begin in range(0, len(following), size):
        tokens = following[begin : begin + size]
        places = range(first + begin, first + begin + len(tokens))
        logits = logits_of(model, hidden, places, None, lambda row: f"token {row - first} of {_chunk(sequence, count)}")
        found = token_scores(logits, tokens, sequence.request.prompt_best or 0)
        if any(math.isnan(each.logprob) for each in found):
            sequence.error = ModelError(f"the model's logits in {_chunk(sequence, count)} are NaN or infinite")
            return
        sequence.prompt_scores += found


def _chunk(sequence: SequenceState, count: int) -> str:
    return f"the {count} tokens of prompt {sequence.request.number} that begin at {len(sequence.table.tokens) - count}"
