"""An option of `Sample` is known wherever samples are asked for, or drawn: what fails here names the file to change.

`tests/serve/test_sample_options.py` asks every API of the server.
"""

from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trellm import SMC, Exact, Greedy, Importance, Sample, generate, models
from trellm.cli import main

from .engine.device.support import greedy_choices, write_choices
from .serve.support import SAMPLE_OPTIONS

TRIED: dict[str, Any] = {"temperature": 0.7, "top_k": 3, "top_p": 0.9, "min_p": 0.05}
LIKELIEST: dict[str, Any] = {"top_k": {"top_k": 1}, "top_p": {"top_p": 1e-9}, "min_p": {"min_p": 1.0}}
"""What leaves the likeliest token alone, by the option that does."""
PROMPT = "The kettle"
EACH = pytest.mark.parametrize("name", TRIED)


@pytest.fixture(scope="module")
def model() -> Any:
    return models.small()


def test_every_option_is_tried() -> None:
    given = {field.name: field.default for field in fields(Sample) if field.name != "n"}
    assert list(given) == list(SAMPLE_OPTIONS), "SAMPLE_OPTIONS of sampling.py has its bounds"
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
    assert name in known, "Target of engine/search.py lacks it; what it does is in `kept` of engine/exact_sampling"


@EACH
def test_the_device_is_told(name: str) -> None:
    told, other = greedy_choices(100), greedy_choices(100)
    write_choices(told, Sample())
    write_choices(other, Sample(**{name: TRIED[name]}))
    where = "`write_choices` of engine/device/slots.py drops the option; backend.py beside it has the rows of a launch"
    assert not np.array_equal(told, other), where


@EACH
def test_the_command_takes_it(name: str, model: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """At a temperature at which all tokens are as likely, a filter that leaves one token decides."""
    likeliest = model_text(model, Greedy())
    random = {"temperature": 100.0} | LIKELIEST.get(name, {})
    flags = [part for option, value in random.items() for part in (f"--{option.replace('_', '-')}", str(value))]
    assert main(["generate", "-p", PROMPT, "--max-tokens", "12", *flags]) == 0
    said = capsys.readouterr().out.removesuffix("\n")
    assert (said == likeliest) is (name in LIKELIEST), "cli/search.py drops the option"
    assert (model_text(model, Sample(**random)) == likeliest) is (name in LIKELIEST), "pick drops the option"


def model_text(model: Any, search: Any) -> str:
    return generate.text(model)(PROMPT, search=search, max_tokens=12)


@EACH
def test_the_page_of_searches_has_it(name: str) -> None:
    page = (Path(__file__).parents[1] / "docs" / "search.md").read_text(encoding="utf-8")
    option = SAMPLE_OPTIONS[name]
    assert f"| `{name}` | {option.about} | {option.bounds} |" in page
