"""Steps of recurrent layers by one token on a CPU: the operations between a layer's products.

Sources: short convolutions and selective state spaces: A. Gu and T. Dao, Mamba, 2023; one decay for a head: T. Dao
and A. Gu, Transformers are SSMs, 2024; delta rule: S. Yang, J. Kautz and A. Hatamizadeh, Gated Delta Networks, 2024.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..attention.paged import exponential
from ..jit.wide import inner_njit, njit
from .layers import logistic
from .products import FAST

Reals = NDArray[np.floating[Any]]


@njit(fastmath=FAST, error_model="numpy")
def step_convolution(out: Reals, states: Reals, new: Reals, weight: Reals, bias: Reals, with_silu: bool) -> None:
    """Convolve each channel over its last inputs, the newest of which is `new`.

    out: [rows, channels], output
    states: [rows, channels, length], the last inputs, shifted by one
    new: [rows, channels]
    weight: [channels, length]; bias: [channels], or empty
    with_silu: whether SiLU follows
    """
    rows, channels, length = states.shape
    for row in range(rows):
        for channel in range(channels):
            total = bias[channel] if bias.size > 0 else out.dtype.type(0)
            for i in range(length - 1):
                x = states[row, channel, i + 1]
                states[row, channel, i] = x
                total += x * weight[channel, i]
            states[row, channel, length - 1] = new[row, channel]
            out[row, channel] = total + new[row, channel] * weight[channel, length - 1]
        if with_silu:
            silu(out[row])


@njit(fastmath=FAST, error_model="numpy")
def step_selective(out: Reals, states: Reals, new: Reals, steps: Reals, decay: Reals, into: Reals, back: Reals) -> None:
    """Step a selective state space with one decay for each number of a state: Mamba.

    out: [rows, channels], output
    states: [rows, channels, size], becomes exp(steps decay) states + steps new into
    new, steps: [rows, channels]; decay: [channels, size], at most 0; into, back: [rows, size]
    """
    rows, channels, size = states.shape
    factors = np.empty(size, states.dtype)
    for row in range(rows):
        for channel in range(channels):
            step = steps[row, channel]
            scaled_input = step * new[row, channel]
            state = states[row, channel]
            for i in range(size):
                factors[i] = exponential(step * decay[channel, i], states)
            total = states.dtype.type(0)
            for i in range(size):
                x = factors[i] * state[i] + scaled_input * into[row, i]
                state[i] = x
                total += x * back[row, i]
            out[row, channel] = total


@njit(fastmath=FAST, error_model="numpy")
def step_heads(out: Reals, states: Reals, new: Reals, steps: Reals, factors: Reals, into: Reals, back: Reals) -> None:
    """Step a selective state space with one decay for each head: Mamba 2.

    out: [rows, heads, width], output
    states: [rows, heads, width, size], becomes factors states + steps new into
    new: [rows, heads, width]; steps, factors: [rows, heads]
    into, back: [rows, groups, size]; each group serves equally many heads
    """
    rows, heads, width, size = states.shape
    each = heads // into.shape[1]
    for row in range(rows):
        for head in range(heads):
            factor, step, group = factors[row, head], steps[row, head], head // each
            for place in range(width):
                scaled_input = step * new[row, head, place]
                state = states[row, head, place]
                total = states.dtype.type(0)
                for i in range(size):
                    x = factor * state[i] + scaled_input * into[row, group, i]
                    state[i] = x
                    total += x * back[row, group, i]
                out[row, head, place] = total


@njit(fastmath=FAST, error_model="numpy")
def step_delta(
    out: Reals, states: Reals, queries: Reals, keys: Reals, values: Reals, factors: Reals, shares: Reals
) -> None:
    """Step a gated delta rule: move the value stored under a key towards the new value, by a share.

    out: [rows, heads, width], output
    states: [rows, heads, size, width], first multiplied by `factors`
    queries, keys: [rows, groups, size]; each group serves equally many heads; values: [rows, heads, width]
    factors, shares: [rows, heads]
    """
    rows, heads, size, width = states.shape
    each = heads // keys.shape[1]
    none = states.dtype.type(0)
    moved = np.empty(width, states.dtype)
    for row in range(rows):
        for head in range(heads):
            state, factor, share = states[row, head], factors[row, head], shares[row, head]
            key, query, found = keys[row, head // each], queries[row, head // each], out[row, head]
            for i in range(width):
                moved[i] = found[i] = none
            for k in range(size):
                for i in range(width):
                    moved[i] += state[k, i] * key[k]
            for i in range(width):
                moved[i] = (values[row, head, i] - factor * moved[i]) * share
            for k in range(size):
                for i in range(width):
                    x = factor * state[k, i] + key[k] * moved[i]
                    state[k, i] = x
                    found[i] += x * query[k]


@inner_njit
def silu(row: Reals) -> None:
    """Apply SiLU in place."""
    for i in range(row.size):
        row[i] *= logistic(row[i], row)
