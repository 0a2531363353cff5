"""Validation of a call's options, and their translation to requests. All errors are raised before the first token."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...checks import implements
from ...errors import BudgetError, OptionError
from ...guides.tagged.after_guide import AfterGuide
from ..models.generation_config import NOTHING, SuppressedTokens
from ..models.media.encoder import media_of
from ..models.protocol import BEGIN, DraftedModel, Model, ReadMedia, ScoringModel, SourceModel, words_behind
from ..options import GREEDY, Options
from ..prompts.arguments import Prompt, media_in
from ..prompts.encoding import Ids, continued, read
from ..search import Beam, Search, StopStrings, Target
from .controls import bias_of
from .frames import Frame, Sentence
from .guide_cache import GuideCache, HealedPrompt, healed
from .randomness import row_key
from .sequence import Request

DEFAULT_TOKENS = 256

FIELD_BEST = 5
"""Number of top log-probabilities that are recorded for the alternatives of fields."""


@dataclass(frozen=True)
class Job:
    """One prompt with its constraint.

    prompt: as `prompt_of` returns it
    tokens: what `read` returns, if it was read before
    frame: the frame of the answer; a prompt that is a text ends with its beginning
    search: the search if the caller names none
    max_tokens: the requested budget, if it is not the one of the options
    pools: number of components of a requested embedding; 0 for text generation
    """

    prompt: Prompt
    guide_cache: GuideCache | None
    tokens: ReadMedia | None = None
    frame: Frame | Sentence | None = None
    search: Search | Beam | None = None
    max_tokens: int | None = None
    pools: int = 0

    @property
    def lead(self) -> str:
        """Text that the model reads after a chat or token ids as the beginning of its answer."""
        return "" if self.frame is None or isinstance(self.prompt, str) else self.frame.before

    @property
    def may_be_cut(self) -> bool:
        """True if the text is free but for goals: its budget, stop strings and stop ids may end it."""
        return self.guide_cache is None or self.guide_cache.may_be_cut

    @property
    def needed(self) -> int:
        """The fewest tokens of the text."""
        return 0 if self.guide_cache is None else self.guide_cache.distance

    @property
    def default_room(self) -> int:
        """Tokens of the default budget beyond `needed`, including those of free text before a constraint."""
        guide = None if self.guide_cache is None else self.guide_cache.guide
        most = self.frame.most if isinstance(self.frame, Sentence) else DEFAULT_TOKENS
        return most + (guide.free_tokens if isinstance(guide, AfterGuide) else 0)

    def read(self, model: Model, options: Options, number: int, known: Ids | None = None) -> ReadMedia:
        """Return the tokens of prompt and lead, and the references to its images and audio. Raises OptionError.

        known: the tokens of the prompt, if the caller has them
        """
        if self.tokens is not None:
            return self.tokens
        if known is None:
            ids, held = read(model, self.prompt, number, options.extras)
        else:
            media = media_of(model)
            ids, held = known, () if media is None else media.held(known, media_in(self.prompt))
        return ReadMedia((*ids, *continued(model, self.lead, number)) if self.lead else ids, held)


def requests_of(model: Model, jobs: Sequence[Job], options: Options) -> list[Request]:
    """Return the requests of all samples of all jobs, in order. Raises OptionError, BudgetError."""
    found: list[Request] = []
    check_draft(model, options.draft)
    stops = StopStrings(options.stop)
    stop_ids, bias = frozenset(options.stop_ids), bias_of(model, options.logit_bias)
    for token in stop_ids:
        if not 0 <= token < model.vocabulary.size:
            raise OptionError(f"stop_ids: {token} is not a token id; ids are 0 to {model.vocabulary.size - 1}")
    suppressed: SuppressedTokens = getattr(model, "suppressed", NOTHING)
    spelt = suppressed.of(model.vocabulary)
    forces_end: bool = getattr(model, "forces_end", False)
    is_listed, adapter = not isinstance(options.prompt_logprobs, bool), _adapter(model, options.adapter)
    for number, (job, seed) in enumerate(zip(jobs, options.seeds(len(jobs)), strict=True)):
        _check(model, job, options)
        requested = options.max_tokens if job.max_tokens is None else job.max_tokens
        start, budget = _start(model, job, options, number, requested)
        if options.min_tokens > budget:
            raise OptionError(
                f"min_tokens={options.min_tokens}: an output of prompt {number} has at most {budget} tokens; ask for "
                "fewer, or raise max_tokens"
            )
        needed = 0 if start.guide_cache is None else start.guide_cache.distance
        stop, frame = stops, job.frame
        if job.may_be_cut and frame is not None:  # the mark after free text acts as a stop string
            stop, frame = stops.also(frame.behind), None
        search = options.search if job.search is None or options.search is not GREEDY else job.search
        # A caller's budget is meant in full. Exact samplers are exact for any budget.
        if start.guide_cache is not None and requested is None and not isinstance(search, Target):
            start = replace(start, guide_cache=start.guide_cache.reserving(budget))
        # An empty text would be useless, and a text without a goal would be incomplete.
        is_last = forces_end and job.may_be_cut and budget > max(needed, 1)
        for sample in range(1 if isinstance(search, (Beam, Target)) else search.n):
            key = row_key(seed, sample)
            request = Request(
                number,
                sample,
                start,
                budget - is_last,
                key,
                stop,
                stop_ids,
                options,
                search,
                bias,
                suppressed if job.may_be_cut else spelt,
                scores=bool(options.logprobs) or options.diagnostics or options.fields,
                best=max(FIELD_BEST * options.fields, 0 if isinstance(options.logprobs, bool) else options.logprobs),
                learns=options.seed is None and options.cache_salt is None,
                forces_end=is_last,
                frame=frame,
                prompt_best=None if options.prompt_logprobs is False else int(options.prompt_logprobs) * is_listed,
                adapter=adapter,
                pools=job.pools,
            )
            found.append(request)
    return found


def _adapter(model: Model, name: str | None) -> int:
    """Return the number of a model's adapter, from 1 on; 0 for none. Raises OptionError."""
    if name is None:
        return 0
    names: Sequence[str] = getattr(model, "adapters", ())
    if name not in names:
        hint = f"there are {', '.join(map(repr, names))}" if names else "it was loaded without adapters="
        raise OptionError(f"adapter={name!r}: {model!r} has no adapter of this name; {hint}")
    return names.index(name) + 1


def _check(model: Model, job: Job, options: Options) -> None:
    """Raise OptionError for options that do not apply to a job."""
    if not job.may_be_cut and (options.stop or options.stop_ids):
        raise OptionError(
            "stop and stop_ids would cut off a constrained output; let the constraint define its end (for example "
            "[^\\n]* instead of .* with stop='\\n')"
        )
    if job.pools:
        options.check_pools()
    if options.prompt_logprobs is not False:
        _check_scores(model, options)


def _check_scores(model: Model, options: Options) -> None:
    """Raise OptionError if prompt log-probabilities are not available."""
    what = f"prompt_logprobs={options.prompt_logprobs}"
    if implements(model, SourceModel):
        raise OptionError(f"{what}: {model!r} is an encoder-decoder, which gives no log-probabilities of prompts")
    if not implements(model, ScoringModel):
        raise OptionError(f"{what}: {model!r} has no forward_ends, which prompt logprobs need")
    if isinstance(options.search, (Beam, Target)):
        raise OptionError(f"{what} with search={options.search!r}: use Greedy() or Sample(...)")


def _start(model: Model, job: Job, options: Options, number: int, requested: int | None) -> tuple[HealedPrompt, int]:
    """Return the start of a sequence, healed if requested and if there is room, and its budget.

    requested: the requested budget; None for the default one
    """
    if implements(model, SourceModel):
        if job.lead:
            raise OptionError(
                f"frame: {model!r} is an encoder-decoder, whose answers cannot have a text before them; give "
                'only a closing mark, as in frame=("", "."), or leave it out'
            )
        return _decoder_start(model, job, options, number, requested)
    if job.pools:
        ids, held = _encode(model, job, options, number, least=0)
        return HealedPrompt(ids, None, held=held), 0
    prompt, held = _encode(model, job, options, number, least=1 if requested is None else min(requested, 1))
    if held:
        _check_beside_media(options, number)
    needed = job.needed
    # A mark can only join other marks into one token, and no answer begins with these.
    has_end = (isinstance(job.prompt, str) or job.lead[-1:].isalnum() or job.lead[-1:].isspace()) and prompt != (BEGIN,)
    most = None if isinstance(job.prompt, str) else len(job.lead.encode())
    heals = options.heal and has_end and options.prompt_logprobs is False  # prompt scores describe the prompt as given
    start = _healed_words(model, prompt, job.guide_cache, most) if heals else None
    if start is not None and start.guide_cache is not None:
        # A token that begins inside the prompt may save output tokens.
        fewest = start.guide_cache.distance if requested is not None and requested < needed else needed
        budget = _budget(model, fewest, len(prompt), requested, number, job.default_room)
        room = budget if model.context is None else model.context - start.size
        if room >= (max(fewest, 1) if requested is None else budget):
            return replace(start, held=held), min(budget, room)
    start = HealedPrompt(prompt, job.guide_cache, held=held)
    return start, _budget(model, needed, len(prompt), requested, number, job.default_room)


def _healed_words(model: Model, prompt: Ids, guide_cache: GuideCache | None, most: int | None) -> HealedPrompt | None:
    """Return `healed` of the tokens after the last image or audio. The first of them is kept."""
    words = tuple(words_behind(prompt))
    start = healed(model, words, guide_cache, most) if words else None
    if start is None or len(words) == len(prompt):
        return start
    head = prompt[: len(prompt) - len(words)]
    return replace(start, prompt=(*head, *start.prompt)) if start.prompt[0] == words[0] else None


def _check_beside_media(options: Options, number: int) -> None:
    """Raise OptionError for options that do not apply to prompts with images or audio."""
    if not isinstance(options.draft, bool):
        raise OptionError(
            f"draft={options.draft!r}: prompt {number} has images or audio, which a smaller model does not read; use "
            "draft=True"
        )
    for name in ("prompt_logprobs", "fields"):
        if (value := getattr(options, name)) is not False:
            raise OptionError(
                f"{name}={value}: prompt {number} has images or audio, which this option does not support; leave it out"
            )


def _decoder_start(
    model: SourceModel, job: Job, options: Options, number: int, requested: int | None
) -> tuple[HealedPrompt, int]:
    """Return the start of an encoder-decoder's output: the constraint after the model's text prefix."""
    source, limit = job.read(model, options, number).ids, model.source_context
    guide_cache, tail = job.guide_cache, 0
    if not source:
        raise OptionError(
            f"prompt {number} is empty, and the tokenizer adds no EOS token, so that the encoder has no input; start "
            "the prompt with at least one character"
        )
    if limit is not None and len(source) > limit:
        raise OptionError(f"prompt {number} takes {len(source)} tokens; the model's encoder reads up to {limit}")
    if guide_cache is not None and guide_cache.crossings is not None and model.text_prefix:
        guide_cache, tail = guide_cache.behind(model.text_prefix), len(model.text_prefix)
    needed = 0 if guide_cache is None else guide_cache.distance
    start = HealedPrompt(model.start_ids, guide_cache, tail, source=source)
    return start, _budget(model, needed, start.size, requested, number, job.default_room)


def _encode(model: Model, job: Job, options: Options, number: int, least: int = 1) -> ReadMedia:
    """Return a prompt's tokens, at least one. least: output tokens that the context must have room for"""
    ids, held = job.read(model, options, number)
    if not ids:
        begin: int | None = getattr(model.tokenizer, "bos_token_id", None)
        begin = getattr(model, "begin_id", None) if begin is None else begin
        if begin is None:
            raise OptionError(
                f"prompt {number} is empty, and neither the tokenizer nor the model's config has a BOS token; start "
                "the prompt with at least one character, for example a newline"
            )
        ids = (begin,)
    if model.context is not None and len(ids) + least > model.context:
        raise OptionError(
            f"prompt {number} takes {len(ids)} tokens; the model's context of {model.context} must have room for "
            f"it{' and at least one more token' if least else ''}; shorten the prompt"
            f"{', or give smaller images or shorter audio' if held else ''}"
        )
    return ReadMedia(ids, held)


def _budget(model: Model, needed: int, prompt: int, requested: int | None, number: int, more: int) -> int:
    """Return the budget of the output: the requested or the default one, within the context.

    more: tokens of the default budget beyond `needed`
    """
    budget = needed + more if requested is None else requested
    if budget < needed:
        raise BudgetError(
            f"max_tokens={budget} is too small: the shortest output of this constraint takes {needed} tokens",
            needed,
        )
    if model.context is None or prompt + budget <= model.context:
        return budget
    room = model.context - prompt
    if room < needed:
        raise BudgetError(
            f"the shortest output takes {needed} tokens, but after the {prompt} tokens of prompt {number} "
            f"the model's context of {model.context} has room for {room}; shorten the prompt",
            needed,
        )
    if requested is not None:
        raise OptionError(
            f"max_tokens={requested} and the {prompt} tokens of prompt {number} exceed the model's context of "
            f"{model.context}; max_tokens can be up to {room}"
        )
    return room


def check_draft(model: Model, draft: bool | Model) -> None:
    """Raise OptionError for a draft model that does not fit the model."""
    if isinstance(draft, bool):
        return
    if not (isinstance(model, DraftedModel) and model.reads_drafts):
        raise OptionError(
            f"draft={draft!r}: {model!r} does not support drafts, because it has recurrent states, has no KV cache, or "
            "pads its rows; leave it out"
        )
    if isinstance(draft, SourceModel) or draft.state_bytes:
        raise OptionError(
            f"draft={draft!r} cannot roll back tokens; use a decoder that has a KV cache and no recurrent states"
        )
    mine, other = model.vocabulary, draft.vocabulary
    if mine is other or mine.fingerprint == other.fingerprint:
        return
    sizes = f"{other.size:,} tokens, the model {mine.size:,}" if mine.size != other.size else "other tokens"
    raise OptionError(
        f"draft={draft!r} has another vocabulary than the model ({sizes}); use one that shares the model's tokenizer"
    )
