"""Banks: beams are kept at every stage of their goals, so that neither goals nor likely texts are lost."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest


def pick(progress: Sequence[int], count: int) -> list[int]:
    """Which candidates to keep: the places of up to `count` of them, in the order in which they are picked.

    progress: how far each candidate is with its goals, the likeliest candidate first
    Candidates of equal progress make up a bank. The first of each bank is picked, from the fullest bank down, then
    the second of each, and so on. Source: C. Huang, "Guiding Text Generation with Constrained Beam Search in
    Transformers" (Hugging Face 2022), after M. Post and D. Vilar, "Fast Lexically Constrained Decoding with Dynamic
    Beam Allocation for Neural Machine Translation" (2018).
    """
    banks: dict[int, list[int]] = {}
    for place, steps in enumerate(progress):
        banks.setdefault(steps, []).append(place)
    rounds = zip_longest(*(banks[steps] for steps in sorted(banks, reverse=True)))
    return [place for place in chain.from_iterable(rounds) if place is not None][:count]
