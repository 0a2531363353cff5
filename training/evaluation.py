"""The evaluation: held-out tasks, answered under trellm's constraints, without any, and by transformers and llguidance.

python -m trellm.training evaluate FOLDER --tasks 500 --save benchmarks/results/small_model.csv
"""

from __future__ import annotations

import csv
import json
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

from .scoring import Score
from .text.documents import THOUGHT, chat_prompt, messages_of, plain_prompt
from .text.tasks import Task
from .validation import KINDS, held_out_task

MAX_TOKENS = 256
_BATCH = 50


@dataclass(frozen=True)
class Case:
    """A task as a prompt."""

    task: Task
    prompt: str


def cases(kind: str, count: int, seed: int = 0) -> list[Case]:
    """Held-out tasks of a kind, in turn as a plain prompt and as a chat."""
    random = Random(f"evaluation {seed} {kind}")
    several: list[Case] = []
    for number in range(count):
        task = held_out_task(random, kind)
        if number % 2:
            prompt = chat_prompt(messages_of(task), task.tools)
        else:
            prompt = plain_prompt(task, random.choice(task.leads), random.random() < 0.75)
        several.append(Case(task, prompt))
    return several


def generator_of(model: Any, task: Task) -> Any:
    """The generator that a user would make for this task."""
    from .. import generate

    name, argument = task.constraint
    if name == "json":
        return generate.json(model, argument)
    if name == "extract":
        return generate.extract(model, argument)
    if name == "sentence":
        return generate.extract(model, argument, boundary="sentence")
    if name == "choice":
        return generate.choice(model, argument)
    if name == "regex":
        if task.thought:
            return generate.regex(model, argument, after=THOUGHT, thinking=MAX_TOKENS // 2)
        return generate.regex(model, argument)
    return generate.text(model)


def constrained(model: Any, several: Sequence[Case], **options: Any) -> list[str]:
    """The answers under the tasks' constraints, in batches. options: of `generate`, such as search=Beam(4)."""
    from ..engine.engine import run_together
    from ..engine.options import CallOptions, Options

    if several[0].task.constraint[0] == "words":
        return [
            generator_of(model, case.task)
            .run(case.prompt, include=list(case.task.value), max_tokens=MAX_TOKENS, **options)
            .text
            for case in several
        ]
    chosen = Options.of(CallOptions, {"max_tokens": MAX_TOKENS, **options})
    pairs = [(generator_of(model, case.task), case.prompt) for case in several]
    return [result.text for result in run_together(pairs, chosen)]


def unconstrained(model: Any, several: Sequence[Case], **options: Any) -> list[str]:
    """What the model writes of itself."""
    from .. import generate

    results = generate.text(model).run([case.prompt for case in several], max_tokens=MAX_TOKENS, **options)
    return [result.text for result in results]


def _peer(module: str) -> Any:
    """A module of a peer, which only the `bench` extra installs. Raises ImportError without it."""
    return import_module(module)


class ByTransformers:
    """Answers by `generate` of transformers, with llguidance's matchers as its logits processor, one at a time."""

    def __init__(self, model: Any) -> None:
        self._model, self._tokenizer = model.model, model.tokenizer
        config = model.model.config
        tokens_of = _peer("llguidance.hf").from_tokenizer
        self._tokens: Any = tokens_of(model.tokenizer, config.vocab_size, config.eos_token_id)

    def __call__(self, several: Sequence[Case]) -> list[str]:
        import torch

        texts: list[str] = []
        for case in several:
            ids = self._tokenizer(case.prompt, return_tensors="pt").input_ids
            with torch.inference_mode():
                found = self._model.generate(
                    ids,
                    attention_mask=torch.ones_like(ids),
                    max_new_tokens=MAX_TOKENS,
                    do_sample=False,
                    logits_processor=[_Processor(self._tokens, grammar_of(case.task))],
                )
            texts.append(self._tokenizer.decode(found[0, ids.shape[1] :], skip_special_tokens=True))
        return texts


class _Processor:
    """A matcher of llguidance as a logits processor for one row."""

    def __init__(self, tokens: Any, grammar: str) -> None:
        self._matcher: Any = _peer("llguidance").LLMatcher(tokens, grammar)
        self._began = False

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        masks = _peer("llguidance.torch")
        if self._began:
            self._matcher.consume_token(input_ids[0, -1].item())
        self._began = True
        bits = masks.allocate_token_bitmask(1, scores.shape[-1])
        masks.fill_next_token_bitmask(self._matcher, bits)
        masks.apply_token_bitmask_inplace(scores, bits)
        return scores


def grammar_of(task: Task) -> str:
    """A task's constraint for llguidance. Raises KeyError for given words, which it has no constraint for."""
    name, argument = task.constraint
    matcher: Any = _peer("llguidance").LLMatcher
    if name == "json":
        return matcher.grammar_from_json_schema(
            json.dumps(argument),
            overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "},
        )
    if name == "regex":
        return matcher.grammar_from_regex(argument)
    rules: dict[str, Callable[[], str]] = {
        "choice": lambda: " | ".join(map(json.dumps, argument)),
        "extract": lambda: f"%regex {json.dumps({'substring_words': argument})}",
        "sentence": lambda: f"%regex {json.dumps({'substring_chunks': re.split(r'(?<=[.] )', argument)})}",
    }
    return matcher.grammar_from_lark(f"start: text\ntext: {rules[name]()}\n".replace("text", "TEXT"))


def measure(several: Sequence[Case], answer: Callable[[Sequence[Case]], list[str]]) -> dict[str, float]:
    """The shares of right answers, and the seconds of processor time that they took."""
    score = Score()
    began = time.process_time()
    for start in range(0, len(several), _BATCH):
        batch = several[start : start + _BATCH]
        for case, text in zip(batch, answer(batch), strict=True):
            score.add(case.task, text)
    return {**{name: round(share, 4) for name, share in score.shares().items()}, "seconds": time.process_time() - began}


def ways(model: Any) -> dict[str, Callable[[Sequence[Case]], list[str]]]:
    """How answers are found, by name."""
    from ..engine.search import Beam

    return {
        "trellm": lambda several: constrained(model, several),
        "trellm, not healed": lambda several: constrained(model, several, heal=False),
        "trellm, beams of 4": lambda several: constrained(model, several, search=Beam(4)),
        "no constraint": lambda several: unconstrained(model, several),
        "no constraint, not healed": lambda several: unconstrained(model, several, heal=False),
        "transformers with llguidance": ByTransformers(model),
    }


def evaluate(model: Any, count: int, chosen: Sequence[str], kinds: Sequence[str], save: Path | None) -> None:
    """Measure, print a line for each kind of task and way, and write them to a file as they come."""
    available = ways(model)
    rows: list[dict[str, Any]] = []
    for kind in kinds:
        several = cases(kind, count)
        for way in chosen:
            if kind == "given words" and way.startswith("transformers"):
                continue
            if kind == "arithmetic" and way.startswith("transformers"):
                continue  # its grammar knows no thought before the answer
            row = {"task": kind, "way": way, "prompts": count, **measure(several, available[way])}
            rows.append(row)
            print(
                "  ".join(f"{value:.3f}" if isinstance(value, float) else f"{value}" for value in row.values()),
                flush=True,
            )
            if save is not None:
                _write(rows, save)


def _write(rows: list[dict[str, Any]], file: Path) -> None:
    with file.open("w", encoding="utf-8", newline="") as opened:
        table = csv.DictWriter(opened, list(rows[0]), lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


__all__ = ["KINDS", "Case", "cases", "constrained", "evaluate", "measure", "unconstrained", "ways"]
