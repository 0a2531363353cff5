"""How models are run: by what they are, which gives the logits of the whole text; what is changed is verified."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook
from trellm import OptionError, generate, models

from ...thresholds import thresholds
from ...watching import watched
from ..support import BlockTable, Chunk, DecoderModel
from .architectures import build
from .recurrent_architectures import build as build_recurrent
from .support import WAYS, Way, way_of

BENCHMARKS = Path(__file__).resolve().parents[3] / "benchmarks"
SOME = {"llama": "packed", "gpt2": "packed", "gemma2": "packed", "gptj": "padded", "bloom": "aligned"}
VERIFY = "TRELLM_VERIFY_MODELS"


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[Way]:
    """The ways of which logits are compared."""
    return watched(monkeypatch, DecoderModel, "_matches_logits", lambda self, *_: self._way)


@pytest.mark.parametrize("name", SOME)
def test_known_models_are_not_tried(name: str, tokenizer: Any, compared: list[Way]) -> None:
    model = models.transformers(build(name), tokenizer)
    assert (model._way, compared) == (Way(SOME[name]), [])  # type: ignore[arg-type]
    assert model.block_bytes > 0


@pytest.fixture
def called() -> Iterator[list[type[nn.Module]]]:
    """The classes of modules that are called."""
    found: list[type[nn.Module]] = []
    handle = register_module_forward_pre_hook(lambda module, given: found.append(type(module)))
    yield found
    handle.remove()


@pytest.mark.parametrize("name", ["llama", "mistral", "qwen3", "gpt2"])
def test_described_models_are_what_their_own_code_says(
    name: str, tokenizer: Any, called: list[type[nn.Module]], monkeypatch: pytest.MonkeyPatch
) -> None:
    described = models.transformers(build(name), tokenizer)
    assert not called
    monkeypatch.setenv(VERIFY, "1")
    verified = models.transformers(build(name), tokenizer)
    assert type(verified.model) in called
    for each in ("_way", "embedding_size", "sparse_head_limit", "block_bytes", "context"):
        assert getattr(described, each) == getattr(verified, each)
    one, other = (generate.text(model)("the old", max_tokens=9) for model in (described, verified))
    assert one == other


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_described_body_with_another_head_is_tried(name: str, tokenizer: Any) -> None:
    network = build(name)
    expected = network(torch.tensor([[5, 6, 7]])).logits[0, -1]
    network.lm_head.register_forward_hook(lambda module, given, out: -out)
    model = models.transformers(network, tokenizer)
    table = BlockTable()
    table.blocks.append(0)
    with torch.inference_mode():
        hidden = model.forward([Chunk(table, [5, 6, 7])], model.make_memory(1))
        torch.testing.assert_close(model.logits(hidden, [0], None)[0], -expected, rtol=1e-4, atol=1e-4)
    assert model.embedding_size == 0


def test_logits_are_compared_where_that_is_asked_for(
    tokenizer: Any, compared: list[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = models.transformers(build("gemma2"), tokenizer)
    monkeypatch.setenv(VERIFY, "1")
    model = models.transformers(build("gemma2"), tokenizer)
    assert (model._way, compared) == (plain._way, [plain._way])
    assert model.block_bytes == plain.block_bytes


def test_a_newer_transformers_is_not_trusted(
    tokenizer: Any, compared: list[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    thresholds(monkeypatch, compared_transformers=(5, 0))
    found = models.transformers(build("gptj"), tokenizer)._way  # packed from 5.24 on, padded before
    assert found in (Way("packed"), Way("padded")) and compared[-1] == found


def test_what_is_changed_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    network = build("gemma2")
    assert way_of(network) == Way("packed")
    hook = network.model.layers[0].register_forward_hook(print)
    assert way_of(network) is None
    hook.remove()
    assert way_of(network) == Way("packed")
    network.model.layers[0].mlp.forward = lambda states: states
    assert way_of(network) is None
    del network.model.layers[0].mlp.forward
    nn.utils.parametrize.register_parametrization(network.model.layers[1].mlp.up_proj, "weight", nn.Identity())
    assert way_of(network) is None

    class Gemma2Model(transformers.Gemma2Model):
        pass

    network = build("gemma2")
    network.model.__class__ = Gemma2Model
    assert way_of(network) is None
    network = build("gemma2")
    monkeypatch.setattr(type(network.model.layers[0]), "forward", lambda *given, **named: given[1])
    assert way_of(network) is None


def test_options_that_were_not_compared_are_not_known() -> None:
    """Of attention to both sides nothing can be kept, whichever way it is read."""
    config = transformers.FalconConfig(
        vocab_size=128, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, alibi=True
    )
    with torch.device("meta"):
        assert way_of(transformers.FalconForCausalLM(config).eval()) is None
        config.alibi = False
        assert way_of(transformers.FalconForCausalLM(config).eval()) == Way("padded")


def test_a_changed_model_that_no_way_fits_is_refused(tokenizer: Any) -> None:
    """One that mixes each token with those behind it, by a hook that the table of architectures cannot know."""
    network = build("gptj")
    network.transformer.h[0].register_forward_pre_hook(lambda module, given: (given[0].flip(1).cumsum(1), *given[1:]))
    with pytest.raises(OptionError, match="other logits than without a cache"):
        models.transformers(network, tokenizer)


@pytest.mark.parametrize("name", ["mamba", "lfm2", "minimax", "recurrent_gemma", "rwkv"])
def test_states_are_known_too(name: str, tokenizer: Any, compared: list[Way], monkeypatch: pytest.MonkeyPatch) -> None:
    known = models.transformers(build_recurrent(name), tokenizer)
    assert not compared and known._way == WAYS[known.model.config.model_type]
    monkeypatch.setenv(VERIFY, "1")
    verified = models.transformers(build_recurrent(name), tokenizer)
    assert (verified._way, verified.state_bytes, verified.block_bytes) == (
        known._way, known.state_bytes, known.block_bytes,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(WAYS))
def test_every_known_way_gives_the_logits_of_the_whole_text(
    name: str, tokenizer: Any, compared: list[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each architecture a small random model, as benchmarks/architectures.py makes it."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv(VERIFY, "1")
    made = __import__("architectures")
    try:
        network = made.network_of(name, 32, torch.float32)
    except Exception as error:  # an older transformers has not all of them
        pytest.skip(f"{type(error).__name__}: {error}")
    if hasattr(network.config, "is_decoder"):  # which says nothing in these architectures
        network.config.is_decoder = type(network.config)().is_decoder
    options = ("gemma3n_text",)  # whose smallest model has other options
    assert way_of(network) == (None if name in options else WAYS[name])
    model = models.transformers(network, made.tokenizer_of())
    assert model._way == WAYS[name] == compared[0]
