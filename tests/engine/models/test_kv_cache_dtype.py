"""Keys and values in float16 and int8 under a model in float32: rounded once, and read so by every token."""

# torch does not say of what its arguments are.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask
from trellm import Beam, Engine, OptionError, generate, models

from ..support import BLOCK, BlockTable, Chunk
from .architectures import build
from .gguf_files.test_quantized_steps import model_of, use_threads
from .recurrent_architectures import build as build_recurrent
from .test_blocks import last_states, random_history

TEXT = [int(token) for token in torch.randint(0, 100, (90,), generator=torch.Generator().manual_seed(3))]
PROMPTS = ["the 12th on", "true", "x", "an 1234567 in the", "the the the the the the"]
KINDS = pytest.mark.parametrize("kind", ["float16", "int8"])
OPTION = {"kv_cache_dtype": "float16"}


def to_halves(stored: Tensor) -> Tensor:
    return stored.half().float()


def to_bytes(stored: Tensor) -> Tensor:
    """Rows of 127 steps up to the largest number of each."""
    step = stored.abs().amax(-1, keepdim=True) / 127
    return torch.where(step > 0, (stored / step).round() * step, 0.0)


NEAR = {"float16": 1e-2, "int8": 5e-2}
ROUNDED = {"float16": to_halves, "int8": to_bytes}


def attend_to(
    kind: str,
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    scaling: float,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of transformers' layers to keys and values that were rounded before."""
    key, value = ROUNDED[kind](key), ROUNDED[kind](value)
    mixed = scaled_dot_product_attention(
        query, key, value, mask, scale=scaling, is_causal=mask is None and query.shape[2] > 1, enable_gqa=True
    )
    return mixed.transpose(1, 2).contiguous(), None


for each in ROUNDED:
    AttentionInterface.register(each, partial(attend_to, each))
    AttentionMaskInterface.register(each, sdpa_mask)


@torch.inference_mode()
def rounded(network: Any, texts: list[list[int]], kind: str) -> list[Tensor]:
    """Outputs of a model of transformers for texts whose keys and values are rounded."""
    before = network.config._attn_implementation
    network.config._attn_implementation = kind
    try:
        return last_states(network, texts)
    finally:
        network.config._attn_implementation = before


@KINDS
@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3", "gpt2", "gemma3", "phi3"])
def test_any_history_of_texts_is_read_from_rounded_keys_and_values(name: str, kind: str, tokenizer: Any) -> None:
    """Whatever is read at once, begins alike, is copied or goes on: far nearer to what transformers rounds than not."""
    network = build(name)
    model = models.transformers(network, tokenizer, kv_cache_dtype=kind)
    with torch.inference_mode():
        seen = random_history(model, 0)
        texts = [text for *_, text in seen]
        plain_states = last_states(network, texts)
    assert len(seen) > 20
    far = beside = 0.0
    for (state, *_), plain, expected in zip(seen, plain_states, rounded(network, texts, kind), strict=True):
        torch.testing.assert_close(state, expected, rtol=NEAR[kind], atol=NEAR[kind])
        far, beside = far + float((state - expected).abs().mean()), beside + float((plain - expected).abs().mean())
    assert far < 0.2 * beside


@torch.inference_mode()
def in_parts(model: Any, text: list[int], width: int) -> Tensor:
    """The last state of a text that is read in parts of so many tokens."""
    table, memory = BlockTable(), model.make_memory(len(text) // BLOCK + 1)
    table.blocks.extend(reversed(range(len(text) // BLOCK + 1)))
    table.slot = 0
    state = torch.empty(0)
    for first in range(0, len(text), width):
        part = text[first : first + width]
        state = model.forward([Chunk(table, part)], memory)
        table.tokens.extend(part)
    return state


@KINDS
@pytest.mark.parametrize("threads", [1, 2])
def test_parts_and_threads_change_no_bit(
    threads: int, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = model_of(tmp_path, kv_cache_dtype=kind)
    whole = in_parts(model, TEXT, len(TEXT))
    use_threads(monkeypatch, threads)
    for width in (1, 7, 32, len(TEXT)):
        assert torch.equal(in_parts(model, TEXT, width), whole)


@KINDS
def test_parts_of_a_text_read_the_same_numbers(kind: str, tokenizer: Any) -> None:
    """Of a model that is not quantized: but for sums in another order, a small part of what rounding makes."""
    network = build("llama")
    plain, narrow = (
        models.transformers(network, tokenizer),
        models.transformers(network, tokenizer, kv_cache_dtype=kind),
    )
    whole = in_parts(narrow, TEXT, len(TEXT))
    far = (whole - in_parts(plain, TEXT, len(TEXT))).abs().mean()
    assert far > 0
    for width in (1, 7, 32):
        assert (in_parts(narrow, TEXT, width) - whole).abs().mean() < 0.1 * far


@KINDS
def test_the_same_tokens_whatever_else_runs(kind: str, tmp_path: Path, given_up: list[Any]) -> None:
    """Alone, together, after a prompt that begins alike, and where memory is short and texts give way."""
    model = model_of(tmp_path, kv_cache_dtype=kind)
    alone = [generate.text(model)(prompt, max_tokens=40, min_tokens=40) for prompt in PROMPTS]
    assert generate.text(model)(PROMPTS, max_tokens=40, min_tokens=40) == alone
    longer = generate.text(model)([prompt + " on" for prompt in PROMPTS], max_tokens=1)
    assert len(longer) == len(PROMPTS)
    assert generate.text(model)(PROMPTS, max_tokens=40, min_tokens=40) == alone
    with Engine(model, memory=9 * model.block_bytes, chunk=16):
        assert generate.text(model)(PROMPTS, max_tokens=40, min_tokens=40) == alone
    assert given_up
    beams: Any = {"search": Beam(3), "max_tokens": 20, "min_tokens": 20}
    assert generate.text(model)(PROMPTS, **beams) == [generate.text(model)(prompt, **beams) for prompt in PROMPTS]


@pytest.mark.parametrize("kind, most", [("float16", 0.01), ("int8", 0.3)])
def test_logits_are_near_those_of_float32(kind: str, most: float, tokenizer: Any) -> None:
    network = build("llama")
    found, expected = (
        model.logits(in_parts(model, TEXT, 32), [0], None)
        for model in (
            models.transformers(network, tokenizer, kv_cache_dtype=kind),
            models.transformers(network, tokenizer),
        )
    )
    assert 0 < (found - expected).abs().max() < most * expected.std()


@KINDS
@pytest.mark.parametrize("name", ["llama", "gemma2", "deepseek_v3"])
def test_blocks_take_less_memory(name: str, kind: str, tokenizer: Any) -> None:
    network = build(name)
    plain, narrow = (
        models.transformers(network, tokenizer),
        models.transformers(network, tokenizer, kv_cache_dtype=kind),
    )
    memory: Any = narrow.make_memory(5)
    with torch.inference_mode():
        table = BlockTable()
        table.blocks.append(2)
        narrow.forward([Chunk(table, [1, 2, 3])], memory)
    assert memory.bytes == 5 * narrow.block_bytes
    assert {layer.keys.dtype for layer in memory.layers} == {getattr(torch, kind)}
    if kind == "float16":
        assert 2 * narrow.block_bytes == plain.block_bytes
    else:  # a byte for each number, and a scale of four for the row of a head, whose numbers are filled up to fours
        rows = [stored[:1, :, :, 0].numel() for layer in memory.layers for stored in (layer.keys, layer.values)]
        filled = narrow.block_bytes - 4 * sum(rows) - plain.block_bytes // 4
        assert 0 <= filled < 4 * sum(rows)


@pytest.mark.parametrize("kind, most", [("float16", 0.01), ("int8", 0.1)])
def test_layers_that_attend_beside_recurrent_ones(kind: str, most: float, tokenizer: Any) -> None:
    network = build_recurrent("qwen3_5")
    plain, narrow = (
        models.transformers(network, tokenizer),
        models.transformers(network, tokenizer, kv_cache_dtype=kind),
    )
    assert 2 * narrow.block_bytes <= plain.block_bytes and narrow.state_bytes == plain.state_bytes
    whole, parts = (in_parts(narrow, TEXT, width) for width in (len(TEXT), 7))
    far = (whole - in_parts(plain, TEXT, len(TEXT))).abs().mean()
    assert 0 < far < most and (parts - whole).abs().mean() < 0.2 * far


def test_what_is_refused(tokenizer: Any) -> None:
    """Each by name, before anything is generated, with what to do."""
    llama = build("llama")
    for name in ("gptj", "bloom"):
        with pytest.raises(OptionError, match=r"kv_cache_dtype='float16': \w+ has attention of its own.*leave"):
            models.transformers(build(name), tokenizer, **OPTION)
    with pytest.raises(OptionError, match="keeps states of a fixed size"):
        models.transformers(build_recurrent("mamba"), tokenizer, **OPTION)
    for dtype, said in (
        (torch.bfloat16, "16 bits; leave"),
        (torch.float16, "16 bits"),
        (torch.float64, "float64 on cpu"),
    ):
        with pytest.raises(OptionError, match=said):
            models.transformers(build("llama", dtype), tokenizer, **OPTION)
    with pytest.raises(OptionError, match="cache=False; leave one of the two"):
        models.transformers(llama, tokenizer, cache=False, **OPTION)
    with pytest.raises(OptionError, match="'int8': LlamaForCausalLM is in bfloat16 on cpu, and the option"):
        models.transformers(build("llama", torch.bfloat16), tokenizer, kv_cache_dtype="int8")
    for value in ("fp8", "float32", None, 16):
        with pytest.raises(OptionError, match=r"kv_cache_dtype=.*: one of 'auto', 'float16', 'int8'"):
            models.transformers(llama, tokenizer, kv_cache_dtype=value)  # type: ignore[arg-type]
    config = transformers.T5Config(vocab_size=128, d_model=16, d_kv=4, d_ff=32, num_layers=1, num_heads=2)
    with pytest.raises(OptionError, match="encoder-decoder model, whose keys and values"):
        models.transformers(transformers.T5ForConditionalGeneration(config), tokenizer, **OPTION)
