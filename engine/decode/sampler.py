"""Sequences that grow token by token: allowed tokens, choice, and state after the choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from ...errors import ModelError, OptionError
from ...guides.limits import NotReadyError, quickly
from ...guides.protocol import Mask
from ..memory.tables import BlockTable
from ..models.protocol import Model
from ..scores import best_tokens, log_probabilities, stack_masks, traces
from ..search import UNUSABLE, Beam, Greedy, Search, Target
from .forward_output import ForwardOutput, alike
from .guide_cache import FREE, AllowedTokens, ForcedTokens, GuideCache, StateTable
from .randomness import uniform
from .sequence import CommittedPrefix, Request, SequenceState

QUICK = 50_000
"""Work units of a guide, about half a millisecond, that a sequence may use in a step that others wait for."""


class ClosingMask(NamedTuple):
    """The mask of tokens that leave room to finish, for a state and a number of tokens left."""

    state: int
    left: int
    mask: Mask


class Sampler:
    """Sequences of one model. An error of one sequence is stored in its `error` and does not affect other sequences.

    keeps_states: True if sequences follow cached transitions between known states; False for device batches
    """

    def __init__(self, model: Model) -> None:
        self.keeps_states = True
        self._vocabulary = model.vocabulary
        self._eos = frozenset(model.vocabulary.eos_ids)
        self._free = StateTable(lambda state, token: state)

    def start(self, request: Request, table: BlockTable, *, may_wait: bool = False) -> SequenceState:
        """Return a sequence before its first token. It is finished if the constraint alone determines its text."""
        sequence = SequenceState(table, list(request.start.prompt), request, request.first_state, may_wait=may_wait)
        sequence.is_quick = self.keeps_states and request.is_unwatched
        sequence.is_unread = request.reads_first
        if not sequence.is_unread:
            self.settle(sequence)
        return sequence

    def settle(self, sequence: SequenceState) -> None:
        """Append forced tokens. If that takes long and the sequence may wait, set `waits`."""
        sequence.waits, sequence.closing, sequence.entry = False, None, None
        try:
            if sequence.may_wait:
                with quickly(QUICK):
                    self._settle(sequence)
                    if sequence.finish is None and self.is_near_budget(sequence):
                        sequence.closing = self.closing_mask(sequence)
                    self._find_entry(sequence)
            else:
                self._settle(sequence)
                self._find_entry(sequence)
        except NotReadyError:
            sequence.waits = True
        except Exception as error:
            sequence.error = error

    def prepare(self, sequence: SequenceState) -> ClosingMask | None:
        """Compute in the guide, which caches it, all that `settle` will query. Return the part that is not cached.

        For use in another thread than the steps: it does not modify the sequence. Raises the errors of the guide.
        """
        request, state, left = sequence.request, sequence.state, sequence.left
        while (guide_cache := request.guide_cache(state)) is not None:
            allowed = guide_cache.allowed(state)
            is_near_budget = guide_cache.is_near_budget(state, left)
            if allowed.forced < 0 or left <= 0 or request.scores:
                return (
                    ClosingMask(state, left, guide_cache.mask(state, request.stop_ids, left))
                    if is_near_budget
                    else None
                )
            left -= request.is_output(state, allowed.forced)
            state = guide_cache.guide.advance(state, allowed.forced)
        return None

    def resume(self, sequence: SequenceState, ending: ClosingMask | None) -> None:
        """Continue a sequence that has waited, with the result of `prepare`."""
        sequence.may_wait = False
        self.settle(sequence)
        if ending is not None and (sequence.state, sequence.left) == (ending.state, ending.left):
            sequence.closing = ending.mask

    def restart(self, sequence: SequenceState, table: BlockTable) -> SequenceState:
        """Return a sequence with the same tokens, all unread. Everything but the tokens is computed anew."""
        restarted = SequenceState(
            table,
            list(sequence.request.start.prompt),
            sequence.request,
            sequence.request.first_state,
            steps=sequence.steps,
        )
        restarted.may_wait, restarted.is_quick = sequence.may_wait, sequence.is_quick
        restarted.is_unread = sequence.is_unread
        if restarted.is_unread:
            return restarted
        restarted.prompt_scores = sequence.prompt_scores
        sure = len(sequence.tokens)
        if sequence.request.scores:
            sure = min(
                sure,
                len(sequence.scores),
                len(sequence.raw_scores),
                len(sequence.best) if sequence.request.best else sure,
            )
        try:
            for token in sequence.tokens[:sure]:
                self._append(restarted, token)
            restarted.scores, restarted.raw_scores, restarted.traces = (
                sequence.scores[:sure],
                sequence.raw_scores[:sure],
                sequence.traces[:sure],
            )
            restarted.best = sequence.best[:sure]
        except Exception as error:
            restarted.error = error
            return restarted
        self.settle(restarted)
        return restarted

    def committed_prefix(self, sequence: SequenceState) -> CommittedPrefix:
        """Return the committed prefix of the text, and the number of tokens that spell no more than it."""
        safe = sequence.request.safe(sequence.text)
        text = bytes(sequence.text[:safe])
        if sequence.done:
            return CommittedPrefix(text)
        count, end = len(sequence.tokens), len(sequence.text)
        while count > sequence.inside and end > safe:
            count -= 1
            end -= len(self._vocabulary.tokens[sequence.tokens[count]] or b"")
        return CommittedPrefix(text, sequence, count - sequence.inside)

    def advance(self, reading: ForwardOutput[SequenceState]) -> None:
        """Choose a token for each sequence that has read its pending tokens."""
        allowed = [
            self._guarded(sequence, self._allowed) if sequence.entry is None else sequence.entry.allowed
            for sequence in reading.texts
        ]
        numbers = [i for i, each in enumerate(allowed) if each is not None]
        tokens = self._select(reading, numbers, allowed, attempt=0)
        numbers = [i for i in numbers if not self._goes_on(reading.texts[i], tokens[i])]
        late = [i for i in numbers if reading.texts[i].error is None and not self.fits(reading.texts[i], tokens[i])]
        if late:
            for i in late:
                allowed[i] = self._guarded(reading.texts[i], self._closing)
            late = [i for i in late if reading.texts[i].error is None]
            tokens |= self._select(reading, late, allowed, attempt=1)
        numbers = [i for i in numbers if reading.texts[i].error is None]
        self._score(reading, numbers, allowed, tokens)
        for i in numbers:
            sequence = reading.texts[i]
            try:
                self.commit(sequence, tokens[i])
            except Exception as error:
                sequence.error = error

    def begin(self, sequence: SequenceState) -> bool:
        """Start the text of a sequence that has read its prompt. Return True if it chooses a token in this step."""
        sequence.is_unread = False
        if sequence.error is None:
            self.settle(sequence)
        return not (sequence.done or sequence.waits or sequence.pending)

    def embed(self, reading: ForwardOutput[SequenceState]) -> None:
        """Finish sequences that have read their prompts with the normalised embeddings of these."""
        for sequence, state in zip(reading.texts, reading.pooled(), strict=True):
            vector = state[: sequence.request.pools].astype(np.float64)
            length = float(np.linalg.norm(vector))
            if not 0 < length < np.inf:
                sequence.error = ModelError(
                    f"the model's hidden state at the end of prompt {sequence.request.number} is NaN, infinite or "
                    "zero, so that it has no direction"
                )
                continue
            sequence.embedding = (vector / length).astype(np.float32)
            sequence.finish = "complete"

    def _guarded(
        self, sequence: SequenceState, question: Callable[[SequenceState], AllowedTokens]
    ) -> AllowedTokens | None:
        """Return the result of `question`, narrowed by bans and controls; None if that failed."""
        try:
            return self._narrowed(sequence, question(sequence))
        except Exception as error:
            sequence.error = error
            return None

    def _allowed(self, sequence: SequenceState) -> AllowedTokens:
        guide_cache = sequence.guide_cache
        if guide_cache is None:
            return AllowedTokens()
        if self.is_near_budget(sequence):
            return self._closing(sequence)
        return self._among_all(sequence, guide_cache, sequence.state)

    def _among_all(self, sequence: SequenceState, guide_cache: GuideCache, state: int) -> AllowedTokens:
        """Return the allowed tokens if the budget is not tight."""
        stop_ids = sequence.request.stop_ids
        ids = None if sequence.request.scores or stop_ids else guide_cache.allowed(state).ids
        return AllowedTokens(ids, guide_cache.mask(state, stop_ids) if ids is None else None)

    def _narrowed(self, sequence: SequenceState, allowed: AllowedTokens) -> AllowedTokens:
        """Remove withheld and banned tokens from the allowed ones, as a mask. Raises OptionError."""
        if sequence.request.is_plain_after(len(sequence.tokens)):
            return allowed
        mask = allowed.mask
        if mask is None and sequence.guide_cache is not None:
            mask = sequence.guide_cache.mask(sequence.state, sequence.request.stop_ids)
        mask = sequence.request.withheld(
            mask, sequence.tokens, self._vocabulary.size, self._eos, sequence.state, sequence.inside
        )
        if mask is not None and not mask.any():
            raise all_banned(place_of(sequence))
        return AllowedTokens(mask=mask)

    def _closing(self, sequence: SequenceState) -> AllowedTokens:
        mask = self.closing_mask(sequence) if sequence.closing is None else sequence.closing
        guide_cache = sequence.guide_cache
        return AllowedTokens(mask=mask) if sequence.request.scores or guide_cache is None else guide_cache.listed(mask)

    def is_near_budget(self, sequence: SequenceState) -> bool:
        """Test whether a sequence may choose only from tokens that leave room to finish."""
        guide_cache = sequence.guide_cache
        return guide_cache is not None and guide_cache.is_near_budget(sequence.state, sequence.left)

    def closing_mask(self, sequence: SequenceState) -> Mask:
        """Return the mask of tokens that leave room to finish."""
        assert sequence.guide_cache is not None
        return sequence.guide_cache.mask(sequence.state, sequence.request.stop_ids, sequence.left)

    def fits(self, sequence: SequenceState, token: int) -> bool:
        """Test whether the text can be completed after a token."""
        guide_cache = sequence.guide_cache
        if guide_cache is None or token in self._eos or sequence.request.stops(sequence.state, token):
            return True
        left = sequence.left - sequence.request.is_output(sequence.state, token)
        try:
            return guide_cache.fits(guide_cache.guide.advance(sequence.state, token), left)
        except Exception as error:
            sequence.error = error
            return True

    def _select(
        self,
        reading: ForwardOutput[SequenceState],
        numbers: Sequence[int],
        allowed: Sequence[AllowedTokens | None],
        attempt: int,
    ) -> dict[int, int]:
        """Pick a token for each sequence. For short lists of allowed tokens only their logits are computed."""
        tokens: dict[int, int] = {}
        wide: list[int] = []
        few: list[tuple[int, Tensor]] = []
        for i in numbers:
            each = allowed[i]
            assert each is not None
            if each.ids is None:
                wide.append(i)
            else:
                few.append((i, each.ids))
        for search, places in alike(reading.texts[i].request.search for i, _ in few):
            assert not isinstance(search, (Beam, Target))
            listed = [few[place] for place in places]
            draws = _draws(search, [reading.texts[i] for i, _ in listed], attempt)
            for (i, ids), column in zip(listed, reading.pick_listed(search.pick, listed, draws), strict=True):
                tokens[i] = column if column == UNUSABLE else ids.numpy().item(column)
        if wide:
            found = reading.logits(wide)
            for search, places in alike(reading.texts[i].request.search for i in wide):
                assert not isinstance(search, (Beam, Target))
                several = [wide[place] for place in places]
                sequences = [reading.texts[i] for i in several]
                logits = _changed(found if len(several) == len(wide) else found[places], sequences)
                masks = stack_masks([_mask(allowed[i]) for i in several], logits)
                picked = search.pick(logits, masks, _draws(search, sequences, attempt))
                tokens.update(zip(several, picked, strict=True))
        for i, token in tokens.items():
            if token == UNUSABLE:
                sequence = reading.texts[i]
                sequence.error = unusable(place_of(sequence))
        return tokens

    def _score(
        self,
        reading: ForwardOutput[SequenceState],
        numbers: Sequence[int],
        allowed: Sequence[AllowedTokens | None],
        tokens: dict[int, int],
    ) -> None:
        """Record log-probabilities and traces of the chosen tokens, where requested."""
        scored = [i for i in numbers if reading.texts[i].request.scores]
        if not scored:
            return
        logits, masks = reading.logits(scored), [_mask(allowed[i]) for i in scored]
        stacked = stack_masks(masks, logits)
        pairs = log_probabilities(logits, stacked, [tokens[i] for i in scored])
        most = max(reading.texts[i].request.best for i in scored)
        best = best_tokens(logits, stacked, most) if most else []
        for place, (i, (score, raw)) in enumerate(zip(scored, pairs, strict=True)):
            sequence, token = reading.texts[i], tokens[i]
            if sequence.request.options.diagnostics:
                try:
                    sequence.traces += traces(
                        logits[place : place + 1],
                        [masks[place]],
                        [0],
                        [(sequence.state, sequence.left)],
                        [token],
                        [(score, raw)],
                        sequence.request.weighed_at,
                    )
                except ModelError as error:
                    sequence.error = error
                    continue
            if token in self._eos or sequence.request.stops(sequence.state, token):
                sequence.end_score = score
            else:
                sequence.scores.append(score)
                sequence.raw_scores.append(raw)
                if k := sequence.request.best:
                    sequence.best.append((best[place][0][:k], best[place][1][:k]))

    def commit(self, sequence: SequenceState, token: int) -> None:
        """Append a chosen token and the forced tokens after it."""
        if sequence.error is not None:
            return
        stops = sequence.request.stops(sequence.state, token)
        if token in self._eos or stops:
            sequence.overruled |= sequence.request.overruled(sequence.tokens, token, ends=True)
            sequence.finish = "complete" if token in self._eos else "stop"
        else:
            self._append(sequence, token)
            state, count, length = sequence.state, len(sequence.tokens), len(sequence.text)
            self.settle(sequence)
            guide_cache = sequence.guide_cache
            is_forced = len(sequence.tokens) > count and state >= sequence.request.start.tail
            if is_forced and sequence.entry is not None and guide_cache is not None:
                guide_cache, state = guide_cache.unwrap(state)
                forced = ForcedTokens(tuple(sequence.tokens[count:]), bytes(sequence.text[length:]), sequence.entry)
                guide_cache.states.force(guide_cache.states.of(state, sequence.request.stop_ids), forced)

    def _goes_on(self, sequence: SequenceState, token: int) -> bool:
        """Append a token to a sequence in a known state. Return False if it is in none, or if too little would be
        left."""
        if sequence.entry is None or sequence.error is not None:
            return False
        try:
            is_text = token not in self._eos and token not in sequence.request.stop_ids
            if not (is_text and sequence.follow(token, self._vocabulary.tokens[token] or b"")):
                if not self.fits(sequence, token):
                    return False
                self.commit(sequence, token)
        except Exception as error:
            sequence.error = error
        return True

    def _find_entry(self, sequence: SequenceState) -> None:
        """Set `entry` of a sequence, so that the next step only has to choose a token."""
        if not sequence.is_quick or sequence.finish is not None or sequence.state < sequence.request.start.tail:
            return
        stop_ids = sequence.request.stop_ids
        if sequence.guide_cache is None:
            sequence.states, sequence.entry = self._free, (free := self._free.of(FREE, stop_ids))
            if free.allowed is None:
                free.known_bound, free.allowed = 0, AllowedTokens()
            return
        guide_cache, state = sequence.guide_cache.unwrap(sequence.state)
        entry = guide_cache.states.of(state, stop_ids)
        left = sequence.left
        if entry.known_bound + 2 > left:
            if guide_cache.is_near_budget(state, left):
                return
            # the entry without stop ids, if it was not forgotten meanwhile
            bound = guide_cache.known_bound(state)
            entry.known_bound = min(entry.known_bound, left - 2 if bound is None else bound)
        if entry.allowed is None:
            guide_cache.states.allow(entry, self._among_all(sequence, guide_cache, state))
        sequence.states, sequence.entry = guide_cache.states, entry

    def _append(self, sequence: SequenceState, token: int) -> None:
        """Append a token. A stop string cuts the text and ends it."""
        request, guide_cache = sequence.request, sequence.guide_cache
        length = len(sequence.text)
        state = sequence.state if guide_cache is None else guide_cache.guide.advance(sequence.state, token)
        sequence.overruled |= request.overruled(sequence.tokens, token, ends=False)
        sequence.pending.append(token)
        sequence.text += request.output(sequence.state, self._vocabulary.tokens[token] or b"")
        sequence.inside += not request.is_output(sequence.state, token)
        sequence.tokens.append(token)
        sequence.state = state
        if request.stop and (at := request.stop.find(sequence.text, length)) >= 0:
            del sequence.text[at:]
            sequence.finish = "stop"

    def _settle(self, sequence: SequenceState) -> None:
        """Append forced tokens, and test whether the text ends."""
        while sequence.finish is None:
            guide_cache = sequence.guide_cache
            if sequence.left == 0 and sequence.request.may_be_cut:
                sequence.finish = "length"
            if guide_cache is None or sequence.finish is not None:
                return
            allowed = guide_cache.allowed(sequence.state)
            if allowed.ends or sequence.left == 0:
                if sequence.request.options.diagnostics:
                    return
                sequence.overruled |= sequence.request.overruled(sequence.tokens, -1, ends=sequence.left > 0)
                sequence.finish = "complete"
            elif allowed.forced < 0 or sequence.request.scores:
                return
            elif sequence.request.bans(sequence.state, allowed.forced):
                raise all_banned(place_of(sequence))
            else:
                self._append(sequence, allowed.forced)


def place_of(sequence: SequenceState) -> str:
    """Return the name of a sequence in errors."""
    return f"step {len(sequence.tokens)} of prompt {sequence.request.number}"


def unusable(place: str) -> ModelError:
    """Return the error for a place where no token can be chosen."""
    return ModelError(
        f"the model's logits at {place} are NaN or infinite, or give every allowed token the probability 0"
    )


def all_banned(place: str) -> OptionError:
    """Return the error for a place where all allowed tokens are banned."""
    return OptionError(
        f"logit_bias: at {place} every token that the constraint and the remaining max_tokens allow is banned by -inf; "
        "use a finite number such as -100, which leaves these tokens possible"
    )


def _changed(logits: Tensor, sequences: Sequence[SequenceState]) -> Tensor:
    """Return the logits of sequences, float32 [sequences, V], with penalties and biases."""
    if not any(sequence.request.changes_scores for sequence in sequences):
        return logits
    found = logits.clone()
    for scores, sequence in zip(found, sequences, strict=True):
        sequence.request.changed(scores, sequence.tokens, sequence.inside, sequence.state)
    return found


def _draws(search: Search, sequences: Sequence[SequenceState], attempt: int) -> list[float]:
    """Return a random number for each sequence. Greedy search ignores them."""
    if type(search) is Greedy:
        return [0.0] * len(sequences)
    return [uniform(sequence.request.key, len(sequence.tokens), attempt) for sequence in sequences]


def _mask(allowed: AllowedTokens | None) -> Mask | None:
    return None if allowed is None else allowed.mask
