"""GPT-2's bodies by kernels: the states and tokens of transformers' own code, for these bodies and no others."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers as hub
from torch import nn
from trellm import Greedy, generate, models

from ...thresholds import thresholds
from .architectures import CONFIGS, NAMES, OLD
from .support import DescribedDecoder, HostKernels, LayerBlocks, PackedRunner
from .test_blocks import last_states, random_history
from .test_described import described_of, is_described, states_of

pytestmark = pytest.mark.skipif("TRELLM_TEST_DEVICE" in os.environ, reason="these kernels are for the CPU")
BOTH = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
TEXT = [7, 3, 99, 0, 21, 5, 5, 64]


def network_of(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    """A random model; its biases and norms are random too, which those of new models are not."""
    torch.manual_seed(3)
    model = hub.AutoModelForCausalLM.from_config(hub.GPT2Config(**OLD | options, **NAMES)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter += torch.randn_like(parameter) * 0.3
    return model.to(dtype)


def fused_of(network: Any) -> DescribedDecoder:
    return described_of(network, HostKernels)


def agrees(network: Any, fused: Any, tolerance: float = 1e-4) -> None:
    with torch.no_grad():
        expected = network.transformer(torch.tensor([TEXT]), use_cache=False).last_hidden_state[0]
    found = states_of(fused, network.transformer, TEXT, [LayerBlocks(1) for _ in network.transformer.h])
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@BOTH
@pytest.mark.parametrize("inner", [None, 52])
def test_any_history_of_texts_gives_what_the_text_alone_does(
    dtype: torch.dtype, inner: int | None, tokenizer: Any
) -> None:
    network = network_of(dtype, n_inner=inner)
    model = models.transformers(network, tokenizer)
    assert isinstance(model._runner, PackedRunner) and model._runner.described is not None
    tolerance = 1e-3 if dtype == torch.float32 else 1e-9
    with torch.inference_mode():
        for seed in range(2):
            seen = random_history(model, seed)
            assert len(seen) > 20
            for (state, *_), expected in zip(seen, last_states(network, [text for *_, text in seen]), strict=True):
                torch.testing.assert_close(state, expected, rtol=tolerance, atol=tolerance)


@BOTH
def test_the_tokens_of_transformers(dtype: torch.dtype, tokenizer: Any) -> None:
    prompts = ["the", "a 12 on the one", "one two three four five six seven eight"]
    network = network_of(dtype)
    # Transformers' own tokens first, by weights that lie as it laid them.
    expected: list[list[int]] = []
    for prompt in prompts:
        ids = torch.tensor([tokenizer.encode(prompt)])
        said = network.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=24, do_sample=False)
        made: list[int] = said[0, ids.shape[1] :].tolist()
        expected.append(made[: made.index(1)] if 1 in made else made)

    def tokens(network: Any) -> list[Any]:
        model = models.transformers(network, tokenizer)
        assert isinstance(model._runner, PackedRunner)
        found: list[Any] = [model._runner.described is not None]
        for generator in (generate.text(model), generate.regex(model, r"[a-z]+ \d{3}( [a-z]+)*")):
            found += [list(each.token_ids) for each in generator.run(prompts, max_tokens=24, search=Greedy())]
        return found

    own, changed = copy.deepcopy(network), copy.deepcopy(network)
    changed.transformer.h[0].register_forward_hook(lambda *_: None)
    fused, stock = tokens(own), tokens(changed)
    assert (fused[0], stock[0]) == (True, False)
    assert fused[1:] == stock[1:]
    texts = generate.text(models.transformers(network, tokenizer)).run(
        prompts, max_tokens=24, search=Greedy(), heal=False
    )
    assert [list(each.token_ids) for each in texts] == expected
    assert max(map(len, expected)) > 10


# What is changed in a model, and what is said of it.
CHANGES: dict[str, Callable[[Any], Any]] = {
    "in training": lambda model: model.train(),
    "dropout in training": lambda model: model.transformer.drop.train(),
    "another activation": lambda model: setattr(model.transformer.h[1].mlp, "act", nn.GELU()),
    "another product": lambda model: setattr(model.transformer.h[0].attn, "c_attn", nn.Linear(32, 96)),
    "an adapter beside": lambda model: model.transformer.h[0].mlp.add_module("lora", nn.Identity()),
    "a hook": lambda model: model.transformer.h[1].mlp.register_forward_hook(print),
    "another forward": lambda model: setattr(model.transformer.h[0], "forward", print),
    "another scale": lambda model: setattr(model.transformer.h[1].attn, "scaling", 1.0),
    "another order": lambda model: setattr(model.transformer.h[1].attn, "reorder_and_upcast_attn", True),
    "attention to both sides": lambda model: setattr(model.transformer.h[0].attn, "is_causal", False),
    "types that are mixed": lambda model: model.transformer.ln_f.double(),
    "half the precision": lambda model: model.half(),
    "a norm without a bias": lambda model: setattr(model.transformer.ln_f, "bias", None),
    "a product without a bias": lambda model: setattr(model.transformer.h[0].mlp.c_fc, "bias", None),
    "a shared weight": lambda model: setattr(
        model.transformer.h[0].mlp.c_fc, "weight", model.transformer.h[1].mlp.c_fc.weight
    ),
    "a bounded embedding": lambda model: setattr(model.transformer.wpe, "max_norm", 1.0),
    "layers of another kind": lambda model: setattr(model.transformer, "h", nn.Sequential(*model.transformer.h)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_is_not_known(change: str) -> None:
    network = network_of()
    fused = fused_of(network)
    CHANGES[change](network)
    assert not is_described(network, HostKernels)
    moves = change in ("types that are mixed", "half the precision", "a shared weight") or not fused._source.is_intact
    assert not moves or fused.prepare() is None


@pytest.mark.parametrize(
    "options",
    [
        {"scale_attn_by_inverse_layer_idx": True},
        {"scale_attn_weights": False},
        {"add_cross_attention": True},
        {"activation_function": "relu"},
        {"activation_function": "gelu"},
    ],
    ids=str,
)
def test_what_configurations_may_ask_for_is_not_known(options: dict[str, Any]) -> None:
    network = network_of(**options)
    assert not is_described(network, HostKernels)


@pytest.mark.parametrize("name", ["gpt_neo", "bloom", "gptj"])
def test_other_architectures_are_not_known(name: str) -> None:
    network = hub.AutoModelForCausalLM.from_config(CONFIGS[name]()).eval()
    assert not is_described(network, HostKernels)


def test_classes_that_are_patched_are_not_described(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.gpt2 import modeling_gpt2

    network = network_of()
    stock = modeling_gpt2.GPT2MLP.forward
    monkeypatch.setattr(modeling_gpt2.GPT2MLP, "forward", lambda self, states: stock(self, states) * 1.5)
    assert not is_described(network, HostKernels)


def test_weights_lie_in_memory_once_and_are_seen() -> None:
    """What is written into parameters is, and so are new ones; saved and loaded, copied and trained they are the same
    numbers."""
    network, other = network_of(), network_of()
    before = copy.deepcopy(network.state_dict())
    fused = fused_of(network)
    number = fused.prepare()
    conv = network.transformer.h[0].mlp.c_fc
    assert fused._source.weights.layers[0].up.weight.data_ptr() == conv.weight.data_ptr()
    for key, value in network.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.25)
    network.load_state_dict(other.state_dict())
    assert fused.prepare() == number
    agrees(network, fused)
    twin = copy.deepcopy(network)
    agrees(twin, fused_of(twin))
    twin.load_state_dict(before, assign=True)
    agrees(twin, fused_of(twin))
    network.double()
    agrees(network, fused, 1e-9)
    assert fused.prepare() not in (None, number)


def test_a_model_is_saved_and_trained_further(tmp_path: Any) -> None:
    network = network_of()
    before = copy.deepcopy(network.state_dict())
    with torch.inference_mode():
        fused = fused_of(network)
    network.save_pretrained(tmp_path)
    loaded = hub.AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    for key, value in loaded.state_dict().items():
        torch.testing.assert_close(value, before[key], rtol=0, atol=0)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1)
    network(torch.tensor([TEXT]), labels=torch.tensor([TEXT])).loss.backward()
    optimiser.step()
    assert not torch.equal(network.transformer.h[0].mlp.c_fc.weight, before["transformer.h.0.mlp.c_fc.weight"])
    agrees(network, fused)


def test_large_layers_are_left_to_several_threads(use_threads: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of()
    thresholds(monkeypatch, layer_for_threads=32 * 128)
    use_threads(3)
    assert not is_described(network, HostKernels)
    use_threads(2)
    assert fused_of(network)
