"""Log-probabilities as OpenAI writes them: those of the model itself, whatever a constraint left to choose from."""

from __future__ import annotations

from typing import Any

from ...engine.results import Generation, Scores, TokenLogprob
from ...tokenizers_adapter import Vocabulary

LEAST = -9999.0
"""What stands for a token that could not be: JSON has no infinity."""


def scores_of(result: Generation[Any]) -> Scores | None:
    """Those of a finished text; None unless they were asked for."""
    if result.logprobs is None or result.raw_logprobs is None:
        return None
    return Scores(result.token_ids, result.logprobs, result.raw_logprobs, result.top_logprobs, result.raw_top_logprobs)


def of_chat(scores: Scores | None, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """What a choice of a chat says of its tokens."""
    if scores is None:
        return None
    tops = scores.raw_top_logprobs or ((),) * len(scores.token_ids)
    several = zip(scores.token_ids, scores.raw_logprobs, tops, strict=True)
    content = [
        _token(vocabulary.tokens[token], logprob)
        | {"top_logprobs": [_token(each.token, each.logprob) for each in best]}
        for token, logprob, best in several
    ]
    return {"content": content, "refusal": None}


def of_completion(scores: Scores | None, vocabulary: Vocabulary, offset: int = 0) -> dict[str, Any] | None:
    """What a choice of a completion says of its tokens. offset: of the first one in the text, in characters"""
    if scores is None:
        return None
    names = [_name(vocabulary.tokens[token]) for token in scores.token_ids]
    offsets: list[int] = []
    for name in names:
        offsets.append(offset)
        offset += len(name)
    tops = scores.raw_top_logprobs
    return {
        "tokens": names,
        "token_logprobs": [max(logprob, LEAST) for logprob in scores.raw_logprobs],
        "top_logprobs": None if tops is None else [_best(best) for best in tops],
        "text_offset": offsets,
    }


def _best(best: tuple[TokenLogprob, ...]) -> dict[str, float]:
    """By their names, of which several tokens may have the same: the likeliest counts."""
    found: dict[str, float] = {}
    for each in best:
        found.setdefault(_name(each.token), max(each.logprob, LEAST))
    return found


def _token(data: bytes | None, logprob: float) -> dict[str, Any]:
    return {"token": _name(data), "logprob": max(logprob, LEAST), "bytes": None if data is None else list(data)}


def _name(data: bytes | None) -> str:
    return "" if data is None else data.decode(errors="replace")
