"""The engines, each driven as its makers do, and the process that one runs in."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any, NoReturn

CLOSING = b'"]},:'
"""First bytes by which walks come to an end."""
TO_AN_END, FINISHED, STUCK, CUT = 0.4, "finished", "stuck", "cut"


BEGUN, DONE, FAILED = "begun", "done", "failed"


@dataclass
class Walk:
    """A text that was chosen from an engine's masks.

    outcome: FINISHED where it was allowed to end and did, STUCK where nothing was allowed, CUT at its greatest length
    beside: places, and tokens that were allowed there and not taken
    """

    tokens: list[int] = field(default_factory=list[int])
    outcome: str = CUT
    beside: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])


@dataclass
class Followed:
    """Length of a text that an engine goes along. refused: the place of the token that it does not allow, or None"""

    refused: int | None = None
    may_end: bool = False
    masks: dict[int, bytes] = field(default_factory=dict[int, bytes])


class Engine:
    """Masks of one engine. Whatever `compile` raises says that it does not take the schema."""

    package = ""

    def __init__(self, tokenizer: Any, size: int) -> None:
        self.tokenizer, self.size = tokenizer, size
        self.eos: int = tokenizer.eos_token_id

    def compile(self, schema: dict[str, Any]) -> Any:
        """Beginning of all texts of a schema."""
        raise NotImplementedError

    def start(self, compiled: Any) -> Any:
        """The state before the first token."""
        raise NotImplementedError

    def mask(self, state: Any) -> Any:
        """Booleans, one for each token, that of EOS where the text may end."""
        raise NotImplementedError

    def advance(self, state: Any, token: int) -> Any:
        """The state behind a token that the mask allows."""
        raise NotImplementedError

    def _unpacked(self, words: Any) -> Any:
        import numpy as np

        found = np.unpackbits(np.asarray(words).reshape(-1).view(np.uint8), bitorder="little")[: self.size]
        return np.pad(found, (0, self.size - len(found))).astype(bool)

    def _listed(self, tokens: Sequence[int]) -> Any:
        import numpy as np

        found = np.zeros(self.size, bool)
        found[list(tokens)] = True
        return found


class Trellm(Engine):
    package = "trellm"

    def __init__(self, tokenizer: Any, size: int) -> None:
        super().__init__(tokenizer, size)
        from trellm import Vocabulary
        from trellm.guides import JSONGuide

        self._guide, self._vocabulary = JSONGuide, Vocabulary.from_tokenizer(tokenizer)

    def compile(self, schema: dict[str, Any]) -> Any:
        return self._guide(schema, self._vocabulary)

    def start(self, compiled: Any) -> Any:
        return compiled, compiled.start

    def mask(self, state: Any) -> Any:
        guide, at = state
        return self._unpacked(guide.mask(at))

    def advance(self, state: Any, token: int) -> Any:
        guide, at = state
        return guide, guide.advance(at, token)


class LLGuidance(Engine):
    package = "llguidance"

    def __init__(self, tokenizer: Any, size: int) -> None:
        super().__init__(tokenizer, size)
        import llguidance
        import llguidance.hf
        from llguidance.numpy import allocate_token_bitmask, fill_next_token_bitmask

        self._matcher, self._fill = llguidance.LLMatcher, fill_next_token_bitmask
        self._tokens = llguidance.hf.from_tokenizer(tokenizer)
        self._bits = allocate_token_bitmask(1, self._tokens.vocab_size)

    def compile(self, schema: dict[str, Any]) -> Any:
        return self._sound(self._matcher(self._tokens, self._matcher.grammar_from_json_schema(json.dumps(schema))))

    def start(self, compiled: Any) -> Any:
        return compiled.deep_copy()

    def mask(self, state: Any) -> Any:
        if state.is_stopped():
            return self._listed([self.eos])
        self._fill(state, self._bits, 0)
        return self._unpacked(self._sound(state) and self._bits)

    def advance(self, state: Any, token: int) -> Any:
        state.consume_token(token)
        return self._sound(state)

    def _sound(self, matcher: Any) -> Any:
        if matcher.is_error():
            raise ValueError(matcher.get_error())
        return matcher


class XGrammar(Engine):
    package = "xgrammar"

    def __init__(self, tokenizer: Any, size: int) -> None:
        super().__init__(tokenizer, size)
        import xgrammar

        self._matcher = xgrammar.GrammarMatcher
        info = xgrammar.TokenizerInfo.from_huggingface(tokenizer)
        self._bits = xgrammar.allocate_token_bitmask(1, info.vocab_size)
        self._compiler = xgrammar.GrammarCompiler(info, max_threads=1, cache_enabled=False)

    def compile(self, schema: dict[str, Any]) -> Any:
        # Otherwise it adds `additionalProperties: false`, which the schema does not say
        return self._compiler.compile_json_schema(json.dumps(schema), strict_mode=False)

    def start(self, compiled: Any) -> Any:
        return self._matcher(compiled)

    def mask(self, state: Any) -> Any:
        state.fill_next_token_bitmask(self._bits)
        return self._unpacked(self._bits.numpy())

    def advance(self, state: Any, token: int) -> Any:
        state.accept_token(token)
        return state


class OutlinesCore(Engine):
    package = "outlines-core"

    def __init__(self, tokenizer: Any, size: int) -> None:
        super().__init__(tokenizer, size)
        from outlines_core import Guide, Index, Vocabulary
        from outlines_core.json_schema import build_regex_from_schema
        from trellm import Vocabulary as Tokens

        self._guide, self._index, self._pattern = Guide, Index, build_regex_from_schema
        ids: dict[bytes, list[int]] = {}
        for token, text in enumerate(Tokens.from_tokenizer(tokenizer).tokens):
            if text and token != self.eos:
                ids.setdefault(text, []).append(token)
        self._vocabulary = Vocabulary(self.eos, ids)

    def compile(self, schema: dict[str, Any]) -> Any:
        return self._index(self._pattern(json.dumps(schema)), self._vocabulary)

    def start(self, compiled: Any) -> Any:
        return self._guide(compiled)

    def mask(self, state: Any) -> Any:
        return self._listed(state.get_tokens())

    def advance(self, state: Any, token: int) -> Any:
        state.advance(token, return_tokens=False)
        return state


class LMFormatEnforcer(Engine):
    package = "lm-format-enforcer"

    def __init__(self, tokenizer: Any, size: int) -> None:
        super().__init__(tokenizer, size)
        import logging

        import transformers
        import transformers.tokenization_utils as moved

        # Its integration looks for the class where transformers 4 had it
        moved.PreTrainedTokenizerBase = transformers.PreTrainedTokenizerBase
        from lmformatenforcer import JsonSchemaParser, TokenEnforcer
        from lmformatenforcer.integrations.transformers import build_token_enforcer_tokenizer_data

        logging.disable(logging.ERROR)  # it logs a page for each state of which it knows no way on
        self._parser, self._enforcer = JsonSchemaParser, TokenEnforcer
        self._data = build_token_enforcer_tokenizer_data(tokenizer, use_bitmask=False)

    def compile(self, schema: dict[str, Any]) -> Any:
        return self._enforcer(self._data, self._parser(schema))

    def start(self, compiled: Any) -> Any:
        return compiled, []

    def mask(self, state: Any) -> Any:
        enforcer, tokens = state
        return self._listed(enforcer.get_allowed_tokens(list(tokens)).allowed_tokens)

    def advance(self, state: Any, token: int) -> Any:
        enforcer, tokens = state
        return enforcer, [*tokens, token]


ENGINES = {each.package: each for each in (Trellm, LLGuidance, XGrammar, OutlinesCore, LMFormatEnforcer)}


class Driver:
    """An engine with the schema that it was given last."""

    def __init__(self, engine: Engine, tokens: Sequence[bytes]) -> None:
        import numpy as np

        self._engine, self._tokens = engine, tokens
        self._spelled = np.array([bool(text) for text in tokens])
        self._closing = np.array([text[:1] in CLOSING for text in tokens]) & self._spelled
        self._compiled: Any = None

    def compile(self, schema: dict[str, Any]) -> None:
        """Take a schema and make its first mask."""
        self._compiled = None
        compiled = self._engine.compile(schema)
        self._engine.mask(self._engine.start(compiled))
        self._compiled = compiled

    def follow(self, tokens: Sequence[int], places: Sequence[int] = ()) -> Followed:
        """Go along a text, and keep the masks of some places."""
        import numpy as np

        state, found = self._engine.start(self._compiled), Followed()
        for at, token in enumerate(tokens):
            mask = self._engine.mask(state)
            if at in places:
                found.masks[at] = np.packbits(mask).tobytes()
            if not mask[token]:
                found.refused = at
                return found
            state = self._engine.advance(state, token)
        found.may_end = bool(self._engine.mask(state)[self._engine.eos])
        return found

    def walk(self, seed: str, steps: int, first: Sequence[int] = ()) -> Walk:
        """A text behind some tokens, at random from the masks; half of all tokens lead towards an end."""
        import numpy as np

        rng = random.Random(seed)
        state, walk = self._engine.start(self._compiled), Walk(list(first))
        for token in first:
            self._engine.mask(state)
            state = self._engine.advance(state, token)
        while len(walk.tokens) < steps:
            mask = self._engine.mask(state)
            allowed = np.flatnonzero(mask & self._spelled)
            if mask[self._engine.eos] and (not len(allowed) or rng.random() < TO_AN_END):
                walk.outcome = FINISHED
                return walk
            if not len(allowed):
                walk.outcome = STUCK
                return walk
            walk.beside += [(len(walk.tokens), self._by_byte(rng, allowed)) for _ in range(2)]
            closing = np.flatnonzero(mask & self._closing) if rng.random() < TO_AN_END else ()
            walk.tokens.append(int(rng.choice(closing)) if len(closing) else self._by_byte(rng, allowed))
            state = self._engine.advance(state, walk.tokens[-1])
        return walk

    def _by_byte(self, rng: random.Random, allowed: Any) -> int:
        """A token by its first byte, so that what few tokens begin with comes too."""
        some = [int(rng.choice(allowed)) for _ in range(40)]
        first = rng.choice(sorted({self._tokens[token][:1] for token in some}))
        return rng.choice([token for token in some if self._tokens[token].startswith(first)])


def bytes_of(vocabulary: Any) -> list[bytes]:
    """The bytes of each token, none of special ones and those that end a text."""
    special = {*vocabulary.special_ids, *vocabulary.eos_ids}
    return [b"" if token in special else text or b"" for token, text in enumerate(vocabulary.tokens)]


def _serve(connection: Connection, name: str, folder: str, seconds: float) -> None:
    """The loop of an engine's process: it forks, so that what a call breaks off need not be loaded again."""
    from transformers import AutoTokenizer
    from trellm import Vocabulary

    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = bytes_of(Vocabulary.from_tokenizer(tokenizer))
    driver = Driver(ENGINES[name](tokenizer, len(tokens)), tokens)
    driver.compile({"type": "object", "properties": {"warm": {"type": "string"}}})
    status = 0
    while True:
        connection.send((BEGUN, status))
        child = os.fork()
        if not child:
            _answer(connection, driver, seconds)
        status = os.waitpid(child, 0)[1]
        if not status:
            return


def _answer(connection: Connection, driver: Driver, seconds: float) -> NoReturn:
    """A call in, its result or its exception out. The system ends what takes longer, by SIGPROF."""
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            os._exit(0)
        signal.setitimer(signal.ITIMER_PROF, seconds)
        try:
            answer = (DONE, getattr(driver, method)(*arguments))
        except BaseException as error:  # a panic of a library in Rust is no Exception
            answer = (FAILED, f"{type(error).__name__}: {error}"[:300])
        signal.setitimer(signal.ITIMER_PROF, 0)
        connection.send(answer)


class FailedError(Exception):
    """An engine that raised or crashed."""


class LateError(FailedError):
    """An engine that took too long."""


class Process:
    """An engine in a process of its own. seconds: of processor time, for each call"""

    def __init__(self, name: str, folder: str, seconds: float) -> None:
        self._seconds = seconds
        context = multiprocessing.get_context("spawn")
        self._connection, child = context.Pipe()
        self._process = context.Process(target=_serve, args=(child, name, folder, seconds))
        self._process.start()
        child.close()
        self._connection.recv()

    def call(self, method: Callable[..., Any], *arguments: Any) -> Any:
        """A method of Driver, called there. Raises FailedError."""
        self._connection.send((method.__name__, arguments))
        kind, found = self._connection.recv()
        if kind == FAILED:
            raise FailedError(found)
        if kind == BEGUN and os.WIFSIGNALED(found) and os.WTERMSIG(found) == signal.SIGPROF:
            raise LateError(f"more than {self._seconds:g} s")
        if kind == BEGUN:
            raise FailedError("crashed")
        return found

    def end(self) -> None:
        """End the process."""
        self._connection.close()
        self._process.join()
