"""Keys and values in blocks: whatever texts do, each is continued as if it were alone."""

from __future__ import annotations

import copy
import random
import sys
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from transformers.cache_utils import CacheLayerMixin
from trellm import generate, models

from ...thresholds import thresholds
from ..support import BLOCK, FREED, BlockTable, Chunk
from .architectures import CONFIGS, FEW, LATENT, NAMES, build
from .support import BlockStorage, BodyRunner, PackedRunner, SourceLayer, Way, body

ROWS = {"bloom": "aligned", "gpt_neo": "aligned", "mpt": "aligned", "gptj": "padded", "falcon": "padded"}
# Where a layer computes in float32 whatever the model's type is.
NOT_EXACT = {"gemma2", "gpt_oss", "llama4", "deepseek_v2", "deepseek_v3", "bloom", "gpt_neo", "gptj", "mpt"}


def _nothing(stored: torch.Tensor) -> float:
    """NaN, of which in int8 the bytes of a scale are made."""
    return torch.nan if stored.is_floating_point() else -1


class Blocks:
    """Blocks handed out in random order; those that come back are filled with NaN."""

    def __init__(self, model: Any, count: int, pick: random.Random) -> None:
        self.memory: Any = model.make_memory(count)
        self.window = model.window
        self.free = list(range(count))
        pick.shuffle(self.free)
        self.uses = dict.fromkeys(range(count), 0)

    def take(self) -> int:
        block = self.free.pop(0)
        self.uses[block] = 1
        return block

    def leave(self, block: int) -> None:
        if block == FREED:
            return
        self.uses[block] -= 1
        if not self.uses[block]:
            self.free.append(block)
            for layer in self.memory.layers:
                if layer.keys.numel():
                    layer.keys[block] = _nothing(layer.keys)
                    layer.values[block] = _nothing(layer.values)

    def grow(self, table: BlockTable, tokens: int) -> None:
        while len(table.blocks) * BLOCK < len(table.tokens) + tokens:
            table.blocks.append(self.take())

    def share(self, parent: BlockTable, tokens: list[int]) -> BlockTable:
        """A table that begins with these tokens of its parent; a block that is not full is copied."""
        table = BlockTable(parent.source)
        table.tokens = tokens
        table.blocks = parent.blocks[: (len(tokens) + BLOCK - 1) // BLOCK]
        if len(tokens) % BLOCK:
            own = self.take()
            self.memory.copy([(table.blocks[-1], own)])
            table.blocks[-1] = own
        for block in table.blocks[: len(tokens) // BLOCK]:
            if block != FREED:
                self.uses[block] += 1
        return table

    def drop(self, table: BlockTable) -> None:
        for block in table.blocks:
            self.leave(block)

    def forget(self, table: BlockTable) -> None:
        """Give up what no layer looks at any more."""
        if self.window is not None:
            for number in range(max(0, len(table.tokens) - self.window + 1) // BLOCK):
                self.leave(table.blocks[number])
                table.blocks[number] = FREED


def random_history(model: Any, seed: int, steps: int = 14) -> list[tuple[torch.Tensor, torch.Tensor, list[int]]]:
    """Texts come, fork, share beginnings and leave; (state, logits, text) of every chunk that is read."""
    pick = random.Random(seed)
    blocks = Blocks(model, 60, pick)
    tables: list[BlockTable] = []
    seen: list[tuple[torch.Tensor, torch.Tensor, list[int]]] = []

    def words(longest: int) -> list[int]:
        return [pick.randrange(100) for _ in range(pick.randint(1, longest))]

    for _ in range(steps):
        if tables and pick.random() < 0.3:
            parent = pick.choice(tables)
            tables.append(blocks.share(parent, list(parent.tokens)))
        if len(tables) > 6 or (tables and pick.random() < 0.2):
            blocks.drop(tables.pop(pick.randrange(len(tables))))
        if len(tables) < 2 or pick.random() < 0.4:
            tables.append(BlockTable())
        chunks: list[Chunk] = []
        for table in [table for table in tables if len(table.tokens) < 60 and pick.random() < 0.9]:
            tokens = words(pick.choice([1, 1, 6, 50]))
            blocks.grow(table, len(tokens))
            chunks.append(Chunk(table, tokens))
        pick.shuffle(chunks)
        long = [chunk for chunk in chunks if len(chunk.tokens) > BLOCK and not chunk.table.tokens]
        if long:  # another text begins with what this call only reads now
            table = blocks.share(long[0].table, list(long[0].tokens[:BLOCK]))
            blocks.grow(table, 20)
            chunks.append(Chunk(table, words(20)))
            tables.append(table)
        if not chunks:
            continue
        states = model.forward(chunks, blocks.memory)
        logits = model.logits(states, range(len(chunks)), None)
        for (table, tokens), state, row in zip(chunks, states, logits, strict=True):
            table.tokens.extend(tokens)
            blocks.forget(table)
            seen.append((state, row, list(table.tokens)))
    return seen


def last_states(network: Any, texts: Sequence[list[int]]) -> list[torch.Tensor]:
    """Outputs of the model for each text alone, without a cache; one pass tells those of all beginnings of a text."""
    body = network.model if network.base_model is network else network.base_model
    passes: list[tuple[list[int], torch.Tensor]] = []
    for text in sorted(texts, key=len, reverse=True):
        if not any(other[: len(text)] == text for other, _ in passes):
            passes.append((text, body(torch.tensor([text]), use_cache=False).last_hidden_state[0]))
    return [next(states[len(text) - 1] for other, states in passes if other[: len(text)] == text) for text in texts]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CONFIGS)
@torch.inference_mode()
def test_any_history_of_texts_gives_what_the_text_alone_does(name: str, dtype: torch.dtype, tokenizer: Any) -> None:
    network = build(name, dtype)
    model = models.transformers(network, tokenizer)
    assert isinstance(model._runner, BodyRunner if name in ROWS else PackedRunner)
    assert model._way == Way(ROWS.get(name, "packed"))  # type: ignore[arg-type]
    # Angles are float32 throughout, and another device's cosines may differ in their last bit.
    exact = 1e-9 if model.device.type == "cpu" else 1e-4
    tolerance = 1e-3 if dtype == torch.float32 else 1e-4 if name in NOT_EXACT else exact
    for seed in (0,) if dtype == torch.float32 else (1, 2):
        seen = random_history(model, seed)
        assert len(seen) > 20
        for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
            torch.testing.assert_close(state.cpu(), expected, rtol=tolerance, atol=tolerance)
        _, logits, text = seen[-1]
        expected = network(torch.tensor([text]), use_cache=False).logits[0, -1].float()
        torch.testing.assert_close(logits.cpu(), expected.cpu(), rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_rows_of_equal_lengths(tokenizer: Any) -> None:
    """What is left for models that can be shown no padding at all."""
    network = build("bloom")
    model = models.transformers(network, tokenizer)
    model._runner = model._make_runner(Way("equal"))
    seen = random_history(model, 1)
    for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
        torch.testing.assert_close(state.cpu(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "deepseek_v3", "gptj", "bloom"])
@torch.inference_mode()
def test_half_precision_is_near(name: str, tokenizer: Any) -> None:
    network = build(name, torch.bfloat16)
    model = models.transformers(network, tokenizer)
    for _, logits, text in random_history(model, 5):
        expected = network(torch.tensor([text]), use_cache=False).logits[0, -1].float()
        assert (logits.cpu() - expected).abs().max() < 0.08 * expected.abs().max()


@pytest.mark.parametrize("name", ["llama", "mistral", "gemma2", "gpt_oss", "llama4"])
@torch.inference_mode()
def test_long_chunks_are_read_in_tiles(name: str, tokenizer: Any, monkeypatch: Any) -> None:
    """By torch, as types are that kernels for the CPU do not read."""
    thresholds(monkeypatch, attention_tile=9)
    for module in ("blocks.storage", "packed.host"):
        monkeypatch.setattr(f"trellm.engine.models.{module}.IN_PLACE", set())
    network = build(name)
    model = models.transformers(network, tokenizer)
    seen = random_history(model, 3)
    for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
        torch.testing.assert_close(state.cpu(), expected, rtol=1e-3, atol=1e-3)


@torch.inference_mode()
def test_several_threads_share_the_rows(tokenizer: Any, use_threads: Any, monkeypatch: Any) -> None:
    model = models.transformers(build("gemma2"), tokenizer)
    alone = random_history(model, 4)
    thresholds(monkeypatch, attention_worth_threads=8, attention_of_many_tokens=8)
    use_threads(3)
    for (state, _, _), (other, _, _) in zip(random_history(model, 4), alone, strict=True):
        assert torch.equal(state, other)


def test_the_model_is_as_it_was(tokenizer: Any) -> None:
    network = build("gemma3")
    before = network.config._attn_implementation
    model = models.transformers(network, tokenizer)
    table = BlockTable()
    table.blocks.append(0)
    model.model.lm_head.register_forward_hook(lambda *_: None)
    hook = model.model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with torch.inference_mode(), pytest.raises(ZeroDivisionError):
        model.forward([Chunk(table, [1])], model.make_memory(1))
    hook.remove()
    assert network.config._attn_implementation == before
    assert network.config.get_text_config()._attn_implementation == before


def test_what_a_model_says_of_its_memory(tokenizer: Any) -> None:
    llama, mistral, gemma, whole = (
        models.transformers(build(name), tokenizer, cache=name != "gpt2")
        for name in ("llama", "mistral", "gemma2", "gpt2")
    )
    assert (llama.window, mistral.window, gemma.window, whole.window) == (None, 7, None, None)
    assert llama.block_bytes == 2 * 2 * 2 * 8 * BLOCK * 4 and whole.block_bytes == 0
    memory = llama.make_memory(50)
    assert isinstance(memory, BlockStorage)
    with torch.inference_mode():
        table = BlockTable()
        table.blocks.append(7)
        llama.forward([Chunk(table, [1, 2])], memory)
    assert memory.bytes == 50 * llama.block_bytes
    whole.make_memory(5).copy([(0, 1)])


@torch.inference_mode()
def test_blocks_are_copied_all_at_once(tokenizer: Any) -> None:
    model = models.transformers(build("llama"), tokenizer)
    memory: Any = model.make_memory(4)
    memory.copy([(0, 1)])  # nothing is there yet
    table = BlockTable()
    table.blocks.extend([0, 1])
    model.forward([Chunk(table, list(range(20)))], memory)
    layer = memory.layers[1]
    before = layer.keys.clone()
    memory.copy([(0, 1), (1, 2), (1, 3)])
    assert torch.equal(layer.keys, before[[0, 0, 1, 1]])


def test_rotary_scaling_by_length_ends_the_context(tokenizer: Any) -> None:
    """Past that length other rows, or other tokens of the same, would have to be scaled otherwise."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    rope = {"rope_type": "longrope", "rope_theta": 10_000.0, "original_max_position_embeddings": 48, **factors}
    network = transformers.AutoModelForCausalLM.from_config(
        transformers.Phi3Config(**FEW, rope_parameters=rope, original_max_position_embeddings=48, **NAMES)
    ).eval()
    model = models.transformers(network, tokenizer)
    assert model.context == 48
    dynamic = {"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}
    scaled = transformers.LlamaConfig(**FEW, rope_parameters=dynamic, **NAMES)
    other = models.transformers(transformers.AutoModelForCausalLM.from_config(scaled).eval(), tokenizer)
    assert other.context == FEW["max_position_embeddings"]
    table, short = BlockTable(), BlockTable()
    table.blocks.extend([2, 0, 1])
    short.blocks.append(3)
    with torch.inference_mode():
        text = [5, 9, *range(46)]
        states = model.forward([Chunk(table, text), Chunk(short, text[:9])], model.make_memory(4))
        for state, ids in zip(states, (text, text[:9]), strict=True):  # each in a pass of its own: they scale otherwise
            torch.testing.assert_close(state.cpu(), last_states(network, [ids])[0], rtol=1e-3, atol=1e-3)


def test_attention_that_chooses_tokens_is_run_one_by_one_without_a_cache(tokenizer: Any) -> None:
    latent = {**LATENT, "q_lora_rank": 8, "head_dim": 4}
    config = transformers.DeepseekV32Config(**latent, index_topk=3, index_n_heads=2, index_head_dim=8, **NAMES)
    torch.manual_seed(1)
    network = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="eager").eval()
    model = models.transformers(network, tokenizer, cache=False)
    texts = [list(range(5, 5 + count)) for count in (3, 11, 7)]
    with torch.inference_mode():
        states = model.forward([Chunk(BlockTable(), text) for text in texts], model.make_memory(1))
        logits = model.logits(states, [0, 1, 2], None)
        for row, text in zip(logits, texts, strict=True):
            expected = network(torch.tensor([text]), use_cache=False).logits[0, -1]
            torch.testing.assert_close(row.cpu(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["llama", "gemma2"])
@torch.inference_mode()
def test_logits_of_few_tokens_are_those_of_all(name: str, tokenizer: Any) -> None:
    model = models.transformers(build(name), tokenizer)
    tables = [BlockTable(), BlockTable()]
    for number, table in enumerate(tables):
        table.blocks.append(number)
    chunks = [Chunk(tables[0], [5, 6, 7]), Chunk(tables[1], [8])]
    hidden = model.forward(chunks, model.make_memory(2))
    ids = torch.tensor([3, 50, 99], device=model.device)
    everything = model.logits(hidden, [1, 0], None)
    torch.testing.assert_close(model.logits(hidden, [1, 0], ids), everything[:, ids])
    torch.testing.assert_close(model.logits(hidden, [0], None), everything[1:])


def test_an_interrupt_at_any_line_leaves_the_model_its_attention(tokenizer: Any) -> None:
    network = build("llama")
    model = models.transformers(network, tokenizer)
    network = model.model
    model._runner = model._make_runner(Way("packed"))
    before = network.config._attn_implementation

    def read(line: int) -> bool:
        """Read a text, with an interrupt at one line; whether there are so many."""
        seen = 0

        def within(frame: Any, event: str, argument: Any) -> Any:
            nonlocal seen
            seen += event == "line"
            if seen == line:
                sys.settrace(None)
                raise KeyboardInterrupt
            return within

        table = BlockTable()
        table.blocks.append(0)
        names = ("read", "run", "_states", "_restore")
        codes = {getattr(PackedRunner, each).__code__ for each in names}
        memory = model.make_memory(1)
        traced = sys.gettrace()
        sys.settrace(lambda frame, event, argument: within if frame.f_code in codes else None)
        try:
            with torch.inference_mode():
                model.forward([Chunk(table, [1, 2, 3])], memory)
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(traced)
        return False

    line = 1
    while read(line):
        assert network.config._attn_implementation == before, line
        line += 1
    assert line > 15


def test_a_copied_model_reads_as_the_first(tokenizer: Any) -> None:
    model = models.transformers(build("llama"), tokenizer)
    twin = copy.deepcopy(model)
    found = [generate.text(each)("a", max_tokens=5, min_tokens=5) for each in (model, twin)]
    assert found[0] == found[1]
    assert isinstance(twin._runner, PackedRunner) and twin._runner._lock is not model._runner._lock
    assert twin._runner._configs[0] is vars(twin.model.config)


@pytest.mark.parametrize("layer", [SourceLayer, body._BlockLayer])
def test_a_layer_is_what_any_release_of_transformers_5_calls_one(layer: type[CacheLayerMixin]) -> None:
    """Abstract there: a layer without the older name cannot be made up to 5.9, one without the newer from 5.14 on."""

    class Older(CacheLayerMixin):
        get_max_cache_shape = abstractmethod(lambda self: 0)

    class Newer(CacheLayerMixin):
        get_max_length = abstractmethod(lambda self: 0)

    for release in (Older, Newer):
        assert not type("Layer", (layer, release), {}).__abstractmethods__
