"""The laws of the Guide protocol as functions; each raises LawBroken where a guide breaks it.

`check(guide)` tests all of them along random texts. It accepts any guide, including those of other packages. The tests
run it on every guide of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

import numpy as np

from ..errors import OptionError, StateError
from .protocol import DEAD, NEVER, ByteGuide, Guide, Mask, RowGuide, mask_within, tokens_of


class LawBroken(AssertionError):  # noqa: N818
    """A violated law of the protocol; the message says which, where and how."""


def check(guide: Guide, *, seed: int = 0, texts: int = 6, tokens: int = 24, sample: int = 150) -> None:
    """Check all laws along random texts.

    texts, tokens: the number of texts, and the most tokens of each
    sample: the number of tokens tried in a state, up to half of them allowed ones; a smaller vocabulary is tried in
    full
    """
    random = Random(seed)
    for _ in range(texts):
        for state, _ in walk(guide, random, tokens):
            check_state(guide, state, random, sample)
    for _ in range(texts):
        path = [token for _, token in walk(guide, random, tokens)][:-1]
        same_by_any_tokens(guide, b"".join(guide.vocabulary.tokens[token] or b"" for token in path), random)
    needed = guide.distance(guide.start)
    for extra in (0, 1, 2, 5, tokens):
        closes_in_time(guide, needed + extra, random)


def check_state(guide: Guide, state: int, random: Random, sample: int = 150) -> None:
    """Check the laws of one state."""
    mask = guide.mask(state).copy()
    has_shape_of_a_mask(guide, state, mask)
    eos_iff_accepting(guide, state, mask)
    tried = some_tokens(guide, mask, random, sample)
    allowed_iff_advancing(guide, state, mask, tried)
    distance_leads_to_the_end(guide, state, mask)
    no_dead_ends(guide, state, [token for token in tried if allows(mask, token)])
    enough_iff_distance(guide, state, random.randint(0, 40))
    for left in {1, 2, guide.distance(state), guide.distance(state) + 1, random.randint(1, 40)}:
        enough_iff_distance(guide, state, left)
        fits_iff_distance(guide, state, left, tried)
    if not np.array_equal(mask, guide.mask(state)):
        raise LawBroken(f"state {state} has another mask the second time")


def has_shape_of_a_mask(guide: Guide, state: int, mask: Mask) -> None:
    """Law: a mask is uint32 [ceil(V / 32)], without bits beyond the vocabulary or of tokens without bytes but EOS."""
    size = guide.vocabulary.size
    if mask.dtype != np.uint32 or mask.shape != ((size + 31) // 32,):
        raise LawBroken(f"the mask of state {state} is {mask.dtype}{list(mask.shape)} for {size} tokens")
    eos = set(guide.vocabulary.eos_ids)
    for token in tokens_of(mask):
        if token >= size:
            raise LawBroken(f"state {state} allows token {token}, but there are {size}")
        if not guide.vocabulary.tokens[token] and token not in eos:
            raise LawBroken(f"state {state} allows token {token}, which has no bytes")


def eos_iff_accepting(guide: Guide, state: int, mask: Mask) -> None:
    """Law: exactly accepting states allow the EOS tokens, which lead back to the same state."""
    accepting = guide.is_accepting(state)
    for token in guide.vocabulary.eos_ids:
        if allows(mask, token) != accepting:
            raise LawBroken(f"state {state}: accepting is {accepting}, but EOS {token} allowed is {not accepting}")
        after = guide.advance(state, token)
        if after != (state if accepting else DEAD):
            raise LawBroken(f"state {state}: accepting is {accepting}, but EOS {token} leads to {after}")


def allowed_iff_advancing(guide: Guide, state: int, mask: Mask, tokens: Sequence[int]) -> None:
    """Law: a token is allowed exactly if `advance`, and `read` of its bytes, lead to a live state."""
    for token in tokens:
        after = guide.advance(state, token)
        if after < DEAD or allows(mask, token) != (after != DEAD):
            raise LawBroken(
                f"state {state}: {_named(guide, token)} leads to {after}, but allowed is {allows(mask, token)}"
            )
        text = guide.vocabulary.tokens[token]
        if text and isinstance(guide, ByteGuide) and (guide.read(state, text) == DEAD) != (after == DEAD):
            raise LawBroken(f"state {state}: {_named(guide, token)} leads to {after}, but to another state as bytes")


def distance_leads_to_the_end(guide: Guide, state: int, mask: Mask) -> None:
    """Law: the distance is 0 exactly in accepting states; elsewhere some allowed token decreases it."""
    distance = guide.distance(state)
    if (distance == 0) != guide.is_accepting(state):
        raise LawBroken(f"state {state}: distance {distance}, but accepting is {guide.is_accepting(state)}")
    if distance == 0:
        return
    within = mask_within(guide, state, distance)
    for token in tokens_of(within & mask):
        if guide.distance(guide.advance(state, token)) < distance:
            return
    raise LawBroken(f"state {state}: distance {distance}, but no allowed token leads to a smaller one")


def no_dead_ends(guide: Guide, state: int, allowed: Sequence[int]) -> None:
    """Law: after every allowed token the text can still be completed."""
    for token in allowed:
        after = guide.advance(state, token)
        if guide.distance(after) >= NEVER:
            raise LawBroken(f"state {state}: after {_named(guide, token)} no text can be completed")
        if not guide.is_accepting(after) and not tokens_of(guide.mask(after)):
            raise LawBroken(f"state {state}: after {_named(guide, token)} nothing is allowed")


def enough_iff_distance(guide: Guide, state: int, left: int) -> None:
    """Law: `fits` and `known_bound`, where a guide has them, agree with the distance."""
    fits: Any = getattr(guide, "fits", None)
    known_bound: Any = getattr(guide, "known_bound", None)
    found = None if known_bound is None else known_bound(state, left)
    fit = [] if fits is None else [fits(state, left)]
    fit += [] if known_bound is None else [found is not None]
    distance = guide.distance(state)
    if any(each != (distance <= left) for each in fit) or (found is not None and not distance <= found <= left):
        raise LawBroken(
            f"state {state}, {left} left: the distance is {distance}, fits and known_bound say {fit}, {found}"
        )


def fits_iff_distance(guide: Guide, state: int, left: int, tokens: Sequence[int]) -> None:
    """Law: `mask_within` has the allowed tokens after which the distance is less than `left`, and EOS iff accepting."""
    mask, within = guide.mask(state).copy(), mask_within(guide, state, left)
    eos = set(guide.vocabulary.eos_ids)
    for token in {*tokens, *eos}:
        fits = allows(mask, token)
        if fits and token not in eos:
            fits = guide.distance(guide.advance(state, token)) <= left - 1
        if allows(within, token) != fits:
            raise LawBroken(
                f"state {state}, {left} left: {_named(guide, token)} fits is {fits}, but the mask says {not fits}"
            )


def same_by_any_tokens(guide: Guide, text: bytes, random: Random, ways: int = 3) -> None:
    """Law: states reached by the same bytes, in any tokens or by `read`, have equal masks, acceptance and distances."""
    ends: list[tuple[int, Sequence[int]]] = []
    for _ in range(ways):
        tokens = spelling(guide, text, random)
        state = guide.start
        for token in tokens:
            state = guide.advance(state, token)
            if state == DEAD:
                raise LawBroken(f"{text!r} can be read, but not as tokens {tokens}")
        ends.append((state, tokens))
    if isinstance(guide, ByteGuide):
        ends.append((guide.read(guide.start, text), [*text]))
        cut = random.randint(0, len(text))
        half = guide.read(guide.start, text[:cut])
        if half != DEAD:  # `half` may be DEAD: no token may begin with the rest
            ends.append((guide.read(half, text[cut:]), [*text]))
    (first, by), *others = ends
    mask, accepting, distance = guide.mask(first).copy(), guide.is_accepting(first), guide.distance(first)
    for state, tokens in others:
        same = accepting == guide.is_accepting(state) and distance == guide.distance(state)
        if not (same and np.array_equal(mask, guide.mask(state))):
            raise LawBroken(f"{text!r} as tokens {by} and as tokens {tokens} leads to states that differ")


def closes_in_time(guide: Guide, budget: int, random: Random) -> None:
    """Law: with a budget of at least the distance, `mask_within` always offers a token until the text is complete."""
    state = guide.start
    tokens: list[int] = []
    for left in range(budget, 0, -1):
        choices = tokens_of(mask_within(guide, state, left))
        if not choices:
            raise LawBroken(f"no token is offered after {tokens}, with {left} of {budget} left")
        token = random.choice(choices)
        if token in guide.vocabulary.eos_ids:
            break
        state = guide.advance(state, token)
        tokens.append(token)
        if guide.distance(state) > left - 1:
            raise LawBroken(f"after {tokens} the distance is {guide.distance(state)}, with {left - 1} left")
    if not guide.is_accepting(state):
        raise LawBroken(f"{tokens} is not complete at the end of its budget of {budget}")


def does_not_remember(make: Callable[[], Guide], *, seed: int = 0, texts: int = 6, tokens: int = 12) -> None:
    """Law: the answers of a guide do not depend on earlier calls. Two equal guides are asked in opposite orders."""
    random = Random(seed)
    one, other = make(), make()
    paths = [[token for _, token in walk(one, random, tokens)][:-1] for _ in range(texts)]
    forward = [_answers(one, path) for path in paths]
    backward = [_answers(other, path) for path in reversed(paths)][::-1]
    for path, answers, other_answers in zip(paths, forward, backward, strict=True):
        if answers != other_answers:
            raise LawBroken(f"what is said of tokens {path} depends on what was asked before")


def walk(guide: Guide, random: Random, tokens: int) -> Iterator[tuple[int, int]]:
    """Yield the states along a random text, each with the token taken there; the last comes with DEAD.

    About half of the tokens are the longest of four, so that texts make progress.
    """
    state = guide.start
    eos = set(guide.vocabulary.eos_ids)
    texts = guide.vocabulary.tokens
    for _ in range(tokens):
        choices = [token for token in tokens_of(guide.mask(state)) if token not in eos]
        if not choices:
            break
        few = random.choices(choices, k=4)
        token = max(few, key=lambda token: len(texts[token] or b"")) if random.random() < 0.5 else few[0]
        yield state, token
        state = guide.advance(state, token)
    yield state, DEAD


def spelling(guide: Guide, text: bytes, random: Random) -> list[int]:
    """Return random tokens that spell a text; there must be some."""
    trie = guide.vocabulary.trie
    continued: list[list[tuple[int, int]]] = [[] for _ in range(len(text) + 1)]
    spells = [False] * len(text) + [True]
    for begin in range(len(text) - 1, -1, -1):
        node, at = 0, begin
        while at < len(text):
            child = node + 1
            while child < trie.skip[node] and trie.byte[child] != text[at]:
                child = int(trie.skip[child])
            if child >= trie.skip[node]:
                break
            node, at = child, at + 1
            if spells[at]:
                for token in trie.ids[trie.token_start[node] : trie.token_start[node + 1]].tolist():
                    continued[begin].append((token, at))
        spells[begin] = bool(continued[begin])
    tokens: list[int] = []
    at = 0
    while at < len(text):
        token, at = random.choice(continued[at])
        tokens.append(token)
    return tokens


def some_tokens(guide: Guide, mask: Mask, random: Random, count: int) -> list[int]:
    """Return all tokens of a vocabulary of up to `count`, else `count` random ones, up to half of them allowed ones."""
    size = guide.vocabulary.size
    if size <= count:
        return list(range(size))
    allowed = tokens_of(mask)
    chosen = allowed if len(allowed) <= count // 2 else random.sample(allowed, count // 2)
    return [*chosen, *random.sample(range(size), count - len(chosen))]


def allows(mask: Mask, token: int) -> bool:
    """Test whether the token's bit is set."""
    return bool(mask[token >> 5] >> np.uint32(token & 31) & 1)


def _answers(guide: Guide, path: Sequence[int]) -> tuple[object, ...]:
    state = guide.start
    for token in path:
        state = guide.advance(state, token)
    within = mask_within(guide, state, 3) if isinstance(guide, RowGuide) else guide.mask(state)
    return guide.mask(state).tobytes(), guide.is_accepting(state), guide.distance(state), within.tobytes()


def _named(guide: Guide, token: int) -> str:
    return f"token {token} ({guide.vocabulary.tokens[token]!r})"


def knows_its_states(guide: Guide) -> None:
    """Law: DEAD allows nothing and leads nowhere; every other unknown number is refused; masks are read-only.

    Holds for guides of this package. `check` leaves it out: the checks would slow down other guides.
    """
    tokens = [guide.vocabulary.size - 1, 0, *guide.vocabulary.eos_ids]
    if guide.mask(DEAD).any() or mask_within(guide, DEAD, 100).any() or guide.is_accepting(DEAD):
        raise LawBroken("something may follow in DEAD")
    if guide.distance(DEAD) < NEVER or any(guide.advance(DEAD, token) != DEAD for token in tokens):
        raise LawBroken("DEAD leads somewhere")
    for token in (-1, guide.vocabulary.size, 1 << 32, -(1 << 32), (1 << 32) + 97):
        if guide.advance(guide.start, token) != DEAD:
            raise LawBroken(f"{token} is no token, and yet it leads somewhere")
    odd: list[Any] = [-2, -(1 << 31), 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 62, 1 << 64]
    odd += [None, "0", 0.5, [0], np.array([0, 1])]
    for state in odd:
        answers: list[Callable[[], object]] = [
            partial(guide.mask, state),
            partial(guide.distance, state),
            partial(guide.is_accepting, state),
            partial(guide.advance, state, 0),
            partial(mask_within, guide, state, 9),
        ]
        if isinstance(guide, ByteGuide):
            answers.append(partial(guide.read, state, b"a"))
        for ask in answers:
            try:
                answer = ask()
            except (StateError, OptionError):
                continue
            raise LawBroken(f"{state!r} was never given out, and yet there is an answer: {answer!r}")
    for left in (None, "3", 0.5):
        try:
            answer = mask_within(guide, guide.start, left)  # type: ignore[arg-type]
        except OptionError:
            continue
        raise LawBroken(f"{left!r} is no number of tokens, and yet there is an answer: {answer!r}")
    if guide.mask(guide.start).flags.writeable:
        raise LawBroken("a mask can be written to")
