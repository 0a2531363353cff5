"""Twins of bodies: quick parts, the same weights and attributes, the same states."""

import copy
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from trellm.engine.models.decoder import DecoderModel
from trellm.engine.models.quick.parts import QuickLinear, QuickNorm, QuickShiftedNorm, norm_like
from trellm.engine.models.quick.steps import quick_steps_of
from trellm.engine.models.quick.twin import Twin

from .recurrent_architectures import CONFIGS, build

IDS = torch.tensor([[5, 9, 2, 7, 11], [3, 3, 8, 1, 40]])


def qwen() -> Any:
    return build("qwen3_5", torch.float32).model


@torch.inference_mode()
def states(body: Any, ids: torch.Tensor) -> torch.Tensor:
    return body(input_ids=ids, use_cache=False).last_hidden_state


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "recurrent_gemma"])
@torch.inference_mode()
def test_a_twin_goes_on_as_its_body_does(name: str) -> None:
    """From a prompt with single tokens, of a cache that the model hands out, as all but RecurrentGemma do."""
    network = build(name, torch.float32)
    body: Any = network.base_model
    twin = Twin(body).body
    assert any(isinstance(module, QuickLinear) for module in _children(twin))
    kept = "past_key_values" if name not in ("mamba", "mamba2", "falcon_mamba", "rwkv") else "cache_params"
    kept = "state" if name == "rwkv" else kept
    found: list[list[torch.Tensor]] = []
    for each in (body, twin):
        out = each(input_ids=IDS[:, :2], use_cache=True)
        parts = [out.last_hidden_state]
        for place in range(2, IDS.shape[1]):
            out = each(input_ids=IDS[:, place : place + 1], use_cache=True, **{kept: getattr(out, kept)})
            parts.append(out.last_hidden_state)
        found.append(parts)
    for mine, its in zip(*found, strict=True):
        assert (mine - its).norm() <= 1e-4 * its.norm()


def _children(module: Any) -> list[Any]:
    return [each for child in module._modules.values() if child is not None for each in (child, *_children(child))]


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
    from trellm.engine.models.quick import steps

    called: set[str] = set()
    kernels = {
        "step_convolution": "causal_conv1d_update",
        "step_selective": "mamba_selective_state_update",
        "step_heads": "mamba2_selective_state_update",
        "step_delta": "torch_recurrent_gated_delta_rule",
    }

    def watched(kernel: str, run: Any) -> Any:
        def counted(*given: Any) -> None:
            called.add(kernels[kernel])
            run(*given)

        return counted

    for kernel in kernels:
        monkeypatch.setattr(steps, kernel, watched(kernel, getattr(steps, kernel)))
    network = build(name, torch.float32)
    model: Any = DecoderModel(network, tokenizer)
    assert model._twin is not None and called == functions


@torch.inference_mode()
def test_a_twin_has_the_weights_attributes_and_hooks_of_its_body() -> None:
    body = qwen()
    twin = Twin(body)
    mlp = body.layers[0].mlp
    mlp.up_proj.weight.mul_(3)
    mlp.down_proj.weight = nn.Parameter(torch.randn_like(mlp.down_proj.weight))
    body.norm.weight.add_(1)
    seen: list[torch.Tensor] = []

    def look(module: Any, given: Any, out: torch.Tensor) -> None:
        seen.append(out)

    hook = mlp.register_forward_hook(look)
    assert torch.allclose(states(twin.body, IDS), states(body, IDS), 1e-4, 1e-4)
    assert len(seen) == 2
    hook.remove()
    mlp.colour = "blue"
    assert twin.body.layers[0].mlp.colour == "blue" and twin.body.layers[0].mlp is not mlp


@torch.inference_mode()
def test_modules_that_are_put_in_place_are_seen() -> None:
    body = qwen()
    twin = Twin(body)
    before = states(twin.body, IDS)
    made = twin.body
    assert twin.body is made
    body.layers[1].mlp = copy.deepcopy(body.layers[0].mlp)
    after = states(twin.body, IDS)
    assert twin.body is not made and not torch.allclose(before, after, 1e-3, 1e-3)
    assert torch.allclose(after, states(body, IDS), 1e-4, 1e-4)


@torch.inference_mode()
def test_a_copy_of_a_twin_is_one_of_the_copied_body() -> None:
    body = qwen()
    both = copy.deepcopy((body, Twin(body)))
    both[0].layers[0].mlp.up_proj.weight.mul_(2)
    assert torch.allclose(states(both[1].body, IDS), states(both[0], IDS), 1e-4, 1e-4)
    assert not torch.allclose(states(both[1].body, IDS), states(body, IDS), 1e-3, 1e-3)


def test_a_body_of_another_type_or_from_elsewhere_has_no_twin() -> None:
    body = qwen()
    assert Twin.suits(body)
    assert not Twin.suits(body.to(torch.bfloat16))

    class Mine(nn.Linear):
        pass

    assert not Twin.suits(Mine(2, 2))


def test_modules_from_elsewhere_stay_what_they_are() -> None:
    body = qwen()

    class Mine(nn.Linear):
        pass

    body.layers[0].mlp.up_proj = Mine(32, 48)
    assert type(Twin(body).body.layers[0].mlp.up_proj) is Mine


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


@pytest.mark.parametrize(("form", "kind"), [("plain", QuickNorm), ("shifted", QuickShiftedNorm), ("squared", None)])
def test_norms_are_known_by_what_they_do(form: str, kind: Any) -> None:
    norm = _RMSNorm(form)
    assert norm_like(norm) is kind
    if kind is not None:
        quick = type("Both", (kind, _RMSNorm), {})(form)
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
    quick: Any = quick_steps_of(kind)["forward"].__globals__["causal_conv1d_update"]
    own: Any = __import__(kind.__module__, fromlist=["x"]).causal_conv1d_update
    weight = torch.randn(4, 3)
    for width, activation, dtype in ((2, None, torch.float32), (1, "gelu", torch.float32), (1, None, torch.bfloat16)):
        new, state = torch.randn(2, 4, width).to(dtype), torch.randn(2, 4, 3).to(dtype)
        its = state.clone()
        mine = quick(new, state, weight.to(dtype), None, activation)
        assert torch.equal(mine, own(new, its, weight.to(dtype), None, activation)) and torch.equal(state, its)


@torch.inference_mode()
def test_attention_in_blocks_runs_on_a_twin_too(tokenizer: Any) -> None:
    config = transformers.Olmo2Config(
        vocab_size=128, hidden_size=32, intermediate_size=48, num_attention_heads=4, num_hidden_layers=2,
        max_position_embeddings=64, bos_token_id=0, eos_token_id=1, pad_token_id=1,
    )  # fmt: skip
    model: Any = DecoderModel(transformers.Olmo2ForCausalLM(config).eval(), tokenizer)
    assert model._twin is not None and model.reads_drafts
