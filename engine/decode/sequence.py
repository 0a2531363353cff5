"""Requests, and the state of each sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ...guides.protocol import Mask
from ...tokenizers_adapter import Vocabulary
from ..memory.tables import BlockTable
from ..models.generation_config import NOTHING, SuppressedTokens
from ..models.protocol import BEGIN
from ..options import Options
from ..scores import Ranked, SampleStatistics, TokenScore, Trace
from ..search import Beam, FinishReason, Hypothesis, Sample, Search, SearchTrace, StopStrings, Target
from .controls import NO_BIAS, TokenBias, full_mask
from .draft_history import DraftHistory
from .frames import Frame, Sentence
from .guide_cache import FREE, GuideCache, HealedPrompt, StateEntry, StateTable

_NONE = frozenset[str]()
Text = TypeVar("Text", bound=Hypothesis)


@dataclass(frozen=True, slots=True)
class Request:
    """A request for one sequence.

    number: position of the prompt in the call; sample: number of the sample of this prompt
    start: prompt and constraint
    options: of the call; search: resolved, since the options may leave it open
    key: seed of the sequence's random numbers
    bias: biases and bans by token; suppressed: tokens that are chosen only if nothing else is left
    scores: True if log-probabilities are recorded; then every token has a forward pass of its own
    best: number of top log-probabilities recorded for each token
    forces_end: True if EOS is appended with probability 1 after the last token of the budget
    frame: frame of the answer; the generated text contains only the part after the answer
    learns: True if statistics about the prompt's texts are kept for later calls
    prompt_best: number of top log-probabilities recorded for each prompt token, besides the token's own; None for
        neither
    adapter: number of the model's adapter, from 1 on; 0 for none
    pools: number of components of the requested embedding; 0 for text generation
    """

    number: int
    sample: int
    start: HealedPrompt
    budget: int
    key: int
    stop: StopStrings
    stop_ids: frozenset[int]
    options: Options
    search: Search | Beam | Target
    bias: TokenBias = NO_BIAS
    suppressed: SuppressedTokens = NOTHING
    scores: bool = False
    best: int = 0
    learns: bool = False
    forces_end: bool = False
    frame: Frame | Sentence | None = None
    prompt_best: int | None = None
    adapter: int = 0
    pools: int = 0

    @property
    def root(self) -> tuple[str, int, tuple[int, ...]] | None:
        """The root of its blocks in the block pool: cache salt, adapter and encoder input; None without any of them."""
        salt, source = self.options.cache_salt or "", self.start.source
        return (salt, self.adapter, source) if salt or self.adapter or source else None

    @property
    def reads_first(self) -> bool:
        """True if the whole prompt is read before the constraint is queried."""
        return self.pools > 0 or self.prompt_best is not None

    @property
    def width(self) -> int:
        """The greatest number of sequences that the model reads for this request at once."""
        if isinstance(self.search, Target):
            return self.search.rows
        return self.search.width if isinstance(self.search, Beam) else 1

    @property
    def is_plain(self) -> bool:
        """True if tokens are chosen by the model's own scores from all that the constraint allows."""
        return self.options.controls.are_off and self.bias is NO_BIAS and self.suppressed == NOTHING

    @property
    def is_unwatched(self) -> bool:
        """True if only tokens are requested: no scores, diagnostics or stop strings."""
        return self.is_plain and not (self.scores or self.options.diagnostics or self.stop)

    @property
    def weighed_at(self) -> float | None:
        """The sampling temperature for importance weights by mask mass; None if they do not apply."""
        search = self.search
        if not self.is_plain or not isinstance(search, Sample):
            return None
        return None if search.is_filtered else search.temperature

    def is_plain_after(self, count: int) -> bool:
        """Test whether `is_plain` holds from now on, after `count` output tokens."""
        controls = self.options.controls
        is_free = self.bias is NO_BIAS and self.suppressed == NOTHING
        return is_free and not controls.change_scores and not controls.withholds(count)

    @property
    def changes_scores(self) -> bool:
        """True if penalties or biases change the model's scores."""
        return self.options.controls.change_scores or bool(self.bias.added)

    @property
    def is_changed(self) -> bool:
        """True if the distribution is not the model's own: changed scores, banned or suppressed tokens."""
        return self.changes_scores or bool(self.bias.banned) or self.suppressed != NOTHING

    def changed(self, scores: Tensor, tokens: Sequence[int], inside: int, state: int) -> None:
        """Apply penalties, then biases, to float32 [V] scores in place.

        tokens: output so far; inside: how many of them lie inside the healed prompt tail
        """
        if self.options.controls.change_scores:
            prompt = [token for token in self.start.prompt if token > BEGIN]
            self.options.controls.penalise(scores, [*prompt, *tokens[:inside]], tokens[inside:])
        if self.bias.added:
            self.bias.add_to(scores, self._biased(state))

    def withheld(
        self, mask: Mask | None, tokens: Sequence[int], size: int, eos: frozenset[int], state: int, inside: int
    ) -> Mask | None:
        """Return a mask without banned, suppressed and withheld tokens. It is empty if all allowed tokens are banned.

        tokens: output so far; inside: how many of them lie inside the healed prompt tail
        """
        if self.bias.banned:
            everything = full_mask(size) if mask is None else mask
            mask = self.bias.allowed(everything, eos | self.stop_ids, self._biased(state))
        if mask is not None and not mask.any():
            return mask
        if self.suppressed != NOTHING:
            ids, is_first = [*self.start.prompt, *tokens], len(tokens) == inside
            everything = full_mask(size) if mask is None else mask
            mask = self.suppressed.narrowed(everything, ids, is_first, self._biased(state))
        controls = self.options.controls
        if not controls.withholds(len(tokens)):
            return mask
        ids = [*self.start.prompt, *tokens] if controls.no_repeat_ngram_size else ()
        return controls.narrowed(mask, ids, len(tokens), size, eos | self.stop_ids)

    def bans(self, state: int, token: int) -> bool:
        """Test whether a token is banned in a state."""
        return token in self.bias.banned and self.is_output(state, token)

    def left_out(self, tokens: Sequence[int], inside: int, state: int) -> list[int]:
        """Return the banned and suppressed tokens after an output so far."""
        if self.suppressed == NOTHING:
            found = set(self.bias.banned)
        else:
            found = self.bias.banned | self.suppressed.behind([*self.start.prompt, *tokens], len(tokens) == inside)
        return [token for token in found if self.is_output(state, token)]

    def _biased(self, state: int) -> Callable[[int], bool] | None:
        """Return a test for the tokens that biases apply to in a state; None for all tokens."""
        return None if state >= self.start.tail else partial(self.is_output, state)

    def left(self, text: Hypothesis) -> int:
        """Return the number of tokens left of the budget."""
        return self.budget - len(text.tokens) + text.inside

    def extended(self, text: Text, token: int, vocabulary: Vocabulary) -> Text:
        """Return a text extended by a token. EOS, stop ids and stop strings finish it, and are not part of it."""
        if token in vocabulary.eos_ids or self.stops(text.state, token):
            return replace(text, finish="complete" if token in vocabulary.eos_ids else "stop")
        longer = text.text + self.output(text.state, vocabulary.tokens[token] or b"")
        cut = self.stop.find(longer, len(text.text))
        guide_cache = self.guide_cache(text.state)
        return replace(
            text,
            tokens=(*text.tokens, token),
            text=longer if cut < 0 else longer[:cut],
            state=text.state if guide_cache is None else guide_cache.guide.advance(text.state, token),
            inside=text.inside + (not self.is_output(text.state, token)),
            finish=None if cut < 0 else "stop",
        )

    def overruled(self, tokens: Sequence[int], token: int, ends: bool) -> frozenset[str]:
        """Return the controls that a token breaks after an output so far."""
        if not self.options.controls.may_break(len(tokens), ends):
            return _NONE
        return self.options.controls.broken([*self.start.prompt, *tokens], len(tokens), token, ends)

    def safe(self, text: bytes | bytearray) -> int:
        """Return the number of bytes before a possible beginning of a stop string, or of text outside the answer."""
        safe = self.stop.safe(text)
        return safe if self.frame is None else min(safe, self.frame.safe(text))

    @property
    def first_state(self) -> int:
        """The state before the first token."""
        return 0 if self.start.guide_cache is None else self.start.guide_cache.guide.start

    def guide_cache(self, state: int) -> GuideCache | None:
        """Return the constraint in a state; None if the text is free there."""
        start = self.start
        return None if start.is_free and state >= start.tail else start.guide_cache

    @property
    def may_be_cut(self) -> bool:
        """True if the text is free but for goals: its budget, stop strings and stop ids may end it."""
        return self.start.guide_cache is None or self.start.guide_cache.may_be_cut

    def output(self, state: int, text: bytes) -> bytes:
        """Return the bytes of a token that lie after the healed prompt tail."""
        return text[self.start.tail - state :] if state < self.start.tail else text

    def is_output(self, state: int, token: int) -> bool:
        """Test whether a token reaches beyond the healed prompt tail."""
        if state >= self.start.tail:
            return True
        assert self.start.guide_cache is not None
        text = self.start.guide_cache.guide.vocabulary.tokens[token] or b""
        return len(text) > self.start.tail - state

    def stops(self, state: int, token: int) -> bool:
        """Test whether a token is a stop id that ends the text here. Stop ids end complete texts only, like EOS."""
        if token not in self.stop_ids or not self.is_output(state, token):
            return False
        guide_cache = self.guide_cache(state)
        return guide_cache is None or state < self.start.tail or guide_cache.guide.is_accepting(state)


@dataclass(slots=True, eq=False)
class KVSequence:
    """A text in the KV cache: its block table, and the tokens that the model has yet to read."""

    table: BlockTable
    pending: list[int]


class CommittedPrefix(NamedTuple):
    """The beginning of a text that no later token changes.

    sequence: the source of tokens and their scores; None if only the text is known
    tokens: number of its output tokens that spell no more than `text`
    """

    text: bytes
    sequence: SequenceState | None = None
    tokens: int = 0


@dataclass(slots=True, eq=False)
class SequenceState(KVSequence):
    """The state of a sequence that grows token by token.

    tokens: generated tokens; text: their bytes without the healed prompt tail
    inside: number of tokens inside the healed prompt tail
    scores, raw_scores: log-probabilities of tokens under the masked and the model's own distribution
    best: top log-probabilities of both, if requested
    traces: diagnostics of every token, and of the one that ended the text
    overruled: repetition and length controls that did not hold
    score, siblings: score of a beam search result, and number of results of its prompt
    trace: trace of that search, if requested
    steps: number of forward passes; trail: its draft history
    drawn: statistics of a text drawn by `Exact`, `SMC` or `Importance`
    may_wait: True if it may skip steps while its constraint computes; waits: True if it does
    closing: the closing mask of the next token, if computed already
    is_quick: True if it may follow known states; entry: the entry of its state, None if unknown; states: its table
    is_unread: True until the whole prompt is read, if `reads_first`
    prompt_scores: scores of the prompt tokens read so far but the first, if requested
    embedding: normalised final hidden state of the prompt, float32 [request.pools], if requested
    error: an error of this sequence alone
    """

    request: Request
    state: int
    tokens: list[int] = field(default_factory=list[int])
    inside: int = 0
    text: bytearray = field(default_factory=bytearray)
    scores: list[float] = field(default_factory=list[float])
    raw_scores: list[float] = field(default_factory=list[float])
    best: list[tuple[Ranked, Ranked]] = field(default_factory=list[tuple[Ranked, Ranked]])
    end_score: float = 0.0
    traces: list[Trace] = field(default_factory=list[Trace])
    overruled: frozenset[str] = frozenset()
    score: float | None = None
    siblings: int | None = None
    trace: SearchTrace | None = None
    steps: int = 0
    trail: DraftHistory | None = None
    drawn: SampleStatistics | None = None
    may_wait: bool = False
    waits: bool = False
    closing: Mask | None = None
    is_quick: bool = False
    states: StateTable | None = None
    entry: StateEntry | None = None
    is_unread: bool = False
    prompt_scores: list[TokenScore] = field(default_factory=list[TokenScore])
    embedding: NDArray[np.float32] | None = None
    finish: FinishReason | None = None
    error: Exception | None = None

    @classmethod
    def of(cls, request: Request, text: Hypothesis, sample: int, siblings: int) -> SequenceState:
        """Return a finished text of a search with several texts, one of `siblings` of its prompt."""
        found = cls(BlockTable(), [], replace(request, sample=sample), text.state, list(text.tokens), text.inside)
        found.text, found.finish, found.siblings = bytearray(text.text), text.finish, siblings
        return found

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The KV sequences that the model reads for it."""
        return (self,)

    @property
    def done(self) -> bool:
        """True if the sequence is finished or has failed."""
        return self.finish is not None or self.error is not None

    @property
    def scores_prompt(self) -> bool:
        """True if it has to read its whole prompt itself, to score each token."""
        return self.is_unread and self.request.prompt_best is not None

    @property
    def left(self) -> int:
        """The number of tokens left of the budget."""
        return self.request.budget - len(self.tokens) + self.inside

    def follow(self, token: int, text: bytes) -> bool:
        """Append a token that leads from a known state to another one, and the forced tokens after it.

        Return False if the other state is not known yet, or if the budget would become tight.
        """
        tokens, request, entry = [token], self.request, self.entry
        state = None if entry is None or self.states is None else self.states.after(entry, token, request.stop_ids)
        if state is None:
            return False
        if state.forced is not None:
            forced, more, state = state.forced
            tokens += forced
            text += more
        elif state.allowed is None:
            return False
        if state.known_bound + 2 + len(self.tokens) - self.inside + len(tokens) > request.budget:
            return False
        self.pending += tokens
        self.text += text
        self.tokens += tokens
        if state.state != FREE:
            self.state = state.state + request.start.tail
        self.entry = state
        return True

    def overlap(self, vocabulary: Vocabulary) -> int:
        """Return the number of bytes of the first output token that belong to the prompt."""
        within = len(vocabulary.decode(self.tokens[: self.inside]))
        return self.request.start.tail - within if len(self.tokens) > self.inside else 0

    @property
    def guide_cache(self) -> GuideCache | None:
        """The constraint that holds now; None if the text is free."""
        return self.request.guide_cache(self.state)
