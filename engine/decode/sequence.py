"""One text being generated."""

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
from ..models.generation_config import NOTHING, Suppressed
from ..models.protocol import BEGIN
from ..options import Options
from ..scores import Drawn, Ranked, TokenScore, Trace
from ..search import Beam, FinishReason, Hypothesis, Sample, Search, SearchTrace, StopStrings, Target
from .controls import NO_BIAS, TokenBias, full_mask
from .draft_history import DraftHistory
from .frames import Frame, Sentence
from .guide_cache import FREE, GuideCache, HealedPrompt, StateEntry

_NONE = frozenset[str]()
Text = TypeVar("Text", bound=Hypothesis)


@dataclass(frozen=True, slots=True)
class Request:
    """Work of one sequence.

    number: the prompt's place among the caller's; sample: which of its samples
    start: the prompt that the model reads, and the constraint
    options: of the call; search: how the text is found, which they may leave open
    key: of the sequence's random numbers
    bias: what is added to the scores of tokens; suppressed: tokens that are chosen only where nothing else is left
    scores: whether log-probabilities are recorded, for which every token has a forward pass of its own
    best: of how many tokens, the likeliest, they are recorded besides
    forces_end: whether EOS itself, with the probability 1, comes behind the last token of the budget
    frame: what the answer stands in, of which there is no more in the text than what stands behind it
    learns: whether what is learnt of the prompt's texts is kept for further calls
    prompt_best: the log-probabilities of the prompt's own tokens are recorded, and those of so many of the likeliest in
        each place; None for neither
    adapter: the number of the model's adapter that reads it, from 1 on; 0 for none
    pools: so many numbers of the prompt's final hidden state are asked for, and no text; 0 where a text is
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
    suppressed: Suppressed = NOTHING
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
        """The root of its blocks, apart from equal tokens elsewhere: salt, adapter, and what is read apart, if any."""
        salt, source = self.options.cache_salt or "", self.start.source
        return (salt, self.adapter, source) if salt or self.adapter or source else None

    @property
    def reads_first(self) -> bool:
        """True where the prompt is read to the end before anything is found out of its text."""
        return self.pools > 0 or self.prompt_best is not None

    @property
    def width(self) -> int:
        """Number of sequences that the model may read for it at once."""
        if isinstance(self.search, Target):
            return self.search.rows
        return self.search.width if isinstance(self.search, Beam) else 1

    @property
    def is_plain(self) -> bool:
        """True if a sequence chooses by the model's own scores, from all that its constraint allows."""
        return self.options.controls.are_off and self.bias is NO_BIAS and self.suppressed == NOTHING

    @property
    def is_unwatched(self) -> bool:
        """True if nothing is asked of a sequence but its tokens, and nothing is looked for in its text."""
        return self.is_plain and not (self.scores or self.options.diagnostics or self.stop)

    @property
    def weighed_at(self) -> float | None:
        """The temperature of sampling for which the masks' masses make up; None where they do not."""
        search = self.search
        if not self.is_plain or not isinstance(search, Sample):
            return None
        return None if search.is_filtered else search.temperature

    def is_plain_after(self, made: int) -> bool:
        """`is_plain` from now on, after `made` tokens of output, if the least number of them is reached."""
        controls = self.options.controls
        is_free = self.bias is NO_BIAS and self.suppressed == NOTHING
        return is_free and not controls.change_scores and not controls.withholds(made)

    @property
    def changes_scores(self) -> bool:
        """True if penalties or biases change the model's scores."""
        return self.options.controls.change_scores or bool(self.bias.added)

    @property
    def is_changed(self) -> bool:
        """True if the model says other tokens than by its own scores, or leaves some out."""
        return self.changes_scores or bool(self.bias.banned) or self.suppressed != NOTHING

    def changed(self, scores: Tensor, tokens: Sequence[int], inside: int, state: int) -> None:
        """Change scores float32 [V] in place, by the penalties first and then the biases, after an output so far.

        inside: how many of its tokens lie within the prompt's end
        """
        if self.options.controls.change_scores:
            prompt = [token for token in self.start.prompt if token > BEGIN]
            self.options.controls.penalise(scores, [*prompt, *tokens[:inside]], tokens[inside:])
        if self.bias.added:
            self.bias.add_to(scores, self._biased(state))

    def withheld(
        self, mask: Mask | None, tokens: Sequence[int], size: int, eos: frozenset[int], state: int, inside: int
    ) -> Mask | None:
        """A mask without banned and suppressed tokens, narrowed by the controls, after an output so far.

        inside: how many of its tokens lie within the prompt's end. Empty where all are banned.
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
        """True if a token is never to be chosen."""
        return token in self.bias.banned and self.is_output(state, token)

    def left_out(self, tokens: Sequence[int], inside: int, state: int) -> list[int]:
        """The tokens that a model with this request's bans and its own settings never says after an output so far."""
        if self.suppressed == NOTHING:
            found = set(self.bias.banned)
        else:
            found = self.bias.banned | self.suppressed.behind([*self.start.prompt, *tokens], len(tokens) == inside)
        return [token for token in found if self.is_output(state, token)]

    def _biased(self, state: int) -> Callable[[int], bool] | None:
        """To which tokens biases apply in a state; None for all."""
        return None if state >= self.start.tail else partial(self.is_output, state)

    def left(self, text: Hypothesis) -> int:
        """Number of tokens that the output may still have."""
        return self.budget - len(text.tokens) + text.inside

    def extended(self, text: Text, token: int, vocabulary: Vocabulary) -> Text:
        """A text with one more token, finished behind EOS and a stop id, which are no part of it, and a stop string."""
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
        """The controls that a token breaks after an output so far."""
        if not self.options.controls.may_break(len(tokens), ends):
            return _NONE
        return self.options.controls.broken([*self.start.prompt, *tokens], len(tokens), token, ends)

    def safe(self, text: bytes | bytearray) -> int:
        """Number of bytes of a text before anything that may yet turn out a stop string or not of the answer."""
        safe = self.stop.safe(text)
        return safe if self.frame is None else min(safe, self.frame.safe(text))

    @property
    def first_state(self) -> int:
        """The state before the first token."""
        return 0 if self.start.guide_cache is None else self.start.guide_cache.guide.start

    def guide_cache(self, state: int) -> GuideCache | None:
        """The constraint that holds in a state; None if anything may follow."""
        start = self.start
        return None if start.is_free and state >= start.tail else start.guide_cache

    @property
    def may_be_cut(self) -> bool:
        """True if the text is free, but for goals: its budget, stop strings and stop ids may end it."""
        return self.start.is_free or self.start.guide_cache is None or self.start.guide_cache.free

    def output(self, state: int, text: bytes) -> bytes:
        """Bytes of a token that belong to the output, rather than to the prompt's end."""
        return text[self.start.tail - state :] if state < self.start.tail else text

    def is_output(self, state: int, token: int) -> bool:
        """True if a token is one of the output's, rather than within the prompt's end."""
        if state >= self.start.tail:
            return True
        assert self.start.guide_cache is not None
        text = self.start.guide_cache.guide.vocabulary.tokens[token] or b""
        return len(text) > self.start.tail - state

    def stops(self, state: int, token: int) -> bool:
        """True if a token ends the text without being a part of it: as EOS does, where the text is complete."""
        if token not in self.stop_ids or not self.is_output(state, token):
            return False
        guide_cache = self.guide_cache(state)
        return guide_cache is None or state < self.start.tail or guide_cache.guide.is_accepting(state)


@dataclass(slots=True, eq=False)
class KVSequence:
    """A text as the model reads it: what it has read, and the tokens that it has yet to read."""

    table: BlockTable
    pending: list[int]


class CommittedPrefix(NamedTuple):
    """The beginning of a text that is certain, whatever comes.

    sequence: its tokens and what is known of them, of which the first `tokens` of the output spell no more than the
        text; None where only the text is known
    """

    text: bytes
    sequence: SequenceState | None = None
    tokens: int = 0


@dataclass(slots=True, eq=False)
class SequenceState(KVSequence):
    """A sequence that grows by one token after the other.

    tokens: generated so far; text: their bytes, without the prompt's end
    inside: how many of the tokens lie within the prompt's end
    scores, raw_scores: log-probabilities of the tokens under the masked and the model's own distribution
    best: the likeliest tokens of both, where they are asked for
    traces: for diagnostics; of every token, and of that which ended the text
    overruled: the controls of repetition and length that did not hold
    score, siblings: of a text found by beam search, its score and how many sequences its prompt has
    trace: of that search, if asked for
    steps: forward passes that read it; trail: what guesses of how it goes on are made by
    drawn: of a text drawn by `Exact`, `SMC` or `Importance`, how that went
    may_wait: whether it may sit out steps until its constraint has found out what may follow; waits: whether it does
    closing: what leaves room to finish, if that was found out already for the next token
    is_quick: whether it may go on from known state to known state; known: the one where it is, None if it is in none
    is_unread: whether its prompt has yet to be read to the end, before anything is found out of its text
    prompt_scores: of each token of the prompt but the first, as far as it was read, where they are asked for
    embedding: the direction of the prompt's final hidden state, float32 [request.pools], where that is asked for
    error: what went wrong with this text alone
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
    drawn: Drawn | None = None
    may_wait: bool = False
    waits: bool = False
    closing: Mask | None = None
    is_quick: bool = False
    known: StateEntry | None = None
    is_unread: bool = False
    prompt_scores: list[TokenScore] = field(default_factory=list[TokenScore])
    embedding: NDArray[np.float32] | None = None
    finish: FinishReason | None = None
    error: Exception | None = None

    @classmethod
    def of(cls, request: Request, text: Hypothesis, sample: int, siblings: int) -> SequenceState:
        """A finished text of a search by several, one of so many of its prompt."""
        found = cls(BlockTable(), [], replace(request, sample=sample), text.state, list(text.tokens), text.inside)
        found.text, found.finish, found.siblings = bytearray(text.text), text.finish, siblings
        return found

    @property
    def readers(self) -> Sequence[KVSequence]:
        """The sequences that the model reads for it."""
        return (self,)

    @property
    def done(self) -> bool:
        """True if it goes on no more."""
        return self.finish is not None or self.error is not None

    @property
    def scores_prompt(self) -> bool:
        """True where it has to read all of its prompt itself, for what the model says of each token."""
        return self.is_unread and self.request.prompt_best is not None

    @property
    def left(self) -> int:
        """Number of tokens that the output may still have."""
        return self.request.budget - len(self.tokens) + self.inside

    def follow(self, token: int) -> bool:
        """Let it go on with a token from a known state to another, with plenty left; False if that is not known."""
        known = self.known
        found = None if known is None else known.after.get(token)
        if found is None:
            return False
        state, tokens, text = found
        request = self.request
        if state.enough + 2 + len(self.tokens) - self.inside + len(tokens) > request.budget:
            return False
        self.pending += tokens
        self.text += text
        self.tokens += tokens
        if state.state != FREE:
            self.state = state.state + request.start.tail
        self.known = state
        return True

    def overlap(self, vocabulary: Vocabulary) -> int:
        """Number of bytes of the output's first token that belong to the prompt."""
        within = len(vocabulary.decode(self.tokens[: self.inside]))
        return self.request.start.tail - within if len(self.tokens) > self.inside else 0

    @property
    def guide_cache(self) -> GuideCache | None:
        """The constraint that holds now; None if anything may follow."""
        return self.request.guide_cache(self.state)
