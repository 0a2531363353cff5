"""Options that do not exist under the name given: what they mean elsewhere, and what that is called here."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from difflib import get_close_matches
from typing import Any

_SAMPLE = "random choice is search=Sample(temperature=0.7, top_k=50, top_p=0.9, min_p=0.05)"
_SEVERAL = "several texts for each prompt are search=Sample(n=3), or search=Beam(4, n=3) for the likeliest"
_BEAM = 'beam search is search=Beam(4), or search=Beam(4, length_penalty=1.0, early_stopping="never")'
_MOST = "the most tokens of an output are max_tokens=100"
_STOP = 'what ends a free text is stop="\\n" or stop=["\\n", "END"]'
_INCLUDE = 'what a text must contain is include=["a phrase"]'
_SCORES = "log-probabilities come with generator.run(prompts, logprobs=True), the 5 best of each place with logprobs=5"
_CONSTRAINT = "what may come out is said when the generator is made: generate.regex, generate.json, generate.cfg, ..."

_ELSEWHERE: dict[str, Sequence[str]] = {
    _SAMPLE: ("temperature", "top_k", "top_p", "min_p", "do_sample", "typical_p", "sampler", "sampling_params"),
    "greedy search is the default; leave it out": ("greedy",),
    _SEVERAL: ("n", "num_return_sequences", "num_samples", "samples", "best_of"),
    _BEAM: ("num_beams", "beams", "beam_width", "width", "length_penalty", "early_stopping"),
    _MOST: ("max_new_tokens", "max_length", "max_completion_tokens", "max_output_tokens", "num_predict"),
    "the fewest tokens of an output are min_tokens=10": ("min_new_tokens", "min_length"),
    _STOP: ("stop_strings", "stop_sequences", "stop_words", "stop_at", "until"),
    "token ids that end a free text are stop_ids=[13]": ("stop_token_ids", "eos_token_id", "eos_ids", "stop_tokens"),
    _INCLUDE: ("force_words_ids", "force_words", "constraints", "contains"),
    "repetition is what repetition_penalty=1.2, frequency_penalty=0.5 and no_repeat_ngram_size=3 are against": (
        "repeat_penalty",
        "encoder_repetition_penalty",
    ),
    _SCORES: ("top_logprobs", "output_scores", "output_logits", "return_dict_in_generate", "scores"),
    "single tokens are made likelier, or banned, by logit_bias={' the': 2, 13: float('-inf')}": (
        "sequence_bias",
        "bad_words_ids",
        "bad_words",
        "suppress_tokens",
    ),
    _CONSTRAINT + "; scores of single tokens are changed by logit_bias={' the': 2}": (
        "logits_processor",
        "logits_processors",
    ),
    "pieces as they come are generator.stream(prompt)": ("stream", "streamer"),
    "prompts are healed unless heal=False": ("token_healing", "heal_tokens"),
    "samples are made repeatable by seed=7": ("random_seed", "random_state", "rng", "generator", "manual_seed"),
    "a progress bar is progress=True": ("verbose", "show_progress", "use_tqdm"),
    "how many rows run at once is batch_size=16": ("max_batch_size", "num_workers", "concurrency"),
    _CONSTRAINT: ("regex", "pattern", "schema", "json_schema", "response_format", "grammar", "choices", "guide"),
    "limits belong to the constraint: generate.regex(model, pattern, limits=Limits(...))": ("limits",),
}
_MEANT = {name: meant for meant, names in _ELSEWHERE.items() for name in names}
_OF_RUN = "that adds to a result, and only run returns results: generator.run(prompts, {name}=True)"
_OF_SEVERAL = "that is about several texts, and a stream is one; leave it out"


def unknown_option(name: str, value: Any, possible: Collection[str], everywhere: Collection[str]) -> str:
    """Why an option is refused, and what to do.

    possible: the names of the options here; everywhere: those that there are at all
    """
    said = repr(value)
    what = f"{name}={said if len(said) <= 60 else '...'}"
    if name in everywhere:
        belongs_to_run = name in ("logprobs", "diagnostics", "trace")
        return f"{what}: {_OF_RUN.format(name=name) if belongs_to_run else _OF_SEVERAL}"
    near = get_close_matches(name, possible, 1)
    if name in _MEANT:
        hint = _MEANT[name]
    elif near:
        hint = f"did you mean {near[0]}?"
    else:
        hint = f"possible here are {', '.join(possible)}"
    return f"{what}: there is no such option; {hint}"
