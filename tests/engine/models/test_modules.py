"""Bodies with quick parts: the same weights, the same states, and no change to the body itself."""

import copy
import inspect
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from trellm import models

from ...watching import watched
from ..support import BlockTable, Chunk
from .recurrent_architectures import CONFIGS, build
from .support import Modules, has_quick_parts, norm_shift, quick_copy, quick_forward

IDS = torch.tensor([[5, 9, 2, 7, 11], [3, 3, 8, 1, 40]])


def qwen() -> Any:
    return build("qwen3_5", torch.float32).model


@torch.inference_mode()
def states(body: Any, ids: torch.Tensor) -> torch.Tensor:
    return body(input_ids=ids, use_cache=False).last_hidden_state


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "recurrent_gemma"])
@torch.inference_mode()
def test_a_quick_body_goes_on_as_the_body_does(name: str) -> None:
    """From a prompt with single tokens, of a cache that the model hands out, as all but RecurrentGemma do."""
    network = build(name, torch.float32)
    body: Any = network.base_model
    quick = quick_copy(body)
    assert any(type(module) is nn.Linear and "forward" in vars(module) for module in quick.modules())
    assert not any("forward" in vars(module) for module in body.modules())
    arguments = inspect.signature(body.forward).parameters
    kept = next(each for each in ("cache", "past_key_values", "cache_params", "state") if each in arguments)
    found: list[list[torch.Tensor]] = []
    for each in (body, quick):
        out = each(input_ids=IDS[:, :2], use_cache=True)
        parts = [out.last_hidden_state]
        for place in range(2, IDS.shape[1]):
            out = each(input_ids=IDS[:, place : place + 1], use_cache=True, **{kept: getattr(out, kept)})
            parts.append(out.last_hidden_state)
        found.append(parts)
    for mine, its in zip(*found, strict=True):
        assert (mine - its).norm() <= 1e-4 * its.norm()


@pytest.mark.parametrize(
    ("name", "functions"),
    [
        ("mamba", {"causal_conv1d_update", "mamba_selective_state_update"}),
        ("mamba2", {"causal_conv1d_update", "mamba2_selective_state_update"}),
        ("qwen3_5", {"causal_conv1d_update", "torch_recurrent_gated_delta_rule"}),
        ("lfm2", {"causal_conv1d_update"}),
    ],
)
@torch.inference_mode()
def test_single_tokens_go_through_the_quick_steps(
    name: str, functions: set[str], monkeypatch: pytest.MonkeyPatch, tokenizer: Any
) -> None:
    from trellm.engine.models import modules as steps

    kernels = {
        "step_convolution": "causal_conv1d_update",
        "step_selective": "mamba_selective_state_update",
        "step_heads": "mamba2_selective_state_update",
        "step_delta": "torch_recurrent_gated_delta_rule",
    }

    notes = {kernel: watched(monkeypatch, steps, kernel) for kernel in kernels}
    network = build(name, torch.float32)
    model: Any = models.transformers(network, tokenizer)
    table, memory = BlockTable(), model.make_memory(1)
    table.blocks.append(0)
    table.slot = 0
    for tokens in ([5, 9, 2], [7]):
        model.forward([Chunk(table, tokens)], memory)
        table.tokens.extend(tokens)
    assert model._modules.is_quick and {kernels[kernel] for kernel, called in notes.items() if called} == functions


@torch.inference_mode()
def test_weights_are_those_of_the_body() -> None:
    body = qwen()
    modules = Modules(body)
    assert all(mine is its for mine, its in zip(modules.network.parameters(), body.parameters(), strict=True))
    before = states(modules.network, IDS)
    body.layers[0].mlp.up_proj.weight.mul_(3)
    body.norm.weight.add_(1)
    copied = modules.network
    modules.refresh()
    assert modules.network is copied and not torch.allclose(states(modules.network, IDS), before, 1e-3, 1e-3)
    assert torch.allclose(states(modules.network, IDS), states(body, IDS), 1e-4, 1e-4)


class Negated(nn.Linear):
    """What somebody puts in place of a linear layer."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        return -super().forward(input)


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a parameter": lambda mlp: setattr(mlp.down_proj, "weight", nn.Parameter(torch.randn_like(mlp.down_proj.weight))),
    "a module": lambda mlp: setattr(mlp, "up_proj", copy.deepcopy(mlp.gate_proj)),
    "a module from elsewhere": lambda mlp: setattr(mlp, "up_proj", Negated(32, 48, bias=False)),
    "a hook": lambda mlp: mlp.register_forward_hook(lambda module, given, out: out + 1),
    "a hook before": lambda mlp: mlp.register_forward_pre_hook(lambda module, given: (given[0] * 2,)),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", ["qwen3_5", "olmo2"])
@torch.inference_mode()
def test_a_model_that_is_changed_later_is_run_as_it_is_then(change: str, name: str, tokenizer: Any) -> None:
    network: Any = build(name, torch.float32) if name == "qwen3_5" else olmo()
    model: Any = models.transformers(network, tokenizer)
    assert model._modules.is_quick
    text = [5, 9, 2, 7, 11]
    before = read(model, text)
    torch.testing.assert_close(before, states(network.model, torch.tensor([text]))[0, -1], rtol=1e-3, atol=1e-3)
    CHANGES[change](network.model.layers[0].mlp)
    after = read(model, text)
    assert not torch.allclose(before, after, 1e-2, 1e-2)
    torch.testing.assert_close(after, states(network.model, torch.tensor([text]))[0, -1], rtol=1e-3, atol=1e-3)
    assert model._modules.is_quick == (change in ("a parameter", "a module"))


def read(model: Any, text: list[int]) -> torch.Tensor:
    table = BlockTable()
    table.blocks.append(0)
    table.slot = 0
    return model.forward([Chunk(table, text)], model.make_memory(1))[0]


@torch.inference_mode()
def test_a_copied_model_has_a_quick_body_of_its_own(tokenizer: Any) -> None:
    model: Any = models.transformers(build("qwen3_5", torch.float32), tokenizer)
    other = copy.deepcopy(model)
    assert other._modules.is_quick and other._modules.network is not model._modules.network
    other.model.model.layers[0].mlp.up_proj.weight.mul_(2)
    text = [5, 9, 2, 7, 11]
    for each in (model, other):
        expected = states(each.model.model, torch.tensor([text]))[0, -1]
        torch.testing.assert_close(read(each, text), expected, rtol=1e-3, atol=1e-3)
    assert not torch.allclose(read(model, text), read(other, text), 1e-3, 1e-3)


def test_a_body_of_another_type_or_from_elsewhere_has_no_quick_parts(tokenizer: Any) -> None:
    body = qwen()
    assert has_quick_parts(body)
    assert not has_quick_parts(body.to(torch.bfloat16))
    network: Any = olmo()
    network.model.layers[0].mlp.up_proj = Negated(32, 48, bias=False)
    assert not models.transformers(network.eval(), tokenizer)._modules.is_quick


class _RMSNorm(nn.Module):
    def __init__(self, form: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8))
        self.eps = 1e-3
        self.form = form

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        root = x * (x.square().mean(-1, keepdim=True) + self.eps).rsqrt()
        factors = {"plain": self.weight, "shifted": 1 + self.weight, "squared": self.weight.square()}
        return root * factors[self.form]


@pytest.mark.parametrize(("form", "shift"), [("plain", 0.0), ("shifted", 1.0), ("squared", None)])
def test_norms_are_known_by_what_they_do(form: str, shift: Any) -> None:
    norm = _RMSNorm(form)
    assert norm_shift(norm) == shift
    if shift is not None:
        quick = quick_copy(norm)
        assert "forward" in vars(quick)
        rows = torch.randn(2, 3, 8)
        with torch.inference_mode():
            torch.testing.assert_close(quick(rows), norm(rows), rtol=1e-5, atol=1e-5)
            # In another type it is the module's own.
            torch.testing.assert_close(quick(rows.double()), norm(rows.double()), rtol=0, atol=0)


@torch.inference_mode()
def test_what_quick_steps_do_not_know_is_left_to_the_model() -> None:
    """Several tokens at once, another activation, another type."""
    conv: Any = build("lfm2", torch.float32).model.layers[0].conv
    kind: Any = conv.__class__
    forward: Any = quick_forward(kind)
    quick: Any = forward.__globals__["causal_conv1d_update"]
    own: Any = __import__(kind.__module__, fromlist=["x"]).causal_conv1d_update
    weight = torch.randn(4, 3)
    for width, activation, dtype in ((2, None, torch.float32), (1, "gelu", torch.float32), (1, None, torch.bfloat16)):
        new, state = torch.randn(2, 4, width).to(dtype), torch.randn(2, 4, 3).to(dtype)
        its = state.clone()
        mine = quick(new, state, weight.to(dtype), None, activation)
        assert torch.equal(mine, own(new, its, weight.to(dtype), None, activation)) and torch.equal(state, its)


def olmo() -> Any:
    config = transformers.Olmo2Config(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=2,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=1, initializer_range=0.4,
    )  # fmt: skip
    torch.manual_seed(1)
    return transformers.Olmo2ForCausalLM(config).eval()


@torch.inference_mode()
def test_attention_in_blocks_runs_on_a_quick_body_too(tokenizer: Any) -> None:
    model: Any = models.transformers(olmo(), tokenizer)
    assert model._modules.is_quick and model.reads_drafts
