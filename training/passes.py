"""A pass of the network for training on a CPU: products in bfloat16, and few walks of memory besides.

The same as `Qwen3Model` computes, up to rounding, for rows of one length without padding. Attention is cut into blocks
of queries, each of which looks at the keys up to its own last one: torch's own kernel takes more than twice as long.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch.nn.functional import linear, silu

BLOCK = 256
"""Queries of a block."""
_LOW = torch.bfloat16


def states(body: Any, ids: Any) -> Any:
    """The last hidden states bfloat16 [rows, length, width] of token ids int64 [rows, length] in a `Qwen3Model`."""
    config = body.config
    rows, length = ids.shape
    size, epsilon = config.head_dim, config.rms_norm_eps
    turn = _turn(length, size, config.rope_parameters["rope_theta"])
    flow = body.embed_tokens(ids)
    for layer in body.layers:
        attention, feed = layer.self_attn, layer.mlp
        seen = _norm(flow, layer.input_layernorm.weight, epsilon)
        heads = _product(seen, attention.q_proj, attention.k_proj, attention.v_proj)
        queries, keys, values = heads.view(rows, length, -1, size).split(
            [config.num_attention_heads, config.num_key_value_heads, config.num_key_value_heads], 2
        )
        queries = _turned(_norm(queries, attention.q_norm.weight * size**-0.5, epsilon), turn)
        keys = _turned(_norm(keys, attention.k_norm.weight, epsilon), turn)
        flow = flow + _product(_attend(queries, keys, values), attention.o_proj)
        seen = _norm(flow, layer.post_attention_layernorm.weight, epsilon)
        gate, up = _product(seen, feed.gate_proj, feed.up_proj).chunk(2, -1)
        flow = flow + _product(silu(gate) * up, feed.down_proj)
    return _norm(flow, body.norm.weight, epsilon)


def scores(states: Any, head: Any) -> Any:
    """The logits bfloat16 [..., V] of states."""
    return _product(states, head)


def _product(inputs: Any, *layers: Any) -> Any:
    """What linear layers without bias make of the same inputs, side by side."""
    weights = [layer.weight.to(_LOW) for layer in layers]
    return linear(inputs, weights[0] if len(weights) == 1 else torch.cat(weights))


def _turn(length: int, size: int, base: float) -> tuple[Any, Any]:
    """Cosines and sines of rotary positions, bfloat16 [length, 1, size]."""
    speeds = base ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(length), speeds).repeat(1, 2)[:, None]
    signs = torch.cat([-torch.ones(size // 2), torch.ones(size // 2)])
    return angles.cos().to(_LOW), (angles.sin() * signs).to(_LOW)


class _Norm(torch.autograd.Function):
    """Root mean square normalisation of any type, to bfloat16."""

    @staticmethod
    def forward(ctx: Any, inputs: Any, weight: Any, epsilon: float) -> Any:
        full = inputs.float()
        scale = torch.rsqrt(full.square().mean(-1, keepdim=True) + epsilon)
        unit = (full * scale).to(_LOW)
        ctx.save_for_backward(unit, scale, weight)
        ctx.kind = inputs.dtype
        return unit * weight.to(_LOW)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        unit, scale, weight = ctx.saved_tensors
        (gradient,) = gradients
        along = gradient * unit
        of_weight = along.flatten(0, -2).sum(0, dtype=torch.float32)
        inner = linear(along, weight.to(_LOW)[None]).float() / unit.shape[-1]
        of_inputs = (gradient * weight.to(_LOW) - unit * inner.to(_LOW)).float() * scale
        return of_inputs.to(ctx.kind), of_weight.to(weight.dtype), None


class _Turned(torch.autograd.Function):
    """Heads [rows, length, n, size] turned by their positions."""

    @staticmethod
    def forward(ctx: Any, heads: Any, cosines: Any, sines: Any) -> Any:
        ctx.save_for_backward(cosines, sines)
        return heads * cosines + heads.roll(heads.shape[-1] // 2, -1) * sines

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        cosines, sines = ctx.saved_tensors
        (gradient,) = gradients
        return gradient * cosines + (gradient * sines).roll(gradient.shape[-1] // 2, -1), None, None


class _Attention(torch.autograd.Function):
    """Causal attention. queries: scaled, [rows, length, heads, size]; keys, values: with fewer heads."""

    @staticmethod
    def forward(ctx: Any, queries: Any, keys: Any, values: Any) -> Any:
        rows, length, _, size = queries.shape
        groups = keys.shape[2]
        asked = _by_group(queries, groups)
        keys, values = _by_group(keys, groups)[:, 0], _by_group(values, groups)[:, 0]
        found = torch.empty_like(asked)
        shares: list[Any] = []
        for begin in range(0, length, BLOCK):
            end = min(begin + BLOCK, length)
            some = torch.bmm(asked[:, :, begin:end].flatten(1, 2), keys[:, :end].mT)
            apart = some.view(*asked.shape[:2], end - begin, end)
            apart[..., begin:] += torch.full((end - begin, end - begin), -math.inf, dtype=some.dtype).triu(1)
            share = some.softmax(-1)
            shares.append(share)
            found[:, :, begin:end] = torch.bmm(share, values[:, :end]).view(*asked.shape[:2], -1, size)
        ctx.save_for_backward(asked, keys, values, *shares)
        ctx.rows = rows
        return _by_place(found, rows)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        asked, keys, values, *shares = ctx.saved_tensors
        groups, length = keys.shape[0] // ctx.rows, keys.shape[1]
        gradient = _by_group(gradients[0].view(ctx.rows, length, -1, asked.shape[-1]), groups)
        of_asked, of_keys, of_values = torch.empty_like(asked), torch.zeros_like(keys), torch.zeros_like(values)
        for begin, share in zip(range(0, length, BLOCK), shares, strict=True):
            end = min(begin + BLOCK, length)
            out = gradient[:, :, begin:end].flatten(1, 2)
            of_values[:, :end] += torch.bmm(share.mT, out)
            of_share = torch.bmm(out, values[:, :end].mT)
            of_scores = cast(Any, torch)._softmax_backward_data(of_share, share, -1, share.dtype)
            of_asked[:, :, begin:end] = torch.bmm(of_scores, keys[:, :end]).view(*asked.shape[:2], end - begin, -1)
            of_keys[:, :end] += torch.bmm(of_scores.mT, asked[:, :, begin:end].flatten(1, 2))
        sized = (_by_place(one, ctx.rows) for one in (of_asked, of_keys[:, None], of_values[:, None]))
        return tuple(one.view(ctx.rows, length, -1, asked.shape[-1]) for one in sized)


def _by_group(heads: Any, groups: int) -> Any:
    """Heads [rows, length, groups * n, size] as [rows * groups, n, length, size]."""
    rows, length, _, size = heads.shape
    return heads.view(rows, length, groups, -1, size).permute(0, 2, 3, 1, 4).flatten(0, 1).contiguous()


def _by_place(heads: Any, rows: int) -> Any:
    """The inverse of `_by_group`, with heads side by side: [rows, length, width]."""
    return heads.unflatten(0, (rows, -1)).permute(0, 3, 1, 2, 4).flatten(2)


def _norm(inputs: Any, weight: Any, epsilon: float) -> Any:
    return cast(Any, _Norm).apply(inputs, weight, epsilon)


def _turned(heads: Any, turn: tuple[Any, Any]) -> Any:
    return cast(Any, _Turned).apply(heads, *turn)


def _attend(queries: Any, keys: Any, values: Any) -> Any:
    return cast(Any, _Attention).apply(queries, keys, values)
