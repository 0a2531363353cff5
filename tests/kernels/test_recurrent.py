"""How states go on with a single token: kernels against the recurrences as papers write them, a number at a time."""

import math
from typing import Any

import numpy as np
import pytest
from trellm.kernels.decoder.recurrent import step_convolution, step_delta, step_heads, step_selective

KINDS = [np.float32, np.float64]
# The exponential of float64 is computed to as many digits as float32 has where it is scaled back.
FAR = {np.float32: 2e-5, np.float64: 1e-9}


def numbers(kind: Any, *shape: int) -> Any:
    made = np.random.default_rng(sum(shape)).standard_normal(shape).astype(kind)
    return made


def near(found: Any, expected: Any) -> None:
    assert found.dtype.type in KINDS
    np.testing.assert_allclose(found, expected, rtol=FAR[found.dtype.type], atol=FAR[found.dtype.type])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_silu", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_a_convolution_sees_its_last_inputs(kind: Any, with_silu: bool, biased: bool) -> None:
    rows, channels, length = 3, 5, 4
    weight, bias = numbers(kind, channels, length), numbers(kind, channels) if biased else np.empty(0, kind)
    inputs = 8 * numbers(kind, rows, channels, 9)
    inputs[0, 0, 6] = -300  # where e^x is no number that float32 has
    states = np.ascontiguousarray(inputs[:, :, :length])
    for at in range(length, 9):
        out = np.empty((rows, channels), kind)
        step_convolution(out, states, np.ascontiguousarray(inputs[:, :, at]), weight, bias, with_silu)
        for row in range(rows):
            for channel in range(channels):
                total = float(bias[channel]) if biased else 0.0
                for back in range(length):
                    total += float(weight[channel, length - 1 - back]) * float(inputs[row, channel, at - back])
                if with_silu:
                    total = total / (1 + math.exp(-total)) if total > -700 else 0.0
                assert abs(out[row, channel] - total) <= FAR[kind] * max(1, abs(total)) * 50
        assert (states == inputs[:, :, at - length + 1 : at + 1]).all()


@pytest.mark.parametrize("kind", KINDS)
def test_each_number_of_a_selective_state_decays_by_its_own(kind: Any) -> None:
    rows, channels, size = 2, 6, 5
    states, new = numbers(kind, rows, channels, size), numbers(kind, rows, channels)
    steps, decay = np.abs(numbers(kind, channels, rows)).T.copy(), -np.abs(numbers(kind, channels, size))
    steps[0, 0], decay[0, 0] = 1e3, -1e3  # decays to nothing
    into, back = numbers(kind, rows, size), numbers(kind, size, rows).T.copy()
    before, out = states.copy(), np.empty((rows, channels), kind)
    step_selective(out, states, new, steps, decay, into, back)
    for row in range(rows):
        for channel in range(channels):
            step = float(steps[row, channel])
            expected = [
                math.exp(step * float(decay[channel, i])) * float(before[row, channel, i])
                + step * float(new[row, channel]) * float(into[row, i])
                for i in range(size)
            ]
            near(states[row, channel], expected)
            near(out[row, channel : channel + 1], [sum(x * float(y) for x, y in zip(expected, back[row], strict=True))])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_heads_of_a_group_share_what_they_are_written_and_read_by(kind: Any, groups: int) -> None:
    rows, heads, width, size = 2, 4, 3, 5
    states, new = numbers(kind, rows, heads, width, size), numbers(kind, rows, heads, width)
    steps, factors = np.abs(numbers(kind, rows, heads)), np.abs(numbers(kind, heads, rows)).T.copy()
    into, back = numbers(kind, rows, groups, size), numbers(kind, groups, rows, size).transpose(1, 0, 2).copy()
    before, out = states.copy(), np.empty((rows, heads, width), kind)
    step_heads(out, states, new, steps, factors, into, back)
    for row in range(rows):
        for head in range(heads):
            group = head // (heads // groups)
            for place in range(width):
                given = float(steps[row, head]) * float(new[row, head, place])
                expected = [
                    float(factors[row, head]) * float(before[row, head, place, i]) + given * float(into[row, group, i])
                    for i in range(size)
                ]
                near(states[row, head, place], expected)
                total = sum(x * float(y) for x, y in zip(expected, back[row, group], strict=True))
                near(out[row, head, place : place + 1], [total])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_delta_rule_moves_what_lies_under_a_key_to_the_value(kind: Any, groups: int) -> None:
    rows, heads, size, width = 2, 4, 3, 5
    states, values = numbers(kind, rows, heads, size, width), numbers(kind, rows, heads, width)
    queries, keys = numbers(kind, rows, groups, size), numbers(kind, size, rows, groups).transpose(1, 2, 0).copy()
    factors, shares = np.abs(numbers(kind, rows, heads)), np.abs(numbers(kind, heads, rows)).T.copy()
    before, out = states.copy(), np.empty((rows, heads, width), kind)
    step_delta(out, states, queries, keys, values, factors, shares)
    for row in range(rows):
        for head in range(heads):
            key, query = (each[row, head // (heads // groups)].astype(np.float64) for each in (keys, queries))
            decayed = float(factors[row, head]) * before[row, head].astype(np.float64)
            error = values[row, head].astype(np.float64) - key @ decayed
            expected = decayed + float(shares[row, head]) * np.outer(key, error)
            near(states[row, head], expected)
            near(out[row, head], query @ expected)
