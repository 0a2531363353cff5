"""Packed steps on a device: by its kernels, which Triton's interpreter runs where there is none, and of static tensors.

The interpreter has to be chosen before Triton is imported, so these tests are run by themselves with it.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
from trellm import models

from ...thresholds import thresholds
from ..support import BLOCK, BlockTable, Chunk
from .architectures import build
from .support import AttentionSpan, BlockStorage, DeviceRows, DeviceStep, PackedStep, ScoreOptions, attend
from .test_blocks import last_states, random_history

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@pytest.fixture
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU as a device that has kernels, and calls of SDPA for prompts that are not long."""
    if not torch.cuda.is_available():
        for module in ("attention", "step", "storage"):
            monkeypatch.setattr(f"trellm.engine.models.blocks.{module}.has_kernels", lambda _: True)
    thresholds(monkeypatch, tokens_of_a_whole_prompt=30)


@pytest.mark.skipif(not (INTERPRETED or torch.cuda.is_available()), reason="no GPU; TRITON_INTERPRET=1 takes its place")
@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama4", "deepseek_v3"])
@pytest.mark.usefixtures("with_kernels")
@torch.inference_mode()
def test_any_history_of_texts_gives_what_the_text_alone_does(name: str, tokenizer: Any) -> None:
    network = build(name)
    seen = random_history(models.transformers(network, tokenizer), 1, 5)
    for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
        torch.testing.assert_close(state.cpu(), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("reach", [AttentionSpan(), AttentionSpan(window=7), AttentionSpan(chunk=20)])
@pytest.mark.parametrize(
    "scoring", [ScoreOptions(0.3, None, None), ScoreOptions(0.3, 2.0, torch.tensor([0.5, -1.0, 0.0, 2.0]))]
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_step_of_static_tensors(reach: AttentionSpan, scoring: ScoreOptions, dtype: torch.dtype) -> None:
    """Rows of some width or none, tokens without a slot: the same as a step of chunks that has only the others."""
    torch.manual_seed(0)
    chunks: list[Chunk] = []
    for number, (start, width) in enumerate([(0, 1), (40, 3), (25, 30), (0, 20)]):
        table = BlockTable()
        table.tokens = [0] * start
        table.blocks.extend(range(5 * number + 4, 5 * number - 1, -1))
        chunks.append(Chunk(table, [0] * width))
    storages = [BlockStorage(21, 1) for _ in range(2)]
    texts = [torch.randn(21, 2, BLOCK, size, dtype=dtype) for size in (8, 4)]
    step = PackedStep(chunks, storages[0], [reach], torch.device("cpu"))
    count = sum(step.widths)
    queries, keys, values = (torch.randn(count, *shape, dtype=dtype) for shape in ((4, 8), (2, 8), (2, 4)))
    for storage in storages:
        layer = storage.layers[0]
        layer.allocate(keys, values)
        layer.keys.copy_(texts[0])
        layer.values.copy_(texts[1])
    step.write(storages[0].layers[0], keys, values)
    expected = attend(step, storages[0].layers[0], reach, (queries, keys, values), scoring)

    order = [2, None, 0, 3, 1]  # a row of width 0 among the others
    columns = [
        [0 if row is None else column[row] for row in order] for column in (step.firsts, step.widths, step.starts)
    ]
    tables = torch.tensor([[-1] * 5 if row is None else list(chunks[row].table.blocks) for row in order])
    slots = torch.cat([step.places.on(torch.device("cpu")), torch.tensor([-1, -1], dtype=torch.int32)])
    numbers = (torch.tensor(column, dtype=torch.int32) for column in columns)
    static = DeviceStep(storages[1].layers, [reach], DeviceRows(slots, tables.to(torch.int32), *numbers, 200, 64))
    padded = [torch.cat([each, torch.full_like(each[:2], torch.nan)]) for each in (queries, keys, values)]
    static.write(static.layers[0], padded[1], padded[2])
    found = attend(static, static.layers[0], reach, (padded[0], None, None), scoring)[:count]
    np.testing.assert_allclose(
        found.double(), expected.double(), rtol=0, atol=1e-12 if dtype == torch.float64 else 3e-2
    )
    for one, other in zip(
        (static.layers[0].keys, static.layers[0].values),
        (storages[0].layers[0].keys, storages[0].layers[0].values),
        strict=True,
    ):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["gemma2", "gpt_oss", "llama4"])
@torch.inference_mode()
def test_a_model_reads_static_tensors(name: str, tokenizer: Any) -> None:
    """Prompts of two texts, then their next tokens; between them a row that waits, and a token that belongs to none."""
    network = build(name)
    model = models.transformers(network, tokenizer)
    reader: Any = model._runner
    memory: Any = model.make_memory(12)
    texts = [list(range(3, 40)), [7, 8, 9]]
    tables = [BlockTable(), BlockTable()]
    for table, blocks in zip(tables, ([2, 9, 4], [5]), strict=True):
        table.blocks.extend(blocks)
    model.forward([Chunk(*each) for each in zip(tables, texts, strict=True)], memory)
    device = memory.layers[0].keys.device
    slots = [4 * BLOCK + 5, -1, 5 * BLOCK + 3, 5 * BLOCK + 4]
    columns = [[2, 9, 4], [-1, -1, -1], [5, -1, -1]], [0, 0, 2], [1, 0, 2], [37, 0, 3]
    rows = DeviceRows(*(torch.tensor(each, dtype=torch.int32, device=device) for each in (slots, *columns)), 64, 4)
    ids, positions = (torch.tensor(each, device=device) for each in ([41, 0, 42, 43], [37, 0, 3, 4]))
    states = reader.read_static(ids, positions, rows, memory).cpu()
    read = [*texts[0], 41], [*texts[1], 42], [*texts[1], 42, 43]
    for token, expected in zip((0, 2, 3), last_states(network, read), strict=True):
        torch.testing.assert_close(states[token], expected, rtol=1e-3, atol=1e-3)
