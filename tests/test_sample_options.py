"""An option of `Sample` is known wherever samples are asked for, or drawn: what fails here names the file to change."""

from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from trellm import SMC, Exact, Importance, Sample

from .engine.device.support import greedily, tell
from .serve.support import KNOWN, ChatRequest

TRIED: dict[str, Any] = {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.05}
EACH = pytest.mark.parametrize("name", TRIED)


def test_every_option_is_tried() -> None:
    given = {field.name: field.default for field in fields(Sample) if field.name != "n"}
    assert TRIED.keys() == given.keys(), "TRIED, in this file, has a value of each option of Sample"
    assert not [name for name, value in TRIED.items() if value == given[name]], "values other than the defaults"


@EACH
def test_it_says_whether_tokens_are_left_out(name: str) -> None:
    where = "is_filtered of engine/search.py says whether some tokens are left out as unlikely"
    assert Sample(**{name: TRIED[name]}).is_filtered is (name != "temperature"), where


@EACH
@pytest.mark.parametrize("search", [Exact, SMC, Importance])
def test_searches_of_whole_texts_take_it(name: str, search: Any) -> None:
    known = {field.name for field in fields(search)}
    assert name in known, "Target of engine/search.py lacks it; what it does is in `kept` of engine/drawing"


@EACH
def test_the_device_is_told(name: str) -> None:
    told, other = greedily(100), greedily(100)
    tell(told, Sample())
    tell(other, Sample(**{name: TRIED[name]}))
    where = "`tell` of engine/device/slots.py drops the option; engine/device/backend.py has the rows of a launch"
    assert not np.array_equal(told, other), where


@EACH
def test_servers_take_it(name: str) -> None:
    assert name in ChatRequest.model_fields, "give SamplingFields, of serve/requests/fields.py, the field"
    message = {"role": "user", "content": "x"}
    asked = ChatRequest.model_validate({"model": "small", "messages": [message], name: TRIED[name]})
    assert getattr(asked.search(None), name) == TRIED[name], "`search` of serve/requests/fields.py hands it on"
    assert name not in KNOWN, "serve/requests/unsupported.py lists what servers do not take"
