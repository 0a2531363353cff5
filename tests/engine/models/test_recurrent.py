"""States of recurrent layers in slots: whatever texts do, each is continued as if it were alone."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from trellm import Beam, Engine, Generator, ModelError, OptionError, Sample, generate, models

from ..support import BlockPool, BlockTable, Chunk
from .recurrent_architectures import CONFIGS, build
from .support import BodyRunner, Way
from .test_blocks import last_states

SLOTS = 10
ONE_BY_ONE = {"mamba", "falcon_mamba", "jamba", "zamba", "recurrent_gemma"}
"""Whose scan, or convolution, goes on from a state with a single token only."""
PROMPTS = ["the 12th", "x", "an inning then on", "on the other one in the thin ninth", "12345", "then"]
STATES = ["mamba", "mamba2", "qwen3_next", "lfm2", "falcon_h1", "recurrent_gemma", "minimax", "zamba", "rwkv"]
"""Each way in which states are kept and advanced."""


class History:
    """Texts that come, fork and go in a pool; a state that nobody has is filled with NaN."""

    def __init__(self, model: Any, seed: int) -> None:
        self.model = model
        self.pick = random.Random(seed)
        self.pool = BlockPool(60, model.window, SLOTS)
        self.memory: Any = model.make_memory(60)
        self.tables: list[BlockTable] = []
        self.seen: list[tuple[torch.Tensor, list[int]]] = []

    def drop(self) -> None:
        assert self.pool.slots is not None
        self.pool.release(self.tables.pop(self.pick.randrange(len(self.tables))))
        for slot in self.pool.slots._free:
            for stored in self.memory._stored.values():
                if slot < len(stored):
                    stored[slot] = torch.nan

    def read(self) -> None:
        """Some texts read something."""
        chunks: list[Chunk] = []
        for table in [each for each in self.tables if len(each.tokens) < 60 and self.pick.random() < 0.9]:
            longest = self.pick.choice([1, 1, 1, 6, 30])
            tokens = [self.pick.randrange(100) for _ in range(self.pick.randint(1, longest))]
            self.pool.reserve(table, tokens)
            chunks.append(Chunk(table, tokens))
        self.pick.shuffle(chunks)
        if not chunks:
            return
        self.memory.copy(self.pool.copies)
        assert self.pool.slots is not None
        if self.pool.slots.copies:
            self.memory.copy_states(self.pool.slots.copies)
        self.pool.copies, self.pool.slots.copies = [], []
        states = self.model.forward(chunks, self.memory)
        for (table, tokens), state in zip(chunks, states, strict=True):
            table.tokens += tokens
            self.pool.trim(table)
            self.seen.append((state, list(table.tokens)))
        self.pool.check(self.tables)

    def run(self) -> None:
        for _ in range(12):
            begun = [table for table in self.tables if table.tokens]
            if begun and self.pick.random() < 0.4:
                self.tables.append(self.pool.fork(self.pick.choice(begun)))
            if len(self.tables) > 6 or (self.tables and self.pick.random() < 0.2):
                self.drop()
            if len(self.tables) < 2 or self.pick.random() < 0.4:
                self.tables.append(self.pool.table())
            self.read()


def assert_seen_is_right(history: History, network: Any) -> None:
    """Each state is that of its text alone."""
    expected = last_states(network, [text for _, text in history.seen])
    for (state, _), alone in zip(history.seen, expected, strict=True):
        assert_near(state, alone)


def assert_near(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Scans and norms are computed in float32."""
    assert (found - expected).norm() <= 5e-4 * expected.norm()


@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_any_history_of_texts_gives_what_the_text_alone_does(name: str, tokenizer: Any) -> None:
    network = build(name, torch.float64)
    model = models.transformers(network, tokenizer)
    assert isinstance(model._runner, BodyRunner) and model.state_bytes > 0
    assert model._way == Way("states", continues=name not in ONE_BY_ONE, alone=name == "rwkv")
    attends = any(kind.reach is not None for kind in model._kinds)
    assert (model.block_bytes > 0) == attends
    history = History(model, 1)
    history.run()
    assert len(history.seen) > 20
    assert_seen_is_right(history, network)
    assert history.memory.state_bytes == model.state_bytes


@pytest.mark.parametrize("name", ["qwen3_next", "zamba", "falcon_h1", "kimi_linear", "recurrent_gemma"])
@torch.inference_mode()
def test_attention_of_their_own_needs_texts_that_are_as_long(name: str, tokenizer: Any) -> None:
    """Where attention cannot be ours, its keys and values are in blocks all the same."""
    network = build(name, torch.float64)
    model = models.transformers(network, tokenizer)
    model._runner = model._make_runner(replace(model._way, blocks=False))
    history = History(model, 3)
    history.run()
    assert_seen_is_right(history, network)


def expected(network: Any, tokenizer: Any, prompts: Sequence[str], count: int) -> list[list[int]]:
    outputs: list[list[int]] = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt)])
        out = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=count, do_sample=False)
        new = out[0, ids.shape[1] :].tolist()
        outputs.append(new[: new.index(1)] if 1 in new else new)
    return outputs


@pytest.mark.parametrize("name", CONFIGS)
def test_greedy_search_equals_transformers(name: str, tokenizer: Any) -> None:
    """Prompts of several lengths in one batch of three, so that some join where others are under way."""
    network = build(name, torch.float64)
    generator = generate.text(models.transformers(network, tokenizer))
    found = generator.run(PROMPTS, max_tokens=8, heal=False, batch_size=3)
    assert [list(result.token_ids) for result in found] == expected(network, tokenizer, PROMPTS, 8)


@pytest.mark.parametrize("name", CONFIGS)
def test_beams_equal_those_without_a_cache(name: str, tokenizer: Any) -> None:
    network = build(name, torch.float64)
    options: dict[str, Any] = {"search": Beam(3, n=2), "max_tokens": 6, "heal": False}
    cached, plain = (
        generate.text(models.transformers(network, tokenizer, cache=cache)).run(PROMPTS[:2], **options)
        for cache in (True, False)
    )
    for mine, other in zip(cached, plain, strict=True):
        assert [each.token_ids for each in mine] == [each.token_ids for each in other]


@pytest.mark.parametrize("name", STATES)
def test_texts_that_give_their_memory_up_go_on_with_the_same_tokens(
    name: str, tokenizer: Any, given_up: list[Any]
) -> None:
    network = build(name, torch.float64)
    model = models.transformers(network, tokenizer)
    options: dict[str, Any] = {"max_tokens": 24, "min_tokens": 24, "heal": False}
    undisturbed = [each.token_ids for each in generate.text(model).run(PROMPTS, **options)]
    Engine.of(model).close()
    # Half of the memory is for states: 5 texts at most, and blocks for about two of them to the end.
    memory = 2 * max(5 * model.state_bytes, 11 * model.block_bytes) if model.block_bytes else 3 * model.state_bytes
    with Engine(model, memory=memory, chunk=16) as engine:
        engine._loop._pool.count = min(engine._loop._pool.count, 11)
        engine._loop._blocks = engine._loop._pool.count
        assert [each.token_ids for each in generate.text(model).run(PROMPTS, **options)] == undisturbed
        assert engine.held_bytes == 0
    assert given_up or not model.block_bytes or model.window, "blocks are short, unless few are looked at"


@pytest.mark.parametrize("name", STATES)
def test_samples_begin_with_one_state_and_a_request_that_fails_leaves_the_others_theirs(
    name: str, tokenizer: Any
) -> None:
    model = models.transformers(build(name, torch.float64), tokenizer)
    generator = generate.text(model)
    options: dict[str, Any] = {"search": Sample(n=4, temperature=2.0), "seed": 5, "max_tokens": 9, "heal": False}
    together = generator.run(PROMPTS[3], **options)
    plain = generate.text(models.transformers(model.model, tokenizer, cache=False)).run(PROMPTS[3], **options)
    assert [each.token_ids for each in together] == [each.token_ids for each in plain]
    assert len({each.token_ids for each in together}) > 1

    class BrokenGuide:
        """Any text, but for one that comes to three tokens."""

        vocabulary = model.vocabulary
        start = 0
        goals = None

        def mask(self, state: int, limit: float = float("inf")) -> Any:
            return np.full((128 + 31) // 32, 0x7FFFFFFC, np.uint32)

        def advance(self, state: int, token: int) -> int:
            if state == 2:
                raise ModelError("broken")
            return state + 1

        def is_accepting(self, state: int) -> bool:
            return True

        def distance(self, state: int) -> float:
            return 0

        def forced(self, state: int) -> int:
            return -1

    engine = Engine.of(model)
    plain_options: dict[str, Any] = {"max_tokens": 12, "min_tokens": 12, "heal": False}
    alone = [generator.run(prompt, **plain_options).token_ids for prompt in PROMPTS[:3]]
    good = engine.submit(generator, PROMPTS[:3], **plain_options)
    bad = engine.submit(Generator(model, BrokenGuide()), PROMPTS[0], max_tokens=12, heal=False)
    with pytest.raises(ModelError, match="broken"):
        bad.result()
    assert [each.token_ids for each in good.result()] == alone
    assert engine.held_bytes == 0


def test_a_state_that_goes_on_otherwise_is_refused(tokenizer: Any) -> None:
    """transformers leaves the least time step of Zamba2 out where it reads single tokens."""
    config: Any = CONFIGS["zamba2"]()
    config.time_step_min = 0.7
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    with pytest.raises(OptionError, match=r"other logits than without a cache.*cache=False"):
        models.transformers(network, tokenizer)
    found = generate.text(models.transformers(network, tokenizer, cache=False)).run("the", max_tokens=4, heal=False)
    ids = torch.tensor([tokenizer.encode("the")])
    with torch.inference_mode():
        for token in found.token_ids:
            assert token == int(network(ids, use_cache=False).logits[0, -1].argmax())
            ids = torch.cat([ids, torch.tensor([[token]])], 1)


def test_the_model_is_as_it_was(tokenizer: Any) -> None:
    """States that architectures keep in their modules are there during a pass only."""
    network = build("recurrent_gemma")
    block = network.model.layers[0].temporal_block
    model = models.transformers(network, tokenizer)
    block.conv1d_state, before = torch.ones(1), block.rg_lru.recurrent_states
    mine = block.conv1d_state
    assert generate.text(model)("the", max_tokens=3, min_tokens=3)
    assert block.conv1d_state is mine and block.rg_lru.recurrent_states is before


def test_memory_without_room_for_states_is_refused(tokenizer: Any) -> None:
    for name in ("mamba2", "bamba"):
        model = models.transformers(build(name), tokenizer)
        with pytest.raises(
            OptionError, match=f"too small for the state of one sequence, which takes {model.state_bytes} bytes"
        ):
            Engine(model, memory=model.state_bytes - 1)
        with Engine(model, memory=model.state_bytes * 4 + model.block_bytes * 9) as engine:
            with pytest.raises(OptionError, match=r"5 beams take .* for their states"):
                generate.text(model)("the", search=Beam(5), max_tokens=3)
            assert generate.text(model)("the", search=Beam(2), max_tokens=3) is not None
            assert engine.held_bytes == 0


@torch.inference_mode()
def test_scans_are_about_as_long_as_what_is_read(tokenizer: Any) -> None:
    """Chunks of 256 would fill up every prompt; between two passes the modules are their owner's."""
    torch.manual_seed(1)
    config = transformers.Mamba2Config(
        hidden_size=32, num_hidden_layers=2, state_size=8, num_heads=8, head_dim=8, n_groups=2, vocab_size=128,
        initializer_range=0.3,
    )  # fmt: skip
    network = transformers.Mamba2ForCausalLM(config).eval().double()
    model = models.transformers(network, tokenizer)
    seen: set[tuple[int, int]] = set()
    mixers = [layer.mixer for layer in network.backbone.layers]

    def note(module: Any, given: Any, named: Any) -> None:
        hidden = given[0] if given else named["hidden_states"]
        seen.add((hidden.shape[1], module.chunk_size))

    hooks = [mixer.register_forward_pre_hook(note, with_kwargs=True) for mixer in mixers]
    history = History(model, 2)
    history.run()
    for hook in hooks:
        hook.remove()
    assert seen == {(width, 256 if width == 1 else 16 if width <= 16 else 32) for width, _ in seen}
    assert {size for _, size in seen} == {256, 16, 32} and [mixer.chunk_size for mixer in mixers] == [256, 256]
    assert_seen_is_right(history, network)


def test_modules_that_scan_are_as_they_were_after_an_error(tokenizer: Any) -> None:
    network = build("mamba2")
    mixer = network.backbone.layers[0].mixer
    mixer.chunk_size = 64
    model = models.transformers(network, tokenizer)

    def broken(*given: Any, **named: Any) -> None:
        assert mixer.chunk_size == 16
        raise ValueError("broken")

    mixer.forward = broken
    table = BlockTable()
    table.slot = 0
    with pytest.raises(ValueError, match="broken"):
        model.forward([Chunk(table, [5, 6, 7])], model.make_memory(1))
    assert mixer.chunk_size == 64
