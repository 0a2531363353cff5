"""Texts that grow by one token after the other: what each may choose from, its choice, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from ...errors import ModelError, OptionError
from ...guides.limits import NotReadyError, quickly
from ...guides.protocol import Mask
from ..diagnostics.trace import traces
from ..memory.tables import BlockTable
from ..models.protocol import Model
from ..search import UNUSABLE, Beam, Greedy, Search, Target
from .guide_cache import GuideCache
from .known_states import FAR, FREE, Allowed, KnownState, KnownStates, Transition
from .randomness import uniform
from .reading import Reading, alike, stack_masks
from .row import Certain, Request, Row
from .scoring import best_tokens, log_probabilities

QUICK = 50_000
"""Steps of a guide's work, about half a millisecond, that a row may take in a step where others wait for it."""


class Ending(NamedTuple):
    """The tokens that leave room to finish in a state, with so many tokens left."""

    state: int
    left: int
    mask: Mask


class RowSearch:
    """Rows of one model. What goes wrong with one row becomes its `error`, and does not touch the others.

    keeps_states: whether rows go on from known state to known state; no use where they do so by themselves
    """

    def __init__(self, model: Model) -> None:
        self.keeps_states = True
        self._vocabulary = model.vocabulary
        self._eos = frozenset(model.vocabulary.eos_ids)
        self._free = KnownStates()

    def start(self, request: Request, table: BlockTable, *, may_wait: bool = False) -> Row:
        """A row at its beginning; finished already where its text follows from the constraint without a model."""
        row = Row(table, list(request.start.prompt), request, request.first_state, may_wait=may_wait)
        row.is_quick = self.keeps_states and request.is_unwatched
        self.settle(row)
        return row

    def settle(self, row: Row) -> None:
        """Let a row have what follows from its tokens; or let it wait, if that takes long to find out and it may."""
        row.waits, row.closing, row.known = False, None, None
        try:
            if row.may_wait:
                with quickly(QUICK):
                    self._settle(row)
                    if row.finish is None and self.is_tight(row):
                        row.closing = self.closing_mask(row)
                    self._know(row)
            else:
                self._settle(row)
                self._know(row)
        except NotReadyError:
            row.waits = True
        except Exception as error:
            row.error = error

    def prepare(self, row: Row) -> Ending | None:
        """Let a row's guide find out what `settle` will ask, which it remembers; what it does not is returned.

        For a thread beside that of the steps: the row is not touched. Raises what the guide does.
        """
        request, state, left = row.request, row.state, row.left
        while (guide_cache := request.guide_cache(state)) is not None:
            allowed = guide_cache.allowed(state)
            is_tight = guide_cache.tight(state, left)
            if allowed.forced < 0 or left <= 0 or request.scores:
                return Ending(state, left, guide_cache.mask(state, request.stop_ids, left)) if is_tight else None
            left -= request.is_output(state, allowed.forced)
            state = guide_cache.guide.advance(state, allowed.forced)
        return None

    def resume(self, row: Row, ending: Ending | None) -> None:
        """Let a row go on that has waited, with what was found out for it."""
        row.may_wait = False
        self.settle(row)
        if ending is not None and (row.state, row.left) == (ending.state, ending.left):
            row.closing = ending.mask

    def restart(self, row: Row, table: BlockTable) -> Row:
        """A row with the same tokens that has everything to read again; all but its tokens is made anew."""
        again = Row(table, list(row.request.start.prompt), row.request, row.request.first_state, steps=row.steps)
        again.may_wait, again.is_quick = row.may_wait, row.is_quick
        sure = len(row.tokens)
        if row.request.scores:
            sure = min(sure, len(row.scores), len(row.raw_scores), len(row.best) if row.request.best else sure)
        try:
            for token in row.tokens[:sure]:
                self._append(again, token)
            again.scores, again.raw_scores, again.traces = row.scores[:sure], row.raw_scores[:sure], row.traces[:sure]
            again.best = row.best[:sure]
        except Exception as error:
            again.error = error
            return again
        self.settle(again)
        return again

    def certain(self, row: Row) -> Certain:
        """What the row's text will begin with, whatever comes, and how many of its tokens spell no more."""
        safe = row.request.stop.safe(row.text)
        text = bytes(row.text[:safe])
        if row.done:
            return Certain(text)
        count, end = len(row.tokens), len(row.text)
        while count > row.inside and end > safe:
            count -= 1
            end -= len(self._vocabulary.tokens[row.tokens[count]] or b"")
        return Certain(text, row, count - row.inside)

    def advance(self, reading: Reading[Row]) -> None:
        """Choose a token for each row that has read."""
        allowed = [
            self._guarded(row, self._allowed) if row.known is None else row.known.allowed for row in reading.texts
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
            row = reading.texts[i]
            try:
                self.commit(row, tokens[i])
            except Exception as error:
                row.error = error

    def _guarded(self, row: Row, question: Callable[[Row], Allowed]) -> Allowed | None:
        """What a row may choose from, by a question about it; None where that failed."""
        try:
            return self._narrowed(row, question(row))
        except Exception as error:
            row.error = error
            return None

    def _allowed(self, row: Row) -> Allowed:
        guide_cache = row.guide_cache
        if guide_cache is None:
            return Allowed()
        if self.is_tight(row):
            return self._closing(row)
        return self._among_all(row, guide_cache, row.state)

    def _among_all(self, row: Row, guide_cache: GuideCache, state: int) -> Allowed:
        """What a row may choose from where there is plenty left."""
        stop_ids = row.request.stop_ids
        ids = None if row.request.scores or stop_ids else guide_cache.allowed(state).ids
        return Allowed(ids, guide_cache.mask(state, stop_ids) if ids is None else None)

    def _narrowed(self, row: Row, allowed: Allowed) -> Allowed:
        """What the controls of repetition and length, and bans, leave of it, as a mask. Raises OptionError."""
        if row.request.is_plain_after(len(row.tokens)):
            return allowed
        mask = allowed.mask
        if mask is None and row.guide_cache is not None:
            mask = row.guide_cache.mask(row.state, row.request.stop_ids)
        mask = row.request.withheld(mask, row.tokens, self._vocabulary.size, self._eos, row.state, row.inside)
        if mask is not None and not mask.any():
            raise all_banned(place_of(row))
        return Allowed(mask=mask)

    def _closing(self, row: Row) -> Allowed:
        mask = self.closing_mask(row) if row.closing is None else row.closing
        guide_cache = row.guide_cache
        return Allowed(mask=mask) if row.request.scores or guide_cache is None else guide_cache.listed(mask)

    def is_tight(self, row: Row) -> bool:
        """Whether a row may choose only from what leaves room to finish."""
        guide_cache = row.guide_cache
        return guide_cache is not None and guide_cache.tight(row.state, row.left)

    def closing_mask(self, row: Row) -> Mask:
        """What leaves room to finish, under the row's constraint."""
        assert row.guide_cache is not None
        return row.guide_cache.mask(row.state, row.request.stop_ids, row.left)

    def fits(self, row: Row, token: int) -> bool:
        """Whether the text can be completed after a token."""
        guide_cache = row.guide_cache
        if guide_cache is None or token in self._eos or row.request.stops(row.state, token):
            return True
        left = row.left - row.request.is_output(row.state, token)
        try:
            return guide_cache.fits(guide_cache.guide.advance(row.state, token), left)
        except Exception as error:
            row.error = error
            return True

    def _select(
        self, reading: Reading[Row], numbers: Sequence[int], allowed: Sequence[Allowed | None], attempt: int
    ) -> dict[int, int]:
        """One pick for each of the rows; those with few tokens allowed compute only their logits."""
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
                rows = [reading.texts[i] for i in several]
                logits = _changed(found if len(several) == len(wide) else found[places], rows)
                masks = stack_masks([_mask(allowed[i]) for i in several], logits)
                picked = search.pick(logits, masks, _draws(search, rows, attempt))
                tokens.update(zip(several, picked, strict=True))
        for i, token in tokens.items():
            if token == UNUSABLE:
                row = reading.texts[i]
                row.error = unusable(row)
        return tokens

    def _score(
        self,
        reading: Reading[Row],
        numbers: Sequence[int],
        allowed: Sequence[Allowed | None],
        tokens: dict[int, int],
    ) -> None:
        """Write down the log-probabilities of the chosen tokens, and traces, where they are asked for."""
        scored = [i for i in numbers if reading.texts[i].request.scores]
        if not scored:
            return
        logits, masks = reading.logits(scored), [_mask(allowed[i]) for i in scored]
        stacked = stack_masks(masks, logits)
        pairs = log_probabilities(logits, stacked, [tokens[i] for i in scored])
        most = max(reading.texts[i].request.best for i in scored)
        best = best_tokens(logits, stacked, most) if most else []
        for place, (i, (score, raw)) in enumerate(zip(scored, pairs, strict=True)):
            row, token = reading.texts[i], tokens[i]
            if row.request.diagnostics:
                try:
                    row.traces += traces(
                        logits[place : place + 1],
                        [masks[place]],
                        [0],
                        [(row.state, row.left)],
                        [token],
                        [(score, raw)],
                        row.request.weighed_at,
                    )
                except ModelError as error:
                    row.error = error
                    continue
            if token in self._eos or row.request.stops(row.state, token):
                row.end_score = score
            else:
                row.scores.append(score)
                row.raw_scores.append(raw)
                if k := row.request.best:
                    row.best.append((best[place][0][:k], best[place][1][:k]))

    def commit(self, row: Row, token: int) -> None:
        """Let a row have a token that was chosen, and what follows from it."""
        if row.error is not None:
            return
        stops = row.request.stops(row.state, token)
        if token in self._eos or stops:
            row.overruled |= row.request.overruled(row.tokens, token, ends=True)
            row.finish = "complete" if token in self._eos else "stop"
        else:
            before, count, length = row.known, len(row.tokens), len(row.text)
            self._append(row, token)
            self.settle(row)
            if before is not None and row.known is not None:
                found = Transition(row.known, tuple(row.tokens[count:]), bytes(row.text[length:]))
                guide_cache = row.guide_cache
                states = self._free if guide_cache is None else guide_cache.beyond(row.state)[0].states
                states.follow(before, token, found)

    def _goes_on(self, row: Row, token: int) -> bool:
        """Let a row in a known state have a token; False if it is in none, or if too little would be left."""
        if row.known is None or row.error is not None:
            return False
        try:
            if not (row.follow(token) or self._meets(row.known, row, token)):
                if not self.fits(row, token):
                    return False
                self.commit(row, token)
        except Exception as error:
            row.error = error
        return True

    def _meets(self, known: KnownState, row: Row, token: int) -> bool:
        """Let a row go on from a known state to one that others came to by other ways; False if that is none."""
        stop_ids, guide_cache = row.request.stop_ids, row.guide_cache
        if guide_cache is None or token in self._eos or token in stop_ids:
            return False
        guide_cache, state = guide_cache.beyond(row.state)
        found = guide_cache.states.met(guide_cache.guide.advance(state, token), stop_ids)
        if found is None:
            return False
        guide_cache.states.follow(known, token, Transition(found, (token,), self._vocabulary.tokens[token] or b""))
        return row.follow(token)

    def _know(self, row: Row) -> None:
        """Let a row be in a known state, where nothing is to be looked at but which token it chooses."""
        if not row.is_quick or row.finish is not None or row.state < row.request.start.tail:
            return
        stop_ids = row.request.stop_ids
        if row.guide_cache is None:
            row.known = self._free.of(FREE, stop_ids)
            return
        guide_cache, state = row.guide_cache.beyond(row.state)
        known = guide_cache.states.of(state, stop_ids)
        left = row.left
        if known.enough + 2 > left:
            if guide_cache.tight(state, left):
                return
            if known.enough == FAR:
                guide_cache.states.allow(known, self._among_all(row, guide_cache, state))
            enough = guide_cache.enough(state)
            known.enough = min(known.enough, left - 2 if enough is None else enough)
        row.known = known

    def _append(self, row: Row, token: int) -> None:
        """Add a token to the row; a stop string cuts its text and ends it."""
        request, guide_cache = row.request, row.guide_cache
        known = len(row.text)
        state = row.state if guide_cache is None else guide_cache.guide.advance(row.state, token)
        row.overruled |= request.overruled(row.tokens, token, ends=False)
        row.pending.append(token)
        row.text += request.output(row.state, self._vocabulary.tokens[token] or b"")
        row.inside += not request.is_output(row.state, token)
        row.tokens.append(token)
        row.state = state
        if request.stop and (at := request.stop.find(row.text, known)) >= 0:
            del row.text[at:]
            row.finish = "stop"

    def _settle(self, row: Row) -> None:
        """Add the tokens to which there is no alternative, and find out whether the text is at its end."""
        while row.finish is None:
            guide_cache = row.guide_cache
            if row.left == 0 and row.request.may_be_cut:
                row.finish = "length"
            if guide_cache is None or row.finish is not None:
                return
            allowed = guide_cache.allowed(row.state)
            if allowed.ends or row.left == 0:
                if row.request.diagnostics:
                    return
                row.overruled |= row.request.overruled(row.tokens, -1, ends=row.left > 0)
                row.finish = "complete"
            elif allowed.forced < 0 or row.request.scores:
                return
            elif row.request.bans(row.state, allowed.forced):
                raise all_banned(place_of(row))
            else:
                self._append(row, allowed.forced)


def place_of(row: Row) -> str:
    """What a row is called in errors."""
    return f"step {len(row.tokens)} of prompt {row.request.number}"


def unusable(row: Row) -> ModelError:
    """What is wrong where no token can be chosen."""
    return ModelError(
        f"the model's logits at {place_of(row)} are NaN or infinite, or give every allowed token the probability 0"
    )


def all_banned(place: str) -> OptionError:
    """What is wrong where nothing is allowed but banned tokens."""
    return OptionError(
        f"logit_bias: at {place} every token that the constraint, and what is left of max_tokens, allow is banned by "
        "-inf; use a number such as -100, which leaves a token to be chosen where there is no other"
    )


def _changed(logits: Tensor, rows: Sequence[Row]) -> Tensor:
    """The logits of rows, float32 [rows, V], with their penalties and biases."""
    if not any(row.request.changes_scores for row in rows):
        return logits
    found = logits.clone()
    for scores, row in zip(found, rows, strict=True):
        row.request.changed(scores, row.tokens, row.inside, row.state)
    return found


def _draws(search: Search, rows: Sequence[Row], attempt: int) -> list[float]:
    """A random number for each row; any will do for a search that looks at none."""
    if type(search) is Greedy:
        return [0.0] * len(rows)
    return [uniform(row.request.key, len(row.tokens), attempt) for row in rows]


def _mask(allowed: Allowed | None) -> Mask | None:
    return None if allowed is None else allowed.mask
