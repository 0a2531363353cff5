"""Quotations by their definition: all pieces of the documents between allowed places."""

import re
from functools import cache

from trellm import Vocabulary

from ..support import boundaries


def quotations(
    documents: list[str], rule: str, min_chars: int = 1, max_chars: int | None = None, collapsed: bool = False
) -> dict[str, list[tuple[int, int, int]]]:
    """What may be generated, and from which places (document, start, end)."""
    found: dict[str, list[tuple[int, int, int]]] = {}
    for number, document in enumerate(documents):
        first, last = boundaries((document,), rule)  # type: ignore[arg-type]
        runs = [run.span() for run in re.finditer(r"\s+", document)]
        for begin in first.tolist():
            for end in last.tolist():
                within = any(low < begin < high or low < end < high for low, high in runs)
                text = re.sub(r"\s+", " ", document[begin:end]) if collapsed else document[begin:end]
                if begin < end and min_chars <= len(text) <= (max_chars or len(text)) and not (collapsed and within):
                    found.setdefault(text, []).append((number, begin, end))
    return found


def distances(texts: list[bytes], vocabulary: Vocabulary) -> dict[bytes, int]:
    """For each beginning of one of the texts that tokens can spell out: the fewest tokens to one of them."""
    tokens = [token for token in vocabulary.tokens if token]
    goals = set(texts)

    @cache
    def fewest(begun: bytes) -> int:
        if begun in goals:
            return 0
        steps = {begun + token for token in tokens if any(text.startswith(begun + token) for text in texts)}
        return min((1 + fewest(step) for step in steps), default=10**6)

    return {text[:length]: fewest(text[:length]) for text in texts for length in range(len(text) + 1)}
