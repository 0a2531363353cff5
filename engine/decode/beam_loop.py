"""The decode loop of beam search: the beams of a prompt are neighbouring rows, continued together."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ...errors import ModelError
from ...guides.protocol import Mask
from ...kernels.logits.select import NAN, logsumexp, masked_topk
from ..diagnostics.trace import traces
from ..models.protocol import Hidden, Model
from ..search import banks
from ..search.beam import Beam, Finished, Hypothesis
from ..search.trace import Recorder
from .arrays import as_list
from .beam_group import Candidate, Group, common
from .cache import without
from .logits import logits_of
from .loop import read_sources, stack_masks
from .row import Request, Row


class BeamLoop:
    """Prompts on their way to texts by beam search. Call `step` until `done`, as with `Loop`.

    rows: how many beams may run at once, at least `search.width`; capacity: tokens that each may come to
    scores: also compute the log-probabilities of the tokens among the allowed ones; diagnostics: traces too
    trace: also record the beams of every step
    """

    def __init__(
        self,
        model: Model,
        requests: Iterable[Request],
        search: Beam,
        *,
        rows: int,
        capacity: int,
        scores: bool = False,
        diagnostics: bool = False,
        trace: bool = False,
    ) -> None:
        self.model = model
        self.search = search
        self.scores = scores or diagnostics
        self.diagnostics = diagnostics
        self.trace = trace
        self.waiting = deque(requests)
        self.groups: list[Group] = []
        self.finished: deque[Row] = deque()
        self.steps = 0
        self._cache = model.make_cache(rows, capacity)
        self._eos = frozenset(model.vocabulary.eos_ids)

    @property
    def done(self) -> bool:
        """Whether every prompt has its texts."""
        return not self.waiting and not self.groups

    def certain(self) -> bytes:
        """What the first prompt's text will begin with, whichever hypothesis wins."""
        group = self.groups[0]
        running = [beam.text[: group.request.stop.safe(beam.text)] for beam in group.beams]
        texts = [*running, *(one.text for _, one in group.finished.best)]
        least, most = min(texts), max(texts)  # all others lie between them
        return least[: common(least, most)]

    @torch.inference_mode()
    def step(self) -> None:
        """Read the prompts that join, or let all beams read on; continue the beams that read; done prompts leave."""
        joining = self._schedule()
        hidden = self._prefill(joining) if joining else self._decode()
        self._choose(joining or self.groups, hidden)
        self.groups += joining
        self.steps += 1
        self._retire()

    def leaving(self) -> list[Row]:
        """The results that nobody has taken yet, also in the midst of a step; some may be there twice."""
        return [*self.finished, *(row for group in self.groups if group.done for row in self._results(group))]

    def _schedule(self) -> list[Group]:
        """Prompts for whose beams there is room now."""
        free = (self._cache.rows - len(self.groups) * self.search.width) // self.search.width
        first = sum(len(group.beams) for group in self.groups)
        return [self._start(self.waiting.popleft(), first + i) for i in range(min(free, len(self.waiting)))]

    def _start(self, request: Request, at: int) -> Group:
        start = request.start
        finished = Finished(self.search, request.budget + start.tail, by_text=start.guide_cache is not None)
        recorder = Recorder(self.search, self.model.vocabulary) if self.trace else None
        return Group(request, finished, [Hypothesis((), b"", request.first_state)], at, recorder)

    def _prefill(self, joining: list[Group]) -> Hidden:
        """Read each prompt once."""
        self._cache.join(len(joining))
        read_sources(self.model, [group.request.start.source for group in joining], self._cache, joining[0].at)
        return self.model.forward([group.request.start.prompt for group in joining], self._cache, joining[0].at)

    def _decode(self) -> Hidden:
        """Read the last token of every beam."""
        return self.model.forward([beam.tokens[-1:] for group in self.groups for beam in group.beams], self._cache)

    def _choose(self, groups: list[Group], hidden: Hidden) -> None:
        """Continue the beams of each group by its best candidates; the head is computed once for all."""
        owners = [group for group in groups for _ in group.beams]
        logits = logits_of(self.model, hidden, range(len(owners)), None, lambda row: _place(owners[row]))
        first = 0
        for count, alike in groupby(groups, key=lambda group: len(group.beams)):
            several = list(alike)
            rows = logits[first : first + count * len(several)]
            first += len(rows)
            masks = [self._mask(group, beam) for group in several for beam in group.beams]
            for i, (group, best) in enumerate(zip(several, self._best(several, rows, masks), strict=True)):
                part = slice(i * count, (i + 1) * count)
                self._continue(group, best, rows[part], masks[part])

    def _mask(self, group: Group, beam: Hypothesis) -> Mask | None:
        """What the beam may go on with; near the end of the budget only what leaves room to finish."""
        guide_cache = group.request.guide_cache(beam.state)
        if guide_cache is not None and guide_cache.tight(beam.state, group.left(beam)):
            return self._closing_mask(group, beam)
        mask = None if guide_cache is None else guide_cache.mask(beam.state, group.request.stop_ids)
        return self._narrowed(group, beam, mask)

    def _closing_mask(self, group: Group, beam: Hypothesis) -> Mask | None:
        guide_cache = group.request.guide_cache(beam.state)
        assert guide_cache is not None
        mask = guide_cache.mask(beam.state, group.request.stop_ids, group.left(beam))
        return self._narrowed(group, beam, mask)

    def _narrowed(self, group: Group, beam: Hypothesis, mask: Mask | None) -> Mask | None:
        return group.request.withheld(mask, beam.tokens, self.model.vocabulary.size, self._eos)

    def _best(self, groups: list[Group], logits: Tensor, masks: Sequence[Mask | None]) -> list[list[Candidate]]:
        """The best candidates of groups of equally many beams, best first.

        As many as make sure that `width` of them do not end, if so many there are: of all beams of a group or,
        where there are goals, of each beam, and besides so many of those that advance a goal.
        """
        enders = max(len(self._eos | group.request.stop_ids) for group in groups)
        wanted = max(2, 1 + enders) * self.search.width
        if not groups[0].has_goals:
            return self._listed(groups, logits, masks, wanted, together=True)[0]
        found, logsums = self._listed(groups, logits, masks, wanted, together=False)
        beams = [(number, place) for number, group in enumerate(groups) for place in range(len(group.beams))]
        for row, (number, place) in enumerate(beams):
            further = self._further(groups[number], place, logits[row], logsums[row], masks[row])
            found[number] += further
        return [_merged(candidates) for candidates in found]

    def _further(self, group: Group, place: int, logits: Tensor, logsum: float, mask: Mask | None) -> list[Candidate]:
        """The best `width` tokens of a beam that lead on to a goal."""
        beam, guide_cache = group.beams[place], group.request.start.guide_cache
        if guide_cache is None or mask is None:
            return []
        ids = guide_cache.advancing(beam.state)
        ids = ids[(mask[ids >> 5] >> (ids & 31).astype(np.uint32)) & 1 == 1]
        values = logits[torch.as_tensor(ids, dtype=torch.int64, device=logits.device)]
        best = torch.topk(values, min(self.search.width, len(ids)))
        columns: list[int] = as_list(best.indices)
        gains: list[float] = as_list(best.values)
        return [
            Candidate(beam.total + gain - logsum, place, int(ids[column]))
            for gain, column in zip(gains, columns, strict=True)
            if gain > -math.inf
        ]

    def _listed(
        self, groups: list[Group], logits: Tensor, masks: Sequence[Mask | None], wanted: int, *, together: bool
    ) -> tuple[list[list[Candidate]], list[float]]:
        """The best `wanted` candidates of each group, or of each of its beams, and each row's log-sum-exp."""
        count = len(groups[0].beams)
        size = count if together else 1
        totals = [beam.total for group in groups for beam in group.beams]
        wanted = min(wanted, size * logits.shape[1])
        controls, stacked = groups[0].request.controls, stack_masks(masks, logits)
        if controls.repetition_penalty == 1:
            best = masked_topk(logits, wanted, stacked, scores=totals, group=size)
        else:
            # As in transformers: the penalty is on log-probabilities, which are not normalised again.
            texts = [[*group.request.start.prompt, *beam.tokens] for group in groups for beam in group.beams]
            logprobs = controls.penalised(logits.log_softmax(-1), texts)
            best = masked_topk(logprobs, wanted, stacked, scores=totals, group=size, normalise="none")
        for number, status in enumerate(as_list(best.status)):
            if status == NAN:
                raise _unusable(groups[number // count])
        found: list[list[Candidate]] = [[] for _ in groups]
        lists: Iterable[Any] = zip(as_list(best.scores), as_list(best.rows), as_list(best.tokens), strict=True)
        for one in lists:
            for total, row, token in zip(*one, strict=True):
                if row >= 0:
                    group, beam = divmod(int(row), count)
                    found[group].append(Candidate(total, beam, token))
        return found, as_list(best.normaliser)

    def _continue(self, group: Group, candidates: list[Candidate], logits: Tensor, masks: list[Mask | None]) -> None:
        """Replace the group's beams by its best candidates, and enter those that are finished.

        Where the rest would not fit into the budget after a candidate, its beam offers only what fits.
        """
        taken = self._taken(group, candidates)
        closed: set[int] = set()
        while late := {one.beam for one, after in taken if not self._fits(group, after)} - closed:
            for beam in late:
                masks[beam] = self._closing_mask(group, group.beams[beam])
            closed |= late
            taken = self._taken(group, self._best([group], logits, masks)[0])
        if self.scores:
            taken = self._with_logprobs(group, taken, logits, masks)
        if group.recorder is not None:
            banked = ((one, after, group.progress(one) if group.has_goals else None) for one, after in taken)
            group.recorder.add((group.beams[one.beam], one.token, after, bank) for one, after, bank in banked)
        running = [(one.beam, after) for one, after in taken if after.finish is None]
        group.finished.add([after for _, after in taken if after.finish is not None])
        if not running and not group.finished.best:
            raise _unusable(group)
        group.done = not running or group.finished.settled(max((after for _, after in running), key=_total))
        group.before, group.origins = group.beams, [beam for beam, _ in running]
        group.beams = [after for _, after in running]

    def _taken(self, group: Group, candidates: list[Candidate]) -> list[tuple[Candidate, Hypothesis]]:
        """The best `width` candidates that go on, and those of the best `width` of all that do not."""
        if group.has_goals:
            return self._taken_from_banks(group, candidates)
        taken: list[tuple[Candidate, Hypothesis]] = []
        running = 0
        for rank, one in enumerate(candidates):
            after = self._after(group, one)
            if after.finish is None:
                running += 1
            if after.finish is None or rank < self.search.width:
                taken.append((one, after))
            if running == self.search.width:
                break
        return taken

    def _taken_from_banks(self, group: Group, candidates: list[Candidate]) -> list[tuple[Candidate, Hypothesis]]:
        """As `_taken`, the ones that go on picked from banks, and the others if they are among the best of theirs."""
        progress = [group.progress(one) for one in candidates]
        ranks: dict[int, int] = {}
        taken: list[tuple[Candidate, Hypothesis]] = []
        running = 0
        for place in banks.pick(progress, len(candidates)):
            one, bank = candidates[place], progress[place]
            ranks[bank] = ranks.get(bank, 0) + 1
            is_among_best = ranks[bank] <= self.search.width
            if not is_among_best and (running == self.search.width or one.token in self._eos):
                continue
            after = self._after(group, one)
            if after.finish is None and running < self.search.width:
                running += 1
                taken.append((one, after))
            elif after.finish is not None and is_among_best:
                taken.append((one, after))
        return taken

    def _after(self, group: Group, one: Candidate) -> Hypothesis:
        """A hypothesis with one more token, finished if that ends it."""
        parent, request = group.beams[one.beam], group.request
        length = parent.length + 1
        ends = one.token in self._eos or request.stops(parent.state, one.token)
        overruled = parent.overruled | request.overruled(parent.tokens, one.token, ends)
        if ends:
            finish = "complete" if one.token in self._eos else "stop"
            return replace(parent, total=one.total, length=length, finish=finish, overruled=overruled)
        tokens = (*parent.tokens, one.token)
        text = parent.text + request.output(parent.state, self.model.vocabulary.tokens[one.token] or b"")
        inside = parent.inside + (not request.is_output(parent.state, one.token))
        state, finish = parent.state, None
        guide_cache = request.guide_cache(state)
        if guide_cache is not None:
            state = guide_cache.guide.advance(state, one.token)
        if len(tokens) - inside == request.budget:
            finish = "length" if request.may_be_cut else "complete"
        if request.stop and (at := request.stop.find(text, len(parent.text))) >= 0:
            text, finish = text[:at], "stop"
        return replace(
            parent,
            tokens=tokens,
            text=text,
            state=state,
            total=one.total,
            length=length,
            finish=finish,
            inside=inside,
            overruled=overruled,
        )

    def _fits(self, group: Group, after: Hypothesis) -> bool:
        guide_cache = group.request.guide_cache(after.state)
        ended = after.length > len(after.tokens)
        return guide_cache is None or ended or guide_cache.fits(after.state, group.left(after))

    def _with_logprobs(
        self, group: Group, taken: list[tuple[Candidate, Hypothesis]], logits: Tensor, masks: list[Mask | None]
    ) -> list[tuple[Candidate, Hypothesis]]:
        sums = logsumexp(logits, stack_masks(masks, logits))
        gain = [raw - masked for raw, masked in zip(as_list(sums.raw), as_list(sums.masked), strict=True)]
        found: list[tuple[Candidate, Hypothesis]] = []
        for one, after in taken:
            raw = float(logits[one.beam, one.token]) - as_list(sums.raw)[one.beam]
            found.append((one, replace(after, logprobs=(*after.logprobs, (raw + gain[one.beam], raw)))))
        return self._with_traces(group, found, logits, masks) if self.diagnostics else found

    def _with_traces(
        self, group: Group, taken: list[tuple[Candidate, Hypothesis]], logits: Tensor, masks: list[Mask | None]
    ) -> list[tuple[Candidate, Hypothesis]]:
        rows = [one.beam for one, _ in taken]
        places = [(group.beams[row].state, group.left(group.beams[row])) for row in rows]
        pairs = [after.logprobs[-1] for _, after in taken]
        found = traces(logits, masks, rows, places, [one.token for one, _ in taken], pairs)
        return [
            (one, replace(after, traces=(*after.traces, trace)))
            for (one, after), trace in zip(taken, found, strict=True)
        ]

    def _retire(self) -> None:
        """Take prompts that are done out of the batch, and put the cache's rows where their beams are."""
        leaving = [i for i, group in enumerate(self.groups) if group.done]
        self.finished.extend(row for i in leaving for row in self._results(self.groups[i]))
        self.groups = [self.groups[i] for i in without(len(self.groups), leaving)]
        parents: list[int] = []
        shared: list[int] = []
        for group in self.groups:
            found, alike = group.arrange(len(parents))
            parents += found
            shared += alike
        self._cache.arrange(parents, shared)

    def _results(self, group: Group) -> list[Row]:
        """The best `n` texts, best first."""
        best = group.finished.best[: self.search.n]
        trace = None if group.recorder is None else group.recorder.trace([one for _, one in best])
        rows: list[Row] = []
        for sample, (score, one) in enumerate(best):
            row = Row(replace(group.request, sample=sample), one.state, [], siblings=len(best), score=score)
            row.tokens, row.text, row.finish = list(one.tokens), bytearray(one.text), one.finish
            row.inside, row.overruled = one.inside, one.overruled
            logprobs = one.logprobs[: len(one.tokens)]
            row.scores, row.raw_scores = [masked for masked, _ in logprobs], [raw for _, raw in logprobs]
            row.traces, row.trace = list(one.traces), trace
            rows.append(row)
        return rows


def _merged(candidates: list[Candidate]) -> list[Candidate]:
    """Each candidate once, best first."""
    found = {(one.beam, one.token): one for one in reversed(candidates)}
    return sorted(found.values(), key=lambda one: (-one.total, one.beam, one.token))


def _total(one: Hypothesis) -> float:
    return one.total


def _unusable(group: Group) -> ModelError:
    return ModelError(
        f"the model's logits at {_place(group)} are NaN or infinite, or give every allowed token the probability 0"
    )


def _place(group: Group) -> str:
    return f"step {len(group.beams[0].tokens)} of prompt {group.request.number}"
