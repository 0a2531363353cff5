"""A model whose memory can be looked into: it reads every text out of the blocks, and finds what is wrong there."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from trellm import Engine, Sample, Vocabulary, generate

from .support import BLOCK, FREED, NO_SLOT, Call, Chunk, EngineCore, FunctionModel

LETTERS = "abcdefgh"
EOS = len(LETTERS)
VOCABULARY = Vocabulary([*(letter.encode() for letter in LETTERS), None], eos_ids=(EOS,))
WEIGHTS = np.random.default_rng(7).normal(size=(257, EOS + 1)) * 2


def logits_of(ids: Sequence[int]) -> Any:
    """Logits that depend on the whole text, less and less on what is long ago."""
    mixed = 0
    for token in ids:
        mixed = (mixed * 31 + token + 1) % 257
    return WEIGHTS[mixed]


def crowd(model: PagedModel, seed: int) -> tuple[Engine, list[str], Any]:
    """An engine that reads in chunks, in little memory; prompts that begin alike; and texts behind some of them, which
    take each other's memory."""
    pick = random.Random(seed)
    engine = Engine(model, memory=64 * 14 + 14 * model.state_bytes, tokens=24, chunk=16)
    shared = "".join(pick.choices(LETTERS, k=40))
    prompts = [shared[: pick.randint(1, 40)] + "".join(pick.choices(LETTERS, k=pick.randint(0, 40))) for _ in range(9)]
    text = generate.text(model)
    return engine, prompts, engine.submit(text, prompts[:4], max_tokens=60, min_tokens=60, seed=1, search=Sample())


class Blocks:
    """What a model wrote into each place of each block."""

    def __init__(self) -> None:
        self.places: defaultdict[int, list[int | None]] = defaultdict(lambda: [None] * BLOCK)
        self.states = States()
        self.copy_states = self.states.copy_states

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy blocks, all at once."""
        before = [self.places[source].copy() for source, _ in pairs]
        for (_, target), content in zip(pairs, before, strict=True):
            self.places[target] = content


class States:
    """The texts that a model has read, by the slots of their states: a state says all of its text."""

    def __init__(self) -> None:
        self.texts: dict[int, tuple[int, ...]] = {}

    def copy_states(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copy states, all at once."""
        self.texts |= {target: self.texts[source] for source, target in pairs}

    def read(self, chunk: Chunk) -> None:
        """Go on from the state of a text, if it has begun."""
        table, tokens = chunk
        assert table.slot != NO_SLOT
        before = self.texts[table.slot] if table.tokens else ()
        assert before == tuple(table.tokens), "a state is that of its text"
        self.texts[table.slot] = (*before, *tokens)


class PagedModel(FunctionModel):
    """Writes token ids where others write keys and values, and reads texts from there.

    state_bytes: above 0, it also keeps a state of each text
    reads_drafts: what follows several tokens can be asked too
    read: how many tokens it has read so far; most: in one step; ends: of how many places it was
        asked what follows several tokens; raises: what the next steps raise, if anything
    """

    block_bytes = 64

    def __init__(
        self, window: int | None = None, context: int | None = None, state_bytes: int = 0, reads_drafts: bool = False
    ) -> None:
        super().__init__(logits_of, VOCABULARY, context=context)
        self.reads_drafts = reads_drafts
        self.state_bytes = state_bytes
        self.window = window
        self.read = 0
        self.steps = 0
        self.most = 0
        self.ends = 0
        self.raises: list[BaseException | None] = []

    def make_memory(self, blocks: int) -> Any:
        return Blocks()

    def forward(self, chunks: Sequence[Chunk], memory: Any) -> list[tuple[int, ...]]:
        self.steps += 1
        if self.raises and (error := self.raises.pop(0)) is not None:
            raise error
        for table, tokens in chunks:
            assert tokens, "everybody reads something"
            for place, token in enumerate(tokens, len(table.tokens)):
                memory.places[table.blocks[place // BLOCK]][place % BLOCK] = token
        if self.state_bytes:
            for chunk in chunks:
                memory.states.read(chunk)
        self.read += sum(len(tokens) for _, tokens in chunks)
        self.most = max(self.most, sum(len(tokens) for _, tokens in chunks))
        return [self._found(chunk, memory) for chunk in chunks]

    def forward_ends(self, chunks: Sequence[Chunk], ends: Sequence[int], memory: Any) -> list[tuple[int, ...]]:
        self.ends += sum(ends)
        return super().forward_ends(chunks, ends, memory)

    def _found(self, chunk: Chunk, memory: Any) -> tuple[int, ...]:
        """A text, of which the part that the model looks at is read from the blocks."""
        table, tokens = chunk
        text = (*table.tokens, *tokens)
        assert len(table.blocks) == -(-len(text) // BLOCK)
        seen = 0 if self.window is None else max(0, len(text) - len(tokens) + 1 - self.window)
        for place in range(seen, len(text)):
            block = table.blocks[place // BLOCK]
            assert block != FREED, "nobody looks at what was freed"
            assert memory.places[block][place % BLOCK] == text[place], "blocks hold what their text says"
        return text


def drain(loop: EngineCore, most: int = 100_000) -> None:
    """Step until nothing is left to do, looking at the blocks after each step."""
    for _ in range(most):
        if not any(call.groups or call.is_waiting for call in loop.calls):
            return
        loop.step()
        loop.check()
    raise AssertionError("there is no end to it")


def results(call: Call) -> list[Any]:
    """For each request the tokens of its texts, or what went wrong."""
    return [
        call.outcomes[number].error or [tuple(row.tokens) for row in call.outcomes[number].sequences]
        for number in range(len(call.requests))
    ]
