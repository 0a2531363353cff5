"""Other engines on the same weights: llama.cpp, and llguidance, XGrammar and Outlines in transformers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from trellm.engine.downloads.registry import pulled_file
from trellm.engine.formats import format_of

from .tasks import Task
from .ways import Answer

MAX, MAX_OF_VALUES = 160, 32
"""Tokens of JSON, and of anything else: a number without bounds may have no end."""
Peer = Callable[[Task], Answer | None]


def pattern_of(task: Task) -> str | None:
    """The regular expression of a task that is no JSON; None for quotations, which these engines have no means for."""
    import datetime

    if task.constraint == "choice":
        return "|".join(map(re.escape, task.argument)).replace("\\ ", " ")
    if task.constraint == "extract":
        return None
    return format_of(datetime.date if task.constraint == "date" else int).pattern


def _most(task: Task) -> int:
    return MAX if task.constraint == "json" else MAX_OF_VALUES


def value_of(task: Task, text: str) -> Any:
    """The value of an answer that matches, None for one that was cut."""
    try:
        if task.constraint == "json":
            return json.loads(text)
        return int(text) if task.constraint == "integer" else text
    except ValueError:
        return None


@cache
def _file(name: str) -> Path:
    """The GGUF file of a model that was pulled, or the file itself."""
    if name.endswith(".gguf"):
        return Path(name)
    file = pulled_file(name)
    if file is None:
        raise SystemExit(f"{name}: no file of a model; peers take the name of a pulled one, or a path in .gguf")
    return Path(file)


def llama_cpp(name: str) -> Peer:
    """Its own server in this process, with json_schema or a grammar of GBNF."""
    import xllamacpp

    params: Any = xllamacpp.CommonParams()
    params.model.path = str(_file(name))
    params.n_ctx, params.n_parallel, params.verbosity = 2048, 1, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server: Any = xllamacpp.Server(params)

    def answer(task: Task) -> Answer | None:
        options: dict[str, Any] = {"temperature": 0, "max_tokens": _most(task)}
        if task.constraint == "json":
            options["json_schema"] = task.argument
        elif (grammar := _gbnf(task)) is not None:
            options["grammar"] = grammar
        else:
            return None
        began = time.perf_counter()
        found: Any = server.handle_chat_completions({"messages": [{"role": "user", "content": task.prompt}], **options})
        taken = time.perf_counter() - began
        text = found["choices"][0]["message"]["content"]
        return Answer(value_of(task, text), text, found["usage"]["completion_tokens"], taken)

    return answer


def _gbnf(task: Task) -> str | None:
    if task.constraint == "choice":
        return "root ::= " + " | ".join(json.dumps(option, ensure_ascii=False) for option in task.argument)
    digits = {"integer": '"-"? ("0" | [1-9] [0-9]*)', "date": '[0-9] [0-9] [0-9] [0-9] "-" [0-1] [0-9] "-" [0-3] [0-9]'}
    return None if task.constraint == "extract" else f"root ::= {digits[task.constraint]}"


@cache
def _transformers(name: str) -> tuple[Any, Any]:
    """Model and tokenizer, weights taken out of the file."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = _file(name)
    torch.set_num_threads(1)
    tokenizer: Any = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    model: Any = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
    return model.eval(), tokenizer


def _generating(name: str, matcher: Callable[[Task], Callable[[list[int], Any], None] | None]) -> Peer:
    """`generate` of transformers, greedily, whose scores a matcher masks in place.

    matcher: of a task, what takes the tokens so far and the scores, float32 [1, V]; None where the engine has none
    """
    model, tokenizer = _transformers(name)

    def answer(task: Task) -> Answer | None:
        began = time.perf_counter()
        mask = matcher(task)
        if mask is None:
            return None
        chat = [{"role": "user", "content": task.prompt}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        given = ids["input_ids"].shape[1]

        def masked(tokens: Any, scores: Any) -> Any:
            mask(tokens[0, given:].tolist(), scores)
            return scores

        found = model.generate(**ids, max_new_tokens=_most(task), do_sample=False, logits_processor=[masked])
        written = found[0, given:].tolist()
        text = tokenizer.decode(written, skip_special_tokens=True)
        return Answer(value_of(task, text), text, len(written), time.perf_counter() - began)

    return answer


def llguidance(name: str) -> Peer:
    """Its matcher, with its own defaults for white space."""
    import llguidance.hf
    from llguidance import LLMatcher
    from llguidance.torch import allocate_token_bitmask, apply_token_bitmask_inplace, fill_next_token_bitmask

    engine: Any = llguidance.hf.from_tokenizer(_transformers(name)[1])
    bits: Any = allocate_token_bitmask(1, engine.vocab_size)

    def matcher(task: Task) -> Callable[[list[int], Any], None] | None:
        if task.constraint == "json":
            grammar = LLMatcher.grammar_from_json_schema(json.dumps(task.argument))
        elif (pattern := pattern_of(task)) is not None:
            grammar = LLMatcher.grammar_from_regex(pattern)
        else:
            return None
        state: Any = LLMatcher(engine, grammar)

        def mask(tokens: list[int], scores: Any) -> None:
            if tokens:
                state.consume_token(tokens[-1])
            fill_next_token_bitmask(state, bits, 0)
            apply_token_bitmask_inplace(scores, bits)

        return mask

    return _generating(name, matcher)


def xgrammar(name: str) -> Peer:
    """Its matcher, with its own defaults for white space."""
    import xgrammar as engine

    model, tokenizer = _transformers(name)
    info: Any = engine.TokenizerInfo.from_huggingface(tokenizer, vocab_size=model.config.vocab_size)
    compiler: Any = engine.GrammarCompiler(info, max_threads=1)
    bits: Any = engine.allocate_token_bitmask(1, info.vocab_size)

    def matcher(task: Task) -> Callable[[list[int], Any], None] | None:
        if task.constraint == "json":
            compiled = compiler.compile_json_schema(json.dumps(task.argument))
        elif (pattern := pattern_of(task)) is not None:
            compiled = compiler.compile_regex(pattern)
        else:
            return None
        state: Any = engine.GrammarMatcher(compiled)

        def mask(tokens: list[int], scores: Any) -> None:
            if tokens:
                state.accept_token(tokens[-1])
            if not state.is_terminated():
                state.fill_next_token_bitmask(bits)
                engine.apply_token_bitmask_inplace(scores, bits)

        return mask

    return _generating(name, matcher)


def outlines(name: str) -> Peer:
    """The index of outlines-core, of a pattern that it makes of a schema."""
    import torch
    from outlines_core import Guide, Index, Vocabulary
    from outlines_core.json_schema import build_regex_from_schema

    tokenizer = _transformers(name)[1]
    eos: int = tokenizer.eos_token_id
    tokens: dict[str, list[int]] = {}
    for token in range(len(tokenizer)):
        if token != eos and token not in tokenizer.all_special_ids:
            tokens.setdefault(tokenizer.convert_tokens_to_string([tokenizer.convert_ids_to_tokens(token)]), []).append(
                token
            )
    tokens.pop("", None)
    vocabulary = Vocabulary(eos, tokens)

    def matcher(task: Task) -> Callable[[list[int], Any], None] | None:
        pattern = build_regex_from_schema(json.dumps(task.argument)) if task.constraint == "json" else pattern_of(task)
        if pattern is None:
            return None
        state: Any = Guide(Index(pattern, vocabulary))

        def mask(written: list[int], scores: Any) -> None:
            if written and written[-1] != eos:
                state.advance(written[-1])
            allowed = torch.full_like(scores, -torch.inf)
            allowed[0, state.get_tokens()] = 0
            scores += allowed

        return mask

    return _generating(name, matcher)


PEERS: dict[str, Callable[[str], Peer]] = {
    "llama.cpp": llama_cpp,
    "llguidance": llguidance,
    "xgrammar": xgrammar,
    "outlines": outlines,
}
