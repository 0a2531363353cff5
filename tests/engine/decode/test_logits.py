"""What is no logits is an error that names the step and the prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Beam, Greedy, ModelError, Sample, generate, models

from ..machines import EOS, VOCABULARY
from ..support import FunctionModel

SIZE = EOS + 1
WRONG: dict[str, Any] = {
    "None": None,
    "a text": "123456",
    "texts": ["1"] * SIZE,
    "a number": 1.0,
    "too few": [0.0] * (SIZE - 1),
    "rows": [[0.0] * SIZE],
    "ragged": [[0.0], [0.0, 1.0]],
    "complex": [1j] * SIZE,
    "an array of objects": np.array([None] * SIZE),
    "a complex tensor": torch.zeros(SIZE, dtype=torch.complex64),
    "a meta tensor": torch.zeros(SIZE, device="meta"),
    "a sparse tensor": torch.zeros(SIZE).to_sparse(),
    "too large": [1e300] * SIZE,
    "not numbers": [float("nan")] * SIZE,
}
RIGHT = [9.0, 0, 0, 0, 0, -99]


@pytest.mark.parametrize("search", [Greedy(), Sample(), Beam(2)])
@pytest.mark.parametrize("name", WRONG)
def test_what_a_function_returns_is_checked(name: str, search: Any) -> None:
    def logits(ids: Sequence[int]) -> Any:
        return WRONG[name] if list(ids)[:3] == [1, 0, 0] else RIGHT

    generator = generate.text(models.from_function(logits, VOCABULARY))
    with pytest.raises(ModelError, match="step 2 of prompt 1"):
        generator(["c", "b"], search=search, seed=0, max_tokens=4)


def test_integers_gradients_and_half_precision_are_logits() -> None:
    for values in (
        [9, 0, 0, 0, 0, 0],
        np.array([9, 0, 0, 0, 0, 0], np.int8),
        torch.tensor([9.0, 0, 0, 0, 0, 0], requires_grad=True),
        torch.tensor([9, 0, 0, 0, 0, 0], dtype=torch.bfloat16),
        [torch.tensor(9.0), 0, 0, 0, 0, 0],
    ):
        model = models.from_function(lambda ids, values=values: values, VOCABULARY)
        assert generate.text(model)("b", max_tokens=2) == "aa"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda logits: None, "NoneType instead of a tensor"),
        (lambda logits: logits.numpy(), "ndarray instead of a tensor"),
        (lambda logits: logits[:, :-1], r"shape \(1, 5\); expected \(1, 6\)"),
        (lambda logits: logits[0], r"shape \(6,\)"),
        (lambda logits: logits.to("meta"), "meta"),
        (lambda logits: logits.to(torch.complex64), "complex64"),
        (lambda logits: logits.int(), "int32"),
    ],
)
def test_what_a_model_of_ones_own_returns_is_checked(change: Any, said: str) -> None:
    class Changed(FunctionModel):
        def logits(self, hidden: Any, rows: Any, ids: Any) -> Any:
            return change(super().logits(hidden, rows, ids))

    model = Changed(lambda ids: RIGHT, VOCABULARY)
    for search in (Greedy(), Beam(2)):
        with pytest.raises(ModelError, match=f"{said}.* at step 0 of prompt 0"):
            generate.text(model)("b", max_tokens=2, search=search)


def test_logits_in_half_precision_or_spread_out_are_read_as_they_are() -> None:
    class Spread(FunctionModel):
        def logits(self, hidden: Any, rows: Any, ids: Any) -> Any:
            return torch.repeat_interleave(super().logits(hidden, rows, ids), 2, 1)[:, ::2].double()

    assert generate.text(Spread(lambda ids: RIGHT, VOCABULARY))("b", max_tokens=3) == "aaa"


def test_a_tokenizer_that_returns_no_ids_is_a_mistake_of_the_caller() -> None:
    class Tokenizer:
        def __init__(self, found: Any) -> None:
            self.found = found

        def encode(self, text: str) -> Any:
            return self.found

    for found in (None, 5, "ab", [1.5], [-1], [SIZE], [None]):
        model = models.from_function(lambda ids: RIGHT, VOCABULARY, Tokenizer(found))
        with pytest.raises(ValueError, match="the tokenizer made") as caught:
            generate.text(model)("b")
        assert type(caught.value).__name__ == "OptionError"
