"""Whatever is passed to a kernel in place of an array is refused with TypeError or ValueError, and reads no memory."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from trellm import kernels
from trellm.kernels.logits.mask import unpack_mask

LOGITS = np.zeros((2, 64), np.float32)
MASKS = np.full((2, 2), 0xFFFFFFFF, np.uint32)
ODD: list[Any] = [
    None,
    5,
    -1,
    1.5,
    float("nan"),
    "a",
    b"a",
    [],
    [1],
    {},
    object(),
    np.float32(1),
    np.array([1.5, 0.5]),
    np.zeros((2, 64), np.complex64),
    np.zeros((2, 64), ">f4"),
    np.zeros(64, np.float32),
    np.zeros((2, 0), np.float32),
    np.array(["a", "b"]),
    np.array([None, None]),
    np.array([0, 9], np.int32),
    torch.zeros(2, 64, device="meta"),
    torch.zeros(2, 64).to_sparse(),
    torch.zeros(2, 64, dtype=torch.complex64),
    torch.zeros(2, 64, requires_grad=True),
    torch.zeros(2, 64).t(),
    torch.zeros(1, 64).expand(2, 64),
]
CALLS: dict[str, Callable[[Any], object]] = {
    "logits": kernels.masked_argmax,
    "masks": lambda value: kernels.masked_argmax(LOGITS, value),
    "rows": lambda value: kernels.masked_argmax(LOGITS, MASKS, value),
    "size": lambda value: kernels.masked_argmax(LOGITS, MASKS, None, value),
    "normalised": kernels.logsumexp,
    "uniforms": lambda value: kernels.masked_sample(LOGITS, value),
    "temperature": lambda value: kernels.masked_sample(LOGITS, [0.5, 0.5], temperature=value),
    "top_k": lambda value: kernels.masked_sample(LOGITS, [0.5, 0.5], top_k=value),
    "k": lambda value: kernels.masked_topk(LOGITS, value),
    "group": lambda value: kernels.masked_topk(LOGITS, 2, group=value),
    "scores": lambda value: kernels.masked_topk(LOGITS, 2, scores=value),
    "normalise": lambda value: kernels.masked_topk(LOGITS, 2, normalise=value),
    "tokens": lambda value: kernels.token_logprobs(LOGITS, value),
    "mask": kernels.allowed_ids,
    "counted": kernels.popcount,
    "packed": kernels.pack_mask,
    "unpacked": lambda value: unpack_mask(value, 64),
}


@pytest.mark.parametrize("name", CALLS)
def test_odd_arguments_work_or_are_refused(name: str) -> None:
    refused = 0
    for value in ODD:
        try:
            CALLS[name](value)
        except (TypeError, ValueError):
            refused += 1
    assert refused >= 10, "most of these are no arguments at all"


@pytest.mark.parametrize("tokens", [[0.5, 1.0], [0, 64], [0, float("nan")]])
def test_tokens_that_are_none_are_refused(tokens: list[float]) -> None:
    with pytest.raises(ValueError, match="tokens"):
        kernels.token_logprobs(LOGITS, tokens)
