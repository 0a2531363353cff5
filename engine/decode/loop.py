"""The decode loop: rows join, read, choose and leave, one forward pass a step."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelError
from ...guides.protocol import Mask
from ..diagnostics.trace import traces
from ..models.protocol import Hidden, Model, SourceModel
from ..search import UNUSABLE, Search
from .cache import Slots, without
from .guide_cache import Allowed
from .logits import logits_of
from .randomness import uniform
from .repetition import Controls
from .row import Request, Row
from .scoring import log_probabilities


class Reading(NamedTuple):
    """What a forward pass gave: the rows that read, and where in `hidden` each finds its last token.

    logits: of all rows and tokens, float32 [rows, V], where they are wanted whatever a row may choose from
    """

    rows: list[Row]
    hidden: Hidden
    places: list[int]
    logits: Tensor | None = None

    def only(self, numbers: Sequence[int]) -> Reading:
        """The reading of some of the rows."""
        logits = None if self.logits is None else self.logits[list(numbers)]
        return Reading([self.rows[i] for i in numbers], self.hidden, [self.places[i] for i in numbers], logits)


class Loop:
    """Requests on their way to texts. Call `step` until `done`; it adds the rows that finish to `finished`.

    rows: how many may be in the batch at once; capacity: tokens that each may come to, prompt and output
    scores: record log-probabilities, for which every token has a forward pass of its own
    diagnostics: record traces too, also of an EOS to which there is no alternative
    """

    def __init__(
        self,
        model: Model,
        requests: Iterable[Request],
        search: Search,
        *,
        rows: int,
        capacity: int,
        scores: bool = False,
        diagnostics: bool = False,
    ) -> None:
        self.model = model
        self.search = search
        self.scores = scores or diagnostics
        self.diagnostics = diagnostics
        self.waiting = deque(requests)
        self.active: list[Row] = []
        self.finished: deque[Row] = deque()
        self.steps = 0
        self._cache = model.make_cache(rows, capacity)
        self._eos = frozenset(model.vocabulary.eos_ids)

    @property
    def done(self) -> bool:
        """Whether every row has finished."""
        return not self.waiting and not self.active

    def certain(self) -> bytes:
        """What the first row's text will begin with, whatever comes."""
        row = self.active[0]
        return bytes(row.text[: row.request.stop.safe(row.text)])

    @torch.inference_mode()
    def step(self) -> None:
        """Admit waiting rows, or let all read on; choose a token for each that read; finished rows leave."""
        joining = self._schedule()
        if joining or self.active:
            reading = self._prefill(joining) if joining else self._decode()
            self._commit(reading, self._choose(reading))
            self.steps += 1
        self._retire()

    def leaving(self) -> list[Row]:
        """The finished rows that nobody has taken yet, also in the midst of a step; some may be there twice."""
        return [*self.finished, *(row for row in self.active if row.finish is not None)]

    def _schedule(self) -> list[Row]:
        """Rows that join now; those whose text follows from the constraint without a model are finished."""
        joining: list[Row] = []
        while self.waiting and len(self.active) + len(joining) < self._cache.rows:
            row = self._start(self.waiting.popleft())
            (joining if row.finish is None else self.finished).append(row)
        return joining

    def _start(self, request: Request) -> Row:
        row = Row(request, request.first_state, list(request.start.prompt))
        self._settle(row)
        return row

    def _prefill(self, joining: list[Row]) -> Reading:
        """Read new rows' prompts; samples of one prompt read it once and fork."""
        first = len(self.active)
        texts = [(row.request.start.source, row.pending) for row in joining]
        leads = [i for i, text in enumerate(texts) if i == 0 or text != texts[i - 1]]
        self._cache.join(len(leads))
        read_sources(self.model, [texts[i][0] for i in leads], self._cache, first)
        hidden = self.model.forward([joining[i].pending for i in leads], self._cache, first)
        places = [number for number, (i, j) in enumerate(zip(leads, [*leads[1:], len(joining)], strict=True))
                  for _ in range(i, j)]  # fmt: skip
        self._cache.arrange([*range(first), *(first + place for place in places)])
        self.active += joining
        return Reading(joining, hidden, places)

    def _decode(self) -> Reading:
        """Read what each row chose last, and what was forced upon it since."""
        hidden = self.model.forward([row.pending for row in self.active], self._cache)
        return Reading(self.active, hidden, list(range(len(self.active))))

    def _choose(self, reading: Reading) -> list[int]:
        """A token for each row: of all that are allowed, or else of those after which the rest still fits."""
        if self.scores:
            reading = reading._replace(logits=self._logits(reading, reading.places, None))
        allowed = [self._narrowed(row, self._allowed(row)) for row in reading.rows]
        tokens = self._select(reading, allowed, attempt=0)
        late = [i for i, token in enumerate(tokens) if not self._fits(reading.rows[i], token)]
        if late:
            for i in late:
                allowed[i] = self._narrowed(reading.rows[i], self._closing(reading.rows[i]))
            again = self._select(reading.only(late), [allowed[i] for i in late], attempt=1)
            for i, token in zip(late, again, strict=True):
                tokens[i] = token
        if self.scores:
            self._score(reading, allowed, tokens)
        return tokens

    def _allowed(self, row: Row) -> Allowed:
        guide_cache = row.guide_cache
        if guide_cache is None:
            return Allowed()
        if guide_cache.tight(row.state, row.left):
            return self._closing(row)
        stop_ids = row.request.stop_ids
        ids = None if self.scores or stop_ids else guide_cache.allowed(row.state).ids
        return Allowed(ids, guide_cache.mask(row.state, stop_ids) if ids is None else None)

    def _narrowed(self, row: Row, allowed: Allowed) -> Allowed:
        """What the controls of repetition and length leave of it, as a mask."""
        controls = row.request.controls
        if controls == _NO_CONTROLS:
            return allowed
        mask = allowed.mask
        if mask is None and row.guide_cache is not None:
            mask = row.guide_cache.mask(row.state, row.request.stop_ids)
        return Allowed(mask=row.request.withheld(mask, row.tokens, self.model.vocabulary.size, self._eos))

    def _closing(self, row: Row) -> Allowed:
        """Only what leaves room to finish."""
        guide_cache = row.guide_cache
        assert guide_cache is not None
        mask = guide_cache.mask(row.state, row.request.stop_ids, row.left)
        return Allowed(mask=mask) if self.scores else guide_cache.listed(mask)

    def _fits(self, row: Row, token: int) -> bool:
        guide_cache = row.guide_cache
        if guide_cache is None or token in self._eos or row.request.stops(row.state, token):
            return True
        left = row.left - row.request.is_output(row.state, token)
        return guide_cache.fits(guide_cache.guide.advance(row.state, token), left)

    def _select(self, reading: Reading, allowed: Sequence[Allowed], attempt: int) -> list[int]:
        """One pick per row; rows with few tokens allowed compute only their logits."""
        tokens = [UNUSABLE] * len(allowed)
        draws = [uniform(row.request.key, len(row.tokens), attempt) for row in reading.rows]
        wide = [i for i, each in enumerate(allowed) if each.ids is None]
        for i, each in enumerate(allowed):
            if each.ids is not None:
                logits = self._logits(reading, [reading.places[i]], each.ids)
                column = self.search.pick(logits, None, [draws[i]])[0]
                tokens[i] = column if column == UNUSABLE else int(each.ids[column])
        if wide:
            logits = reading.logits
            if logits is None:
                logits = self._logits(reading, [reading.places[i] for i in wide], None)
            controls = reading.rows[0].request.controls
            if controls.repetition_penalty != 1:
                rows = [reading.rows[i] for i in wide]
                logits = controls.penalised(logits, [[*row.request.start.prompt, *row.tokens] for row in rows])
            masks = stack_masks([allowed[i].mask for i in wide], logits)
            picked = self.search.pick(logits, masks, [draws[i] for i in wide])
            for i, token in zip(wide, picked, strict=True):
                tokens[i] = token
        for row, token in zip(reading.rows, tokens, strict=True):
            if token == UNUSABLE:
                raise ModelError(
                    f"the model's logits at step {len(row.tokens)} of prompt {row.request.number} are NaN or "
                    "infinite, or give every allowed token the probability 0"
                )
        return tokens

    def _logits(self, reading: Reading, places: Sequence[int], ids: Tensor | None) -> Tensor:
        """The model's logits at some places of what was read."""

        def place(number: int) -> str:
            row = reading.rows[reading.places.index(number)]
            return f"step {len(row.tokens)} of prompt {row.request.number}"

        return logits_of(self.model, reading.hidden, places, ids, place)

    def _score(self, reading: Reading, allowed: Sequence[Allowed], tokens: Sequence[int]) -> None:
        assert reading.logits is not None
        masks = [each.mask for each in allowed]
        pairs = log_probabilities(reading.logits, stack_masks(masks, reading.logits), tokens)
        if self.diagnostics:
            places = [(row.state, row.left) for row in reading.rows]
            found = traces(reading.logits, masks, range(len(masks)), places, tokens, pairs)
            for row, trace in zip(reading.rows, found, strict=True):
                row.traces.append(trace)
        for row, token, (score, raw) in zip(reading.rows, tokens, pairs, strict=True):
            if token in self._eos or row.request.stops(row.state, token):
                row.end_score = score
            else:
                row.scores.append(score)
                row.raw_scores.append(raw)

    def _commit(self, reading: Reading, tokens: Sequence[int]) -> None:
        for row, token in zip(reading.rows, tokens, strict=True):
            row.pending = []
            if token in self._eos or row.request.stops(row.state, token):
                row.overruled |= row.request.overruled(row.tokens, token, ends=True)
            if token in self._eos:
                row.finish = "complete"
            elif row.request.stops(row.state, token):
                row.finish = "stop"
            else:
                self._append(row, token)
                self._settle(row)

    def _append(self, row: Row, token: int) -> None:
        """Add a token to the row; a stop string cuts its text and ends it."""
        request, guide_cache = row.request, row.guide_cache
        known = len(row.text)
        row.overruled |= request.overruled(row.tokens, token, ends=False)
        row.tokens.append(token)
        row.pending.append(token)
        row.text += request.output(row.state, self.model.vocabulary.tokens[token] or b"")
        row.inside += not request.is_output(row.state, token)
        if guide_cache is not None:
            row.state = guide_cache.guide.advance(row.state, token)
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
                if self.diagnostics:
                    return
                row.overruled |= row.request.overruled(row.tokens, -1, ends=row.left > 0)
                row.finish = "complete"
            elif allowed.forced < 0 or self.scores:
                return
            else:
                self._append(row, allowed.forced)

    def _retire(self) -> None:
        """Take finished rows out of the batch and the cache."""
        leaving = [i for i, row in enumerate(self.active) if row.finish is not None]
        if leaving:
            parents = without(len(self.active), leaving)
            self._cache.arrange(parents)
            self.finished.extend(self.active[i] for i in leaving)
            self.active = [self.active[i] for i in parents]


_NO_CONTROLS = Controls()


def read_sources(model: Model, sources: Sequence[Sequence[int]], cache: Slots, first: int) -> None:
    """Encode the prompts of new rows, if the model has an encoder."""
    if isinstance(model, SourceModel):
        model.encode(sources, cache, first)


def stack_masks(masks: Sequence[Mask | None], logits: Tensor) -> Tensor | None:
    """The masks of all rows as int32 [rows, words] where the logits are, full ones for None."""
    if all(mask is None for mask in masks):
        return None
    words = (logits.shape[1] + 31) // 32
    stacked = np.full((len(masks), words), 0xFFFFFFFF, np.uint32)
    for row, mask in zip(stacked, masks, strict=True):
        if mask is not None:
            row[:] = mask
    return torch.as_tensor(stacked.view(np.int32), device=logits.device)
