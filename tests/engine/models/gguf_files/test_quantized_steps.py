"""Steps of sequences with quantized weights: the same states in any company and on any number of threads."""

from __future__ import annotations

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Greedy, Sample, generate, models

from ....thresholds import thresholds
from ..support import GGUFNetwork, PackedRunner, QuantizedKernels, load_gguf, threads
from ..test_blocks import random_history
from .tiny import network_of, write_model

pytest.importorskip("gguf")

PROMPTS = ["the 12th on", "true", '{"a": 1, "b"', "one two three four five six"]


def model_of(folder: Path, kind: str = "llama", form: str = "Q8_0", **options: Any) -> Any:
    path = folder / "m.gguf"
    write_model(path, kind, network_of(kind, 3), form)
    model = models.gguf(path, **options)
    assert isinstance(model._runner, PackedRunner)
    assert model._runner.described is not None and type(model._runner.described.kernels) is QuantizedKernels
    return model


def use_threads(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Let steps have so many threads, however small they are and however few cores there are."""
    threads._team.cache_clear()
    for owner, name in ((threads.os, "cpu_count"), (threads, "_core_count"), (torch, "get_num_threads")):
        monkeypatch.setattr(owner, name, lambda: count)
    thresholds(monkeypatch, quantized_work_worth_threads=1)


@pytest.mark.parametrize("form", ["Q8_0", "Q4_1", "BF16"])
@pytest.mark.parametrize("kind", ["llama", "llama3", "qwen2", "qwen3"])
def test_steps_are_what_the_modules_compute(kind: str, form: str, tmp_path: Path) -> None:
    """Roundings of states to 8 bits magnify the last bits of norms, which differ."""
    model = model_of(tmp_path, kind, form)
    with torch.inference_mode():
        for _, found, text in random_history(model, 1):
            expected = model.model(torch.tensor([text])).logits[0, -1]
            assert (found - expected).abs().mean() < 0.03 * expected.std()


@pytest.mark.parametrize("form", ["Q4_1", "F16"])
@pytest.mark.parametrize("at_once", [None, 5])
@pytest.mark.parametrize("much", [None, 1])
def test_threads_change_no_bit(
    much: int | None, at_once: int | None, form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one call or in one for each layer, and however many tokens are multiplied together."""
    model, found = model_of(tmp_path, "qwen2", form), list[Any]()
    for count in (1, 2, 3):
        use_threads(monkeypatch, count)
        if count > 1:
            thresholds(monkeypatch, quantized_call_for_all_layers=much, quantized_tokens_at_once=at_once)
        with torch.inference_mode():
            found.append([(state, logits) for state, logits, _ in random_history(model, 2)])
    assert len(found[0]) > 20
    for other in found[1:]:
        for one, two in zip(found[0], other, strict=True):
            assert torch.equal(one[0], two[0]) and torch.equal(one[1], two[1])


@pytest.mark.parametrize("form", ["F16", "Q4_1"])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_a_text_read_in_parts_is_that_read_at_once(kind: str, form: str, tmp_path: Path) -> None:
    """Its first blocks may lie in the cache, and the last tokens come alone: no bit changes."""
    model = model_of(tmp_path, kind, form)
    generator = generate.text(model)
    options: Any = {"search": Greedy(), "max_tokens": 6, "heal": False, "logprobs": True}
    for length in (17, 20, 33, 100):
        ids = [7 * place % 250 for place in range(length)]
        first, second = (generator.run(ids, **options) for _ in range(2))
        assert first.token_ids == second.token_ids and first.logprobs == second.logprobs


@pytest.mark.parametrize("form", ["F16", "BF16"])
@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_floats_of_16_bits_are_read_as_the_same_in_float32(kind: str, form: str, tmp_path: Path) -> None:
    """To the last bit: they are widened as they are read. The network has the numbers of the file that was written."""
    network, found = network_of(kind, 3), list[Any]()
    for own in (form, "F32"):
        write_model(tmp_path / f"{own}.gguf", kind, network, own)
        with torch.inference_mode():
            found.append(list(random_history(models.gguf(tmp_path / f"{own}.gguf"), 2)))
    for (states, logits, _), (others, others_logits, _) in zip(*found, strict=True):
        assert torch.equal(states, others) and torch.equal(logits, others_logits)


def test_products_of_several_kinds_are_read_together(tmp_path: Path) -> None:
    """In one step, as llama.cpp's files have some products in more bits than others."""
    path, network = tmp_path / "m.gguf", network_of("llama", 3)
    plain = {f"blk.{layer}.ffn_down.weight": network.model.layers[layer].mlp.down_proj.weight for layer in range(2)}
    write_model(path, "llama", network, "Q8_0", tensors={name: each.detach().numpy() for name, each in plain.items()})
    model: Any = models.gguf(path)
    assert isinstance(model.model, GGUFNetwork)
    first = model.model.weights.layers[0]
    assert {matrix.kind for matrix in first.up.matrices} == {"Q8_0"} and first.down.matrices[0].kind == "F32"
    with torch.inference_mode():
        for _, found, text in random_history(model, 1):
            expected = model.model(torch.tensor([text])).logits[0, -1]
            assert (found - expected).abs().mean() < 0.03 * expected.std()


def test_company_changes_no_token(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    for generator in (generate.text(model), generate.regex(model, r"[a-z]+ \d{3}( [a-z]+)*")):
        options: Any = {"max_tokens": 20, "min_tokens": 5, "seed": 4, "heal": False}
        for search in (Greedy(), Sample(temperature=0.8)):
            together = [each.token_ids for each in generator.run(PROMPTS, search=search, **options)]
            assert together == [
                generator.run(PROMPTS, search=search, batch_size=1, **options)[number].token_ids
                for number in range(len(PROMPTS))
            ]


def test_some_rows_of_the_head_are_those_of_all(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    states = torch.randn(3, model.model.config.hidden_size)
    transformers_model = model.logits(states, range(3), None)
    ids = torch.tensor([200, 3, 0, 77])
    assert torch.equal(model.logits(states, range(3), ids), transformers_model[:, ids])
    several = [torch.tensor([5, 1]), torch.tensor([9]), torch.tensor([255, 0, 31])]
    listed = model.logits_listed(states, [2, 0, 1], several)
    assert listed is not None
    for row, place, own in zip(listed, (2, 0, 1), several, strict=True):
        assert torch.equal(row[: len(own)], transformers_model[place, own])


def test_a_copy_shares_the_mapped_weights(tmp_path: Path) -> None:
    model = model_of(tmp_path)
    twin = copy.deepcopy(model)
    assert twin.model.lm_head.matrix is model.model.lm_head.matrix
    for other in (twin, pickle.loads(pickle.dumps(model))):
        found = [generate.text(each).run("the", max_tokens=9, search=Greedy()).token_ids for each in (model, other)]
        assert found[0] == found[1]


def test_models_in_several_threads_of_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps whose threads wait for one another run one after the other."""
    use_threads(monkeypatch, 3)
    model, found = model_of(tmp_path), dict[int, Any]()
    generator = generate.text(model)
    alone = [generator.run(prompt, max_tokens=12, search=Greedy()).token_ids for prompt in PROMPTS]

    def work(number: int) -> None:
        own = generate.text(copy.deepcopy(model))
        found[number] = [own.run(prompt, max_tokens=12, search=Greedy()).token_ids for prompt in PROMPTS]

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert found == dict.fromkeys(range(4), alone)


def test_a_share_that_fails_lets_the_others_end(monkeypatch: pytest.MonkeyPatch) -> None:
    use_threads(monkeypatch, 3)
    given_up, ended = threading.Event(), list[int]()

    def share(number: int) -> None:
        if number == 0:
            raise KeyboardInterrupt
        given_up.wait()
        ended.append(number)

    with pytest.raises(KeyboardInterrupt):
        threads.run_together(share, 3, given_up.set)
    assert sorted(ended) == [1, 2]
    threads.run_together(ended.append, 3)
    assert sorted(ended) == [0, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["llama", "llama-linear", "llama3", "qwen2", "qwen2-yarn", "qwen3"])
def test_weights_alone_are_run_as_those_in_modules_are(kind: str, tmp_path: Path) -> None:
    """The same states to the last bit; modules of transformers are made where they are asked for."""
    model = model_of(tmp_path, kind, "Q4_1")
    assert isinstance(model.model, GGUFNetwork) and "whole" not in vars(model.model)
    other = models.transformers(*load_gguf(tmp_path / "m.gguf"))
    with torch.inference_mode():
        for (states, logits, _), (others, others_logits, _) in zip(
            random_history(model, 5), random_history(other, 5), strict=True
        ):
            assert torch.equal(states, others) and torch.equal(logits, others_logits)
    assert (model.block_bytes, model.embedding_size, model.context) == (
        other.block_bytes, other.embedding_size, other.context,
    )  # fmt: skip
    assert type(model.model.transformers_model).__name__ == type(other.model).__name__


@pytest.mark.parametrize("kind", ["gemma2", "phi3"])
def test_other_architectures_are_run_by_modules(kind: str, tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", kind, network_of(kind), "Q8_0")
    model: Any = models.gguf(tmp_path / "m.gguf").model
    assert type(model).__module__.startswith("transformers.")


def test_modules_are_run_where_weights_or_biases_are_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a bias that the description has not, without a cache, and where all is to be verified."""
    path, network = tmp_path / "m.gguf", network_of("llama")
    write_model(path, "llama", network, "Q8_0", tensors={"blk.1.attn_output.bias": np.ones(64, np.float32)})
    assert not isinstance(models.gguf(path).model, GGUFNetwork)
    write_model(path, "llama", network, "Q8_0")
    assert isinstance(models.gguf(path).model, GGUFNetwork)
    assert not isinstance(models.gguf(path, cache=False).model, GGUFNetwork)
    monkeypatch.setenv("TRELLM_VERIFY_MODELS", "1")
    assert not isinstance(models.gguf(path).model, GGUFNetwork)
