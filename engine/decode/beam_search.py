"""Beam search. The beams of a prompt are separate sequences in the KV cache and are advanced together."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ...guides.protocol import Mask
from ...kernels.logits.select import NAN, logsumexp, masked_topk
from ..memory.pool import Pool
from ..memory.tables import BlockTable
from ..models.protocol import Model
from ..scores import as_list, best_tokens, stack_masks, traces
from ..search import Beam, BeamHypothesis, FinishedBeams, Recorder, round_robin
from .forward_output import ForwardOutput
from .sampler import all_banned, unusable
from .sequence import CommittedPrefix, KVSequence, Request, SequenceState


class BeamSearch:
    """Groups of beams of one model. An error of one group is stored in its `error` and does not affect other groups.

    Beams share the blocks of their common prefix. Splitting a beam only adds references to blocks.
    """

    def __init__(self, model: Model, pool: Pool) -> None:
        self._vocabulary = model.vocabulary
        self._pool = pool
        self._eos = frozenset(model.vocabulary.eos_ids)

    def start(self, request: Request, table: BlockTable) -> BeamGroup:
        """Return the group of a prompt before its first token: a single beam."""
        search, start = request.search, request.start
        assert isinstance(search, Beam)
        finished = FinishedBeams(
            search, request.budget + request.forces_end + start.tail, by_text=start.guide_cache is not None
        )
        recorder = Recorder(search, self._vocabulary) if request.options.trace else None
        beams = [BeamHypothesis((), b"", request.first_state)]
        return BeamGroup(request, finished, beams, [KVSequence(table, list(start.prompt))], recorder)

    def restart(self, group: BeamGroup, table: BlockTable) -> BeamGroup:
        """Return the group with all tokens unread. The first beam uses the given table, each other beam a new one."""
        tables = [table, *(self._pool.table(table.source) for _ in group.beams[1:])]
        for other in tables[1:]:
            other.node = table.node
        readers = [
            KVSequence(each, [*group.request.start.prompt, *beam.tokens])
            for each, beam in zip(tables, group.beams, strict=True)
        ]
        return replace(group, readers=readers)

    def committed_prefix(self, group: BeamGroup) -> CommittedPrefix:
        """Return the longest prefix that all running and finished hypotheses share."""
        running = [beam.text[: group.request.safe(beam.text)] for beam in group.beams]
        texts = [*running, *(one.text[: group.request.safe(one.text)] for _, one in group.finished.best)]
        least, most = min(texts), max(texts)  # all other texts lie between them in lexicographic order
        return CommittedPrefix(least[: common(least, most)])

    def advance(self, groups: Sequence[BeamGroup], reading: ForwardOutput[BeamGroup]) -> None:
        """Advance groups whose beams have read their tokens. The LM head is evaluated once for all groups.

        `reading.texts` names the group of each beam. Beams of one group are adjacent, and groups are in order.
        """
        logits = reading.logits(range(len(reading.texts)))
        first = 0
        for _, alike in groupby(groups, key=_kind):
            several = list(alike)
            count = len(several[0].beams)
            self._advance_alike(several, logits[first : first + count * len(several)])
            first += count * len(several)

    def _advance_alike(self, groups: list[BeamGroup], logits: Tensor) -> None:
        """Advance groups with the same number of beams and the same options."""
        count = len(groups[0].beams)
        masks = [self._masks(group) for group in groups]
        sound = [i for i, group in enumerate(groups) if group.error is None]
        rows = logits if len(sound) == len(groups) else logits[[i * count + k for i in sound for k in range(count)]]
        groups = [groups[i] for i in sound]
        stacked = [mask for i in sound for mask in masks[i]]
        if not groups:
            return
        for i, (group, best) in enumerate(zip(groups, self._best(groups, rows, stacked), strict=True)):
            part = slice(i * count, (i + 1) * count)
            try:
                if group.error is None:
                    self._continue(group, best, rows[part], stacked[part])
            except Exception as error:
                group.error = error

    def _masks(self, group: BeamGroup) -> list[Mask | None]:
        try:
            masks = [self._mask(group, beam) for beam in group.beams]
            if group.request.bias.banned and not any(mask is None or mask.any() for mask in masks):
                group.error = all_banned(place_of(group))
            return masks
        except Exception as error:
            group.error = error
            return []

    def _mask(self, group: BeamGroup, beam: BeamHypothesis) -> Mask | None:
        """Return the mask of a beam. Near the end of the budget it allows only tokens that leave room to finish."""
        guide_cache = group.request.guide_cache(beam.state)
        if guide_cache is not None and guide_cache.is_near_budget(beam.state, group.request.left(beam)):
            return self._closing_mask(group, beam)
        mask = None if guide_cache is None else guide_cache.mask(beam.state, group.request.stop_ids)
        return self._narrowed(group, beam, mask)

    def _closing_mask(self, group: BeamGroup, beam: BeamHypothesis) -> Mask | None:
        guide_cache = group.request.guide_cache(beam.state)
        assert guide_cache is not None
        mask = guide_cache.mask(beam.state, group.request.stop_ids, group.request.left(beam))
        return self._narrowed(group, beam, mask)

    def _narrowed(self, group: BeamGroup, beam: BeamHypothesis, mask: Mask | None) -> Mask | None:
        size = self._vocabulary.size
        return group.request.withheld(mask, beam.tokens, size, self._eos, beam.state, beam.inside)

    def _best(self, groups: list[BeamGroup], logits: Tensor, masks: Sequence[Mask | None]) -> list[list[Candidate]]:
        """Return the best candidates of each group, in the order of choice. All groups have the same number of beams.

        The count guarantees `width` candidates that do not end the text, if enough exist. With goals or a sibling
        penalty, the guarantee holds for each beam. With goals, the best `width` candidates that advance a goal are
        added.
        """
        enders = max(len(self._eos | group.request.stop_ids) for group in groups)
        wanted = max(2, 1 + enders) * groups[0].search.width
        if groups[0].request.changes_scores:
            logits = _changed(groups, logits)
        penalty = groups[0].search.sibling_penalty
        if not groups[0].has_goals and not penalty:
            return self._listed(groups, logits, masks, wanted, together=True)[0]
        found, logsums = self._listed(groups, logits, masks, wanted, together=False)
        if not groups[0].has_goals:
            return [_ordered(candidates, penalty) for candidates in found]
        beams = [(number, place) for number, group in enumerate(groups) for place in range(len(group.beams))]
        for row, (number, place) in enumerate(beams):
            further = self._further(groups[number], place, logits[row], logsums[row], masks[row])
            found[number] += further
        return [_ordered(_merged(candidates), penalty) for candidates in found]

    def _further(
        self, group: BeamGroup, place: int, logits: Tensor, logsum: float, mask: Mask | None
    ) -> list[Candidate]:
        """Return the best `width` tokens of a beam that advance a goal."""
        beam, guide_cache = group.beams[place], group.request.start.guide_cache
        if guide_cache is None or mask is None:
            return []
        ids = guide_cache.advancing(beam.state)
        ids = ids[(mask[ids >> 5] >> (ids & 31).astype(np.uint32)) & 1 == 1]
        values = logits[torch.as_tensor(ids, dtype=torch.int64, device=logits.device)]
        best = torch.topk(values, min(group.search.width, len(ids)))
        columns: list[int] = as_list(best.indices)
        gains: list[float] = as_list(best.values)
        return [
            Candidate(beam.total + gain - logsum, place, int(ids[column]))
            for gain, column in zip(gains, columns, strict=True)
            if gain > -math.inf
        ]

    def _listed(
        self, groups: list[BeamGroup], logits: Tensor, masks: Sequence[Mask | None], wanted: int, *, together: bool
    ) -> tuple[list[list[Candidate]], list[float]]:
        """Return the best `wanted` candidates of each group (together) or of each beam, and each row's log-sum-exp.

        logits: for groups that change scores, the output of `_changed`; their log-sum-exps count as 0
        """
        count = len(groups[0].beams)
        size = count if together else 1
        totals = [beam.total for group in groups for beam in group.beams]
        wanted = min(wanted, size * logits.shape[1])
        normalise = "none" if groups[0].request.changes_scores else "raw"
        best = masked_topk(logits, wanted, stack_masks(masks, logits), scores=totals, group=size, normalise=normalise)
        for number, status in enumerate(as_list(best.status)):
            if status == NAN:
                group = groups[number // count]
                group.error = unusable(place_of(group))
        found: list[list[Candidate]] = [[] for _ in groups]
        lists: Iterable[Any] = zip(as_list(best.scores), as_list(best.rows), as_list(best.tokens), strict=True)
        for one in lists:
            for total, row, token in zip(*one, strict=True):
                if row >= 0:
                    group, beam = divmod(int(row), count)
                    found[group].append(Candidate(total, beam, token))
        return found, as_list(best.normaliser)

    def _continue(
        self, group: BeamGroup, candidates: list[Candidate], logits: Tensor, masks: list[Mask | None]
    ) -> None:
        """Replace the beams of a group by its best candidates, and record finished hypotheses.

        If the rest of the text does not fit into the budget after a candidate, its beam gets the closing mask.
        """
        chosen = self._choose(group, candidates)
        closed: set[int] = set()
        while late := {one.beam for one, after in chosen if not self._fits(group, after)} - closed:
            for beam in late:
                masks[beam] = self._closing_mask(group, group.beams[beam])
            closed |= late
            chosen = self._choose(group, self._best([group], logits, masks)[0])
        if group.request.scores:
            chosen = self._with_logprobs(group, chosen, logits, masks)
        group.finished.add([after for _, after in chosen if after.finish is not None])
        chosen = self._forced_to_end(group, chosen)
        if group.recorder is not None:
            banked = ((one, after, group.progress(one) if group.has_goals else None) for one, after in chosen)
            group.recorder.add((group.beams[one.beam], one.token, after, bank) for one, after, bank in banked)
        running = [(one.beam, after) for one, after in chosen if after.finish is None]
        if not running and not group.finished.best:
            raise unusable(place_of(group))
        group.settled = not running or group.finished.settled(max((after for _, after in running), key=_total))
        group.readers = self._split(group, running)
        group.beams = [after for _, after in running]

    def _forced_to_end(
        self, group: BeamGroup, chosen: list[tuple[Candidate, BeamHypothesis]]
    ) -> list[tuple[Candidate, BeamHypothesis]]:
        """Finish candidates at the end of the budget with a forced EOS, and record them.

        transformers uses a further step for this EOS. Its search may be done before that step.
        """
        running = [after for _, after in chosen if after.finish is None]
        if not group.request.forces_end or not running or group.finished.settled(max(running, key=_total)):
            return chosen
        found = [
            (one, replace(after, length=after.length + 1, finish="length"))
            if after.finish is None and group.request.left(after) == 0
            else (one, after)
            for one, after in chosen
        ]
        cut = [after for (_, before), (_, after) in zip(chosen, found, strict=True) if after is not before]
        group.finished.add(cut)
        return found

    def _split(self, group: BeamGroup, running: Sequence[tuple[int, BeamHypothesis]]) -> list[KVSequence]:
        """Return the tables of the new beams. The first child of a parent takes its table, further children a fork."""
        used: set[int] = set()
        readers: list[KVSequence] = []
        for parent, after in running:
            table = group.readers[parent].table
            readers.append(KVSequence(self._pool.fork(table) if parent in used else table, [after.tokens[-1]]))
            used.add(parent)
        for place, reader in enumerate(group.readers):
            if place not in used:
                self._pool.release(reader.table)
        return readers

    def _choose(self, group: BeamGroup, candidates: list[Candidate]) -> list[tuple[Candidate, BeamHypothesis]]:
        """Select the best `width` unfinished candidates, and the finished ones among the best `width` of all."""
        if group.has_goals:
            return self._choose_from_banks(group, candidates)
        chosen: list[tuple[Candidate, BeamHypothesis]] = []
        running = 0
        for rank, one in enumerate(candidates):
            after = self._after(group, one)
            if after.finish is None:
                running += 1
            if after.finish is None or rank < group.search.width:
                chosen.append((one, after))
            if running == group.search.width:
                break
        return chosen

    def _choose_from_banks(
        self, group: BeamGroup, candidates: list[Candidate]
    ) -> list[tuple[Candidate, BeamHypothesis]]:
        """Select as `_choose` does: unfinished candidates from banks in turn, finished ones if among their bank's
        best."""
        progress = [group.progress(one) for one in candidates]
        ranks: dict[int, int] = {}
        chosen: list[tuple[Candidate, BeamHypothesis]] = []
        running = 0
        for place in round_robin(progress, len(candidates)):
            one, bank = candidates[place], progress[place]
            ranks[bank] = ranks.get(bank, 0) + 1
            is_among_best = ranks[bank] <= group.search.width
            if not is_among_best and (running == group.search.width or one.token in self._eos):
                continue
            after = self._after(group, one)
            if after.finish is None and running < group.search.width:
                running += 1
                chosen.append((one, after))
            elif after.finish is not None and is_among_best:
                chosen.append((one, after))
        return chosen

    def _after(self, group: BeamGroup, one: Candidate) -> BeamHypothesis:
        """Return a hypothesis extended by one token, finished if that token ends it."""
        parent, request = group.beams[one.beam], group.request
        after = request.extended(parent, one.token, self._vocabulary)
        finish, ends = after.finish, len(after.tokens) == len(parent.tokens)
        if finish is None and request.left(after) == 0 and not request.forces_end:
            finish = "length" if request.may_be_cut else "complete"
        overruled = parent.overruled | request.overruled(parent.tokens, one.token, ends)
        return replace(after, total=one.total, length=parent.length + 1, finish=finish, overruled=overruled)

    def _fits(self, group: BeamGroup, after: BeamHypothesis) -> bool:
        guide_cache = group.request.guide_cache(after.state)
        ended = after.length > len(after.tokens)
        return guide_cache is None or ended or guide_cache.fits(after.state, group.request.left(after))

    def _with_logprobs(
        self, group: BeamGroup, chosen: list[tuple[Candidate, BeamHypothesis]], logits: Tensor, masks: list[Mask | None]
    ) -> list[tuple[Candidate, BeamHypothesis]]:
        stacked = stack_masks(masks, logits)
        sums, k = logsumexp(logits, stacked), group.request.best
        best = best_tokens(logits, stacked, k) if k else []
        gain = [raw - masked for raw, masked in zip(as_list(sums.raw), as_list(sums.masked), strict=True)]
        found: list[tuple[Candidate, BeamHypothesis]] = []
        for one, after in chosen:
            raw = float(logits[one.beam, one.token]) - as_list(sums.raw)[one.beam]
            pairs = (*after.logprobs, (raw + gain[one.beam], raw))
            ranked = (*after.best, best[one.beam]) if k else ()
            found.append((one, replace(after, logprobs=pairs, best=ranked)))
        return self._with_traces(group, found, logits, masks) if group.request.options.diagnostics else found

    def _with_traces(
        self, group: BeamGroup, chosen: list[tuple[Candidate, BeamHypothesis]], logits: Tensor, masks: list[Mask | None]
    ) -> list[tuple[Candidate, BeamHypothesis]]:
        rows = [one.beam for one, _ in chosen]
        places = [(group.beams[row].state, group.request.left(group.beams[row])) for row in rows]
        pairs = [after.logprobs[-1] for _, after in chosen]
        found = traces(logits, masks, rows, places, [one.token for one, _ in chosen], pairs)
        return [
            (one, replace(after, traces=(*after.traces, trace)))
            for (one, after), trace in zip(chosen, found, strict=True)
        ]

    def results(self, group: BeamGroup) -> list[SequenceState]:
        """Return the best `n` texts of a finished group, best first."""
        best = group.finished.best[: group.search.n]
        trace = None if group.recorder is None else group.recorder.trace([one for _, one in best])
        rows: list[SequenceState] = []
        for sample, (score, one) in enumerate(best):
            row = SequenceState.of(group.request, one, sample, len(best))
            row.score, row.overruled = score, one.overruled
            logprobs = one.logprobs[: len(one.tokens)]
            row.scores, row.raw_scores = [masked for masked, _ in logprobs], [raw for _, raw in logprobs]
            row.best = list(one.best[: len(one.tokens)])
            row.traces, row.trace = list(one.traces), trace
            rows.append(row)
        return rows


def _merged(candidates: list[Candidate]) -> list[Candidate]:
    """Remove duplicate candidates, and sort them best first."""
    found = {(one.beam, one.token): one for one in reversed(candidates)}
    return sorted(found.values(), key=lambda one: (-one.total, one.beam, one.token))


def _ordered(candidates: Sequence[Candidate], penalty: float) -> list[Candidate]:
    """Sort candidates by log-probability, less the penalty for each candidate of the same beam before it.

    candidates: those of each beam, best first
    """
    siblings: Counter[int] = Counter()
    keys: list[tuple[float, int, int]] = []
    for place, one in enumerate(candidates):
        keys.append((penalty * siblings[one.beam] - one.total, one.beam, place))
        siblings[one.beam] += 1
    return [candidates[place] for _, _, place in sorted(keys)]


def _changed(groups: Sequence[BeamGroup], logits: Tensor) -> Tensor:
    """Return log-probabilities of the next tokens with penalties and biases. They are not normalised again.

    transformers' beam search does the same.
    """
    found = logits.log_softmax(-1)
    beams = [(group.request, beam) for group in groups for beam in group.beams]
    for scores, (request, beam) in zip(found, beams, strict=True):
        request.changed(scores, beam.tokens, beam.inside, beam.state)
    return found


def _kind(group: BeamGroup) -> tuple[Any, ...]:
    """Return a key. Groups with equal keys share one selection of candidates."""
    return len(group.beams), group.search, group.has_goals, group.request.changes_scores


def _total(one: BeamHypothesis) -> float:
    return one.total


def place_of(group: BeamGroup) -> str:
    return f"step {len(group.beams[0].tokens)} of prompt {group.request.number}"


class Candidate(NamedTuple):
    """A beam, by its number in the group, extended by one token. `total` is the log-probability of both."""

    total: float
    beam: int
    token: int


@dataclass(slots=True, eq=False)
class BeamGroup:
    """The beams of one prompt.

    readers: the KV sequence of each beam, in order
    recorder: records the search's trace, if requested
    settled: True if no better text can be found
    error: an error of this prompt alone
    """

    request: Request
    finished: FinishedBeams
    beams: list[BeamHypothesis]
    readers: list[KVSequence]
    recorder: Recorder | None = None
    settled: bool = False
    error: Exception | None = None

    @property
    def search(self) -> Beam:
        """The parameters of the beam search."""
        assert isinstance(self.request.search, Beam)
        return self.request.search

    @property
    def done(self) -> bool:
        """True if the group is finished or has failed."""
        return self.settled or self.error is not None

    @property
    def has_goals(self) -> bool:
        """True if the constraint has goals."""
        guide_cache = self.request.start.guide_cache
        return guide_cache is not None and guide_cache.goals is not None

    def progress(self, one: Candidate) -> int:
        """Return the progress of a candidate with the goals."""
        guide_cache, parent = self.request.start.guide_cache, self.beams[one.beam]
        if guide_cache is None:
            return 0
        if self.request.stops(parent.state, one.token):
            return guide_cache.progress(parent.state)
        return guide_cache.progress_after(parent.state, one.token)


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """Return the length of the longest common prefix, by binary search over slices."""
    low, high = 0, min(len(left), len(right))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if left[low:middle] == right[low:middle] else (low, middle - 1)
    return low
