"""Options of calls: their declaration, documentation and validation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from typing import Any, TypedDict, cast

from ..checks import brief, check_bool, check_int, check_text, check_texts, items_of
from ..errors import OptionError
from ..guides.required_content.specs import Goal, goals_of
from ..sampling import BEAM_OPTIONS, SAMPLE_OPTIONS
from .decode.controls import Controls, biases_of
from .decode.randomness import fresh_bits
from .models.protocol import Model, is_model
from .prompts.arguments import extras_of, template_options_of
from .prompts.encoding import Extras
from .search import Beam, Greedy, Search, Target

GREEDY = Greedy()
MAX_RETRIES = 1000
MAX_BEST = 1000
MAX_PRIORITY = 1 << 31
EXTRAS = ("tools", "documents")
_OF_EMBEDDINGS = frozenset(
    (*EXTRAS, "chat_template_kwargs", "cache_salt", "priority", "adapter", "batch_size", "progress")
)
"""Options of prompts and scheduling, which embeddings accept."""


class TextOptions(TypedDict, total=False):
    """Types of the options that all methods accept, including `stream`; see `Options`."""

    max_tokens: int | None
    search: Search | Beam | Target
    include: str | Goal | Sequence[str | Goal]
    seed: int | Sequence[int] | None
    stop: str | Sequence[str]
    stop_ids: Sequence[int]
    heal: bool
    draft: bool | Model
    no_repeat_ngram_size: int
    repetition_penalty: float
    min_tokens: int
    frequency_penalty: float
    presence_penalty: float
    logit_bias: Mapping[int, float] | Mapping[str, float] | Mapping[int | str, float] | None
    tools: Sequence[Mapping[str, Any] | Callable[..., Any]] | None
    documents: Sequence[Mapping[str, Any]] | None
    chat_template_kwargs: Mapping[str, Any] | None
    cache_salt: str | None
    priority: int
    adapter: str | None


class StreamOptions(TextOptions, total=False):
    """Types of the options of `stream`."""

    logprobs: bool | int


class CallOptions(TextOptions, total=False):
    """Types of the options of a call and of `generate.batch`."""

    batch_size: int
    progress: bool | None
    retries: int


class RunOptions(CallOptions, total=False):
    """Types of the options of `run`, which returns more than values."""

    logprobs: bool | int
    prompt_logprobs: bool | int
    diagnostics: bool
    trace: bool
    fields: bool


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a call, with their defaults. Raises OptionError for unknown names and wrong values.

    max_tokens: most tokens of an output, EOS not counted; a constrained output is complete within them. By default 256
        more than the shortest output takes, or what the context leaves; lists and strings then end while three times
        the least number of tokens for the rest is left, so that the rest has room for more than that.
    search: `Greedy()`, `Sample(...)` or `Beam(...)`; `Exact(...)`, `SMC(...)` or `Importance(...)` for texts
        distributed as the model's own given the constraint, see docs/sampling.md.
    include: required content: a string or another goal, or several in a list, see "Goals". The text is complete only
        with it, and the last tokens of its budget are spent on missing content.
    seed: makes samples reproducible, whatever else is in the batch: one number for all prompts (equal prompts then get
        equal outputs), or a list with one for each. The model itself may round differently in batches of another size,
        which shows only if a draw falls within rounding of a boundary.
    stop, stop_ids: strings and token ids that end a free text; they are not part of it.
    heal: token healing: where a token may begin in the prompt and reach into the output, cut the prompt back and
        generate its end again, unchanged; outputs are returned without it. See docs/healing.md.
    draft: read several drafted tokens at once if this is measured to be faster; outputs are the same. False: no drafts;
        a smaller model with the same tokens: it drafts too. See docs/drafts.md.
    no_repeat_ngram_size, repetition_penalty, min_tokens: no n-gram occurs twice; tokens of the text so far, prompt
        included, become less likely with a penalty above 1; EOS is withheld for the first tokens. A constraint that
        leaves no other token wins, and the result's `overruled` says so.
    frequency_penalty, presence_penalty: numbers from -2 to 2, subtracted from a token's logit for each occurrence in
        the output, and for any occurrence. The prompt does not count, unlike for repetition_penalty.
    logit_bias: numbers by token id, or by text of one token, added to its logit; customary are -100 to 100. -inf bans a
        token: OptionError if a constraint allows no other. Neither this nor the penalties change the log-probabilities
        of results. See docs/search.md.
    tools, documents: (chats only) further input of the tokenizer's template, as for transformers'
        `apply_chat_template`; refused if the template ignores it.
    chat_template_kwargs: (chats only) further template arguments, such as {"enable_thinking": False} of Qwen3, or
        {"continue_final_message": True}, with which the text continues the last message. Templates ignore names that
        they do not know.
    cache_salt: prefix reuse is limited to prompts with the same salt, so that nobody else can tell from response times
        whether a prompt was read before.
    priority: requests with a lower number are admitted before others, and preempted after them; equal ones in order of
        arrival. See docs/engine.md.
    adapter: the name of an adapter that the model was loaded with; None for the model alone. See docs/models.md.
    batch_size: most sequences that run at once; others join as these finish. With beams a prompt takes `width` of them.
    retries: how often a text is drawn again if a validator of the type rejects its value; for `Sample(...)`.
        Reproducible with seeds.
    progress: show a bar on standard error; by default for several prompts on a terminal.
    logprobs: (`run`, and `stream` for a list of prompts) also compute the log-probabilities of the tokens, which costs
        time; a number: also of that many most likely tokens at each place, see `Generation.top_logprobs`.
    prompt_logprobs: (`run` only) also record the log-probabilities of the prompt's tokens; a number: also of that many
        most likely tokens at each place, see `Generation.prompt_logprobs`. The whole prompt is then read, without
        healing or prefix reuse; max_tokens may be 0.
    diagnostics: (`run` only) also record the constraint's effect on each token; see `Diagnostics`. Costs time.
    trace: (`run` only, with `Beam(...)`) also record the beams of every step; see `SearchTrace`.
    fields: (`run` only) also compute the probability of each value of the answer, see `Field`; for JSON, choices,
        patterns and formats. The answer then has no default frame, also in chats. Costs a few steps of the model for
        each value.
    """

    max_tokens: int | None = None
    search: Search | Beam | Target = GREEDY
    include: Any = ()
    seed: Any = None
    stop: Any = ()
    stop_ids: Sequence[int] = ()
    heal: bool = True
    draft: bool | Model = True
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    logit_bias: Any = None
    tools: Any = None
    documents: Any = None
    chat_template_kwargs: Any = None
    cache_salt: str | None = None
    priority: int = 0
    adapter: str | None = None
    batch_size: int = 16
    progress: bool | None = None
    retries: int = 0
    logprobs: bool | int = False
    prompt_logprobs: bool | int = False
    diagnostics: bool = False
    trace: bool = False
    fields: bool = False

    @classmethod
    def of(cls, kind: type, values: Mapping[str, Any]) -> Options:
        """Return the options of `values`. Their names must be among those of `kind`, one of the classes above."""
        possible = list(kind.__annotations__)
        for name in values:
            if name not in possible:
                raise OptionError(unknown_option(name, values[name], possible, RunOptions.__annotations__))
        return cls(**values) if values else DEFAULTS

    def __post_init__(self) -> None:
        if self.max_tokens is not None:
            self._set("max_tokens", check_int(self.max_tokens, "max_tokens", int(self.prompt_logprobs is False)))
        self._set("batch_size", check_int(self.batch_size, "batch_size"))
        self._set("retries", check_int(self.retries, "retries", 0, MAX_RETRIES))
        for name in ("heal", "diagnostics", "trace", "fields"):
            check_bool(getattr(self, name), name)
        for name, whose in (("logprobs", "chosen"), ("prompt_logprobs", "prompt's")):
            if not isinstance(getattr(self, name), bool):
                self._set(name, _best(getattr(self, name), name, whose))
        if self.progress is not None:
            check_bool(self.progress, "progress", "True, False, or None for a bar on terminals only")
        self._set("stop", _stop_strings(self.stop))
        self._set("stop_ids", _stop_ids(self.stop_ids))
        self._set("seed", _seed(self.seed))
        self._check_draft()
        self._set("logit_bias", biases_of(self.logit_bias))
        self._set("include", goals_of(self.include))
        for name in EXTRAS:
            self._set(name, extras_of(getattr(self, name), name))
        self._set("chat_template_kwargs", template_options_of(self.chat_template_kwargs))
        if self.cache_salt is not None and not check_text(self.cache_salt, "cache_salt"):
            raise OptionError(
                "cache_salt='': expected a text that other clients do not know; leave it out to share the prefix cache "
                "with all"
            )
        self._set("priority", check_int(self.priority, "priority", -MAX_PRIORITY, MAX_PRIORITY))
        if self.adapter is not None:
            check_text(self.adapter, "adapter")
        _ = self.controls  # validates its part of the options
        self._check_search()

    def _check_search(self) -> None:
        search: Any = self.search
        if isinstance(search, type) or not (
            isinstance(search, (Beam, Target)) or (hasattr(search, "pick") and hasattr(search, "n"))
        ):
            raise OptionError(
                f"search={brief(search)}: expected a search such as Greedy(), Sample(temperature=0.8) or Beam(4)"
            )
        if isinstance(search, Target):
            self._check_target(search)
        if self.trace and not isinstance(search, Beam):
            raise OptionError(
                f"trace=True with search={search!r}: only beam search has a trace; use search=Beam(4), or leave it out"
            )
        if self.retries and isinstance(search, (Greedy, Beam)):
            raise OptionError(
                f"retries={self.retries} with search={search!r}, which would find the same text again; use "
                "search=Sample(...), or leave it out"
            )

    def _check_draft(self) -> None:
        draft: Any = self.draft
        if isinstance(draft, bool):
            return
        if not is_model(draft):
            raise OptionError(
                f"draft={brief(draft)}: expected True, False, or a smaller model with the same vocabulary, such as "
                "models.transformers(...)"
            )
        search: Any = self.search
        if isinstance(search, (Beam, Target)):
            kind = "beam search" if isinstance(search, Beam) else "a search of whole texts"
            raise OptionError(f"draft={draft!r} with search={search!r}: {kind} reads no drafts; leave it out")

    def _check_target(self, search: Target) -> None:
        """Raise OptionError for options that do not apply to samplers of whole texts."""
        reasons = {
            "logprobs": "logprobs belong to single tokens; the weight of a whole text is its log_weight",
            "diagnostics": "diagnostics belong to single tokens; use search=Sample(...) for them, or see log_weight, "
            "ess and distance",
            "retries": "repeated draws would change the distribution; let SMC(..., accepts=...) refuse texts",
            "no_repeat_ngram_size": "it gives way to the constraint, so that it defines no distribution of texts",
            "min_tokens": "it gives way to the constraint, so that it defines no distribution of texts; bound the "
            "length in the constraint",
        }
        for name, reason in reasons.items():
            if getattr(self, name):
                raise OptionError(f"{name}={getattr(self, name)!r} with search={search!r}: {reason}")

    def check_pools(self) -> None:
        """Raise OptionError for options that do not apply to embeddings."""
        for name in RunOptions.__annotations__:
            if name not in _OF_EMBEDDINGS and getattr(self, name) != getattr(DEFAULTS, name):
                value = brief(getattr(self, name))
                raise OptionError(f"{name}={value}: an embedding has no output text; leave it out")

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @cached_property
    def controls(self) -> Controls:
        """Repetition and length controls."""
        return Controls(
            self.no_repeat_ngram_size,
            self.repetition_penalty,
            self.min_tokens,
            self.frequency_penalty,
            self.presence_penalty,
        )

    @property
    def extras(self) -> Extras:
        """Variables of chat templates besides messages."""
        return self.chat_template_kwargs | {name: values for name in EXTRAS if (values := getattr(self, name))}

    @property
    def continues(self) -> bool:
        """True if texts continue the last message of a chat."""
        return bool(self.chat_template_kwargs.get("continue_final_message"))

    def seeds(self, count: int) -> list[int]:
        """Return one seed for each prompt."""
        if self.seed is None:
            return [fresh_bits(64) for _ in range(count)]
        if isinstance(self.seed, int):
            return [self.seed] * count
        if len(self.seed) != count:
            raise OptionError(
                f"seed: {len(self.seed)} seeds for {count} prompts; give one number, or one for each prompt"
            )
        return list(self.seed)


def _best(logprobs: Any, name: str, whose: str) -> int:
    """Return the number of requested top log-probabilities."""
    try:
        return check_int(logprobs, name, 1, MAX_BEST)
    except OptionError:
        raise OptionError(
            f"{name}={brief(logprobs)}: expected True for the {whose} tokens, or a whole number from 1 to "
            f"{MAX_BEST:,} to add that many likeliest tokens of each position"
        ) from None


def _stop_strings(stop: Any) -> tuple[str, ...]:
    if isinstance(stop, str):
        return (check_text(stop, "stop"),)
    if stop is None:
        raise OptionError("stop=None: expected a string or a list of strings; leave it out for none")
    return tuple(check_texts(stop, "stop", "stop string"))


def _stop_ids(ids: Any) -> tuple[int, ...]:
    several = items_of(list(cast("set[Any]", ids)) if isinstance(ids, set) else ids)
    if several is None:
        raise OptionError(f"stop_ids={brief(ids)}: expected a list of token ids, such as [13]; for strings use stop")
    return tuple(check_int(token, "stop_ids", 0) for token in several)


def _seed(seed: Any) -> int | tuple[int, ...] | None:
    """Check seeds as torch does: 64 bits, signed or unsigned."""
    several = items_of(seed)
    if several is not None:
        return tuple(check_int(one, "seed", -(2**63), 2**64 - 1) for one in several)
    return None if seed is None else check_int(seed, "seed", -(2**63), 2**64 - 1)


_SAMPLE = "for random sampling use search=Sample(temperature=0.7, top_k=50, top_p=0.9, min_p=0.05)"
_SEVERAL = "for several texts of a prompt use search=Sample(n=3), or for the likeliest ones search=Beam(4, n=3)"
_BEAM = 'for beam search use search=Beam(4), or search=Beam(4, length_penalty=1.0, early_stopping="never")'
_MAX_TOKENS_HINT = "for the most tokens of an output use max_tokens=100"
_STOP = 'for strings that end a free text use stop="\\n" or stop=["\\n", "END"]'
_INCLUDE = 'for content that a text must have use include=["a phrase"]'
_SCORES = (
    "for log-probabilities use generator.run(prompts, logprobs=True), or logprobs=5 for the 5 best of each position"
)
_CONSTRAINT = "give the constraint when you make the generator: generate.regex, generate.json, generate.cfg, ..."

_ELSEWHERE: dict[str, Sequence[str]] = {
    _SAMPLE: (*SAMPLE_OPTIONS, "do_sample", "typical_p", "sampler", "sampling_params"),
    "greedy search is the default; leave it out": ("greedy",),
    _SEVERAL: ("n", "num_return_sequences", "num_samples", "samples", "best_of"),
    _BEAM: ("num_beams", "beams", "beam_width", "width", "early_stopping", *BEAM_OPTIONS),
    _MAX_TOKENS_HINT: ("max_new_tokens", "max_length", "max_completion_tokens", "max_output_tokens", "num_predict"),
    "for the fewest tokens of an output use min_tokens=10": ("min_new_tokens", "min_length"),
    _STOP: ("stop_strings", "stop_sequences", "stop_words", "stop_at", "until"),
    "for token ids that end a free text use stop_ids=[13]": (
        "stop_token_ids",
        "eos_token_id",
        "eos_ids",
        "stop_tokens",
    ),
    _INCLUDE: ("force_words_ids", "force_words", "constraints", "contains"),
    "against repetition use repetition_penalty=1.2, frequency_penalty=0.5 or no_repeat_ngram_size=3": (
        "repeat_penalty",
        "encoder_repetition_penalty",
    ),
    _SCORES: ("top_logprobs", "output_scores", "output_logits", "return_dict_in_generate", "scores"),
    "to make tokens likelier, or to ban them, use logit_bias={' the': 2, 13: float('-inf')}": (
        "sequence_bias",
        "bad_words_ids",
        "bad_words",
        "suppress_tokens",
    ),
    _CONSTRAINT + "; to change scores of single tokens use logit_bias={' the': 2}": (
        "logits_processor",
        "logits_processors",
    ),
    "for the output in pieces use generator.stream(prompt)": ("stream", "streamer"),
    "prompts are healed unless heal=False": ("token_healing", "heal_tokens"),
    "for repeatable samples use seed=7": ("random_seed", "random_state", "rng", "generator", "manual_seed"),
    "for a progress bar use progress=True": ("verbose", "show_progress", "use_tqdm"),
    "for the number of rows that run at once use batch_size=16": ("max_batch_size", "num_workers", "concurrency"),
    _CONSTRAINT: ("regex", "pattern", "schema", "json_schema", "response_format", "grammar", "choices", "guide"),
    "give limits with the constraint: generate.regex(model, pattern, limits=Limits(...))": ("limits",),
}
_MEANT = {name: meant for meant, names in _ELSEWHERE.items() for name in names}
_OF_RUN = "only run returns results with it: generator.run(prompts, {name}=True)"
_OF_SEVERAL = "it concerns several texts, but a stream has one; leave it out"


def unknown_option(name: str, value: Any, possible: Collection[str], everywhere: Collection[str]) -> str:
    """Return the message for an unknown option, with advice.

    possible: option names of this method; everywhere: all option names
    """
    shown_value = repr(value)
    what = f"{name}={shown_value if len(shown_value) <= 60 else '...'}"
    if name in everywhere:
        belongs_to_run = name in ("logprobs", "prompt_logprobs", "diagnostics", "trace", "fields")
        return f"{what}: {_OF_RUN.format(name=name) if belongs_to_run else _OF_SEVERAL}"
    matches = get_close_matches(name, possible, 1)
    if name == "temperature" and isinstance(value, (int, float)) and value == 0:
        hint = "for the likeliest tokens use search=Greedy(), the default"
    elif name in _MEANT:
        hint = _MEANT[name]
    elif matches:
        hint = f"did you mean {matches[0]}?"
    else:
        hint = f"expected one of {', '.join(possible)}"
    return f"{what}: there is no such option; {hint}"


DEFAULTS = Options()
"""The options of a call that names none."""
