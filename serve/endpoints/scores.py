"""Log-probabilities in OpenAI's and vLLM's formats: of the model, without the constraint."""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Any

from ...engine.handle import Piece
from ...engine.results import Generation, PromptToken, Scores, TokenLogprob
from ...tokenizers_adapter import Vocabulary

LEAST = -9999.0
"""Lowest log-probability in answers, since JSON has no infinity."""


def scores_of(result: Generation[Any]) -> Scores | None:
    """Return the scores of a finished sequence; None unless requested."""
    if result.logprobs is None or result.raw_logprobs is None:
        return None
    return Scores(result.token_ids, result.logprobs, result.raw_logprobs, result.top_logprobs, result.raw_top_logprobs)


def scores_in(piece: Piece) -> Scores | None:
    """Return the scores of a piece's tokens; None for none."""
    return None if piece.scores is None or not piece.scores.token_ids else piece.scores


def chat_scores(scores: Scores | None, vocabulary: Vocabulary) -> dict[str, Any] | None:
    """Return the log-probabilities of a chat's choice."""
    if scores is None:
        return None
    tops = scores.raw_top_logprobs or ((),) * len(scores.token_ids)
    several = zip(scores.token_ids, scores.raw_logprobs, tops, strict=True)
    content = [
        _token(vocabulary, token, logprob)
        | {"top_logprobs": [_token(vocabulary, each.token_id, each.logprob) for each in best]}
        for token, logprob, best in several
    ]
    return {"content": content, "refusal": None}


class TokenOffsets:
    """Counter of the offsets of successive tokens in a text, in characters. A token may begin inside a character.

    overlap: number of bytes that the first tokens have before the text
    """

    def __init__(self, overlap: int = 0) -> None:
        self._at, self.overlap = 0, overlap
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def next(self, data: bytes | None) -> int:
        """Return the offset of the next token. data: its bytes; None if it has none"""
        at, text = self._at, data or b""
        self._at += len(self._decoder.decode(text[self.overlap :]))
        self.overlap = max(0, self.overlap - len(text))
        return at


def completion_scores(
    scores: Scores | None,
    vocabulary: Vocabulary,
    offsets: TokenOffsets,
    prompt: Sequence[PromptToken] = (),
    k: int | None = None,
) -> dict[str, Any] | None:
    """Return the log-probabilities of a completion's choice.

    offsets: counter of the choice's text; prompt: echoed tokens before the output, each with its `k` best
    """
    if scores is None:
        return None
    tokens = [*(each.token_id for each in prompt), *scores.token_ids]
    before = [None if each.logprob is None else max(each.logprob, LEAST) for each in prompt]
    tops = scores.raw_top_logprobs
    best = [None if each.logprob is None else _best(vocabulary, each.top_logprobs[:k]) for each in prompt]
    return {
        "tokens": [_name(vocabulary, token) for token in tokens],
        "token_logprobs": [*before, *(max(logprob, LEAST) for logprob in scores.raw_logprobs)],
        "top_logprobs": None if tops is None else [*best, *(_best(vocabulary, each) for each in tops)],
        "text_offset": [offsets.next(vocabulary.tokens[token]) for token in tokens],
    }


def prompt_scores(
    prompt: Sequence[PromptToken], vocabulary: Vocabulary, k: int | None = None
) -> list[dict[str, Any] | None]:
    """Return a prompt's log-probabilities in vLLM's format: at each position, of its token and the k best, by id."""
    found: list[dict[str, Any] | None] = []
    for each in prompt:
        if each.logprob is None:
            found.append(None)
            continue
        by_id = {str(each.token_id): {"logprob": max(each.logprob, LEAST), "rank": each.rank}}
        for place, top in enumerate(each.top_logprobs[:k], 1):
            by_id.setdefault(str(top.token_id), {"logprob": max(top.logprob, LEAST), "rank": place})
        found.append({id_: score | {"decoded_token": _name(vocabulary, int(id_))} for id_, score in by_id.items()})
    return found


def _best(vocabulary: Vocabulary, best: tuple[TokenLogprob, ...]) -> dict[str, float]:
    """Return log-probabilities by token text; for tokens of equal text the highest one."""
    found: dict[str, float] = {}
    for each in best:
        found.setdefault(_name(vocabulary, each.token_id), max(each.logprob, LEAST))
    return found


def _token(vocabulary: Vocabulary, token: int, logprob: float) -> dict[str, Any]:
    data = vocabulary.tokens[token]
    byte_values = None if data is None else list(data)
    return {"token": _name(vocabulary, token), "logprob": max(logprob, LEAST), "bytes": byte_values}


def _name(vocabulary: Vocabulary, token: int) -> str:
    """Return the text of a token, or the tokenizer's name of a token without bytes, such as EOS."""
    data = vocabulary.tokens[token]
    return vocabulary.names.get(token, "") if data is None else data.decode(errors="replace")
