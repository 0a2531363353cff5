"""Values that a type refuses: they fail alone, and are drawn again where that makes sense."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError, field_validator
from trellm import Beam, ConversionError, Generator, Greedy, OptionError, Sample, generate, models
from trellm.guides import RegexGuide

from .machines import TABLE, VOCABULARY

MODEL = models.ziplm('{"age": 7} {"age": 8} {"age": 9}\n' * 3)


class Even(BaseModel):
    age: int

    @field_validator("age")
    @classmethod
    def _is_even(cls, age: int) -> int:
        if age % 2:
            raise ValueError("odd ages are not taken")
        return age


def refusing(texts: set[str]) -> Generator[str]:
    """Two letters, in upper case, of which some are refused."""

    def convert(text: str) -> str:
        if text in texts:
            raise LookupError(text)
        return text.upper()

    model = models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY)
    return Generator(model, RegexGuide("[abcde]{2}", VOCABULARY), convert)


def test_a_value_that_is_refused_fails_alone() -> None:
    generator = generate.json(MODEL, Even, whitespace="compact")
    search = Sample(temperature=2.0)
    results = generator.run(["a"] * 12, search=search, seed=list(range(12)), max_tokens=10)
    refused = [result for result in results if result.error is not None]
    assert 0 < len(refused) < len(results)
    for result in results:
        assert (result.value is None) == isinstance(result.error, ValidationError)
        assert result.text and result.finish_reason == "complete"
    with pytest.raises(ConversionError, match="odd ages are not taken") as caught:
        generator(["a"] * 12, search=search, seed=list(range(12)), max_tokens=10)
    assert [result.text for result in caught.value.results] == [result.text for result in results]
    first = results.index(refused[0])
    assert (caught.value.prompt, caught.value.text) == (first, refused[0].text)
    assert f"prompt {first} " in str(caught.value) and f"and {len(refused) - 1} more" in str(caught.value)
    assert isinstance(caught.value.__cause__, ValidationError)


def test_one_prompt_and_a_batch_of_generators_raise_it_too() -> None:
    generator = refusing({"bb"})
    text = generator.run("a").text
    generator = refusing({text})
    with pytest.raises(ConversionError) as caught:
        generator("a")
    assert isinstance(caught.value.__cause__, LookupError)
    assert pickle.loads(pickle.dumps(caught.value)).text == text
    with pytest.raises(ConversionError, match="prompt 1 ") as caught:
        generate.batch([(Generator(generator.model, generator.guide), "a"), (generator, "a")])
    assert caught.value.results[0].value == text


def test_retries_draw_other_texts_until_one_is_taken() -> None:
    search, seeds = Sample(temperature=3.0), list(range(40))
    once = refusing(set()).run(["a"] * 40, search=search, seed=seeds)
    refused = {result.text for result in once[:4]}
    generator = refusing(refused)
    again = generator.run(["a"] * 40, search=search, seed=seeds, retries=20)
    assert all(result.error is None and result.text not in refused for result in again)
    for before, after in zip(once, again, strict=True):
        assert before.text in refused or before.text == after.text, "those that were taken are as they were"
    assert again == generator.run(["a"] * 40, search=search, seed=seeds, retries=20, batch_size=3)
    assert generator(["a"] * 40, search=search, seed=seeds, retries=20) == [result.value for result in again]


def test_retries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def convert(text: str) -> str:
        asked.append(text)
        raise ValueError(text)

    model = models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY)
    generator = Generator(model, RegexGuide("[abcde]{2}", VOCABULARY), convert)
    results: Any = generator.run(["a", "b"], search=Sample(n=3), seed=1, retries=4)
    assert len(asked) == 2 * 3 * 5
    assert all(isinstance(result.error, ValueError) for entry in results for result in entry)


@pytest.mark.parametrize("search", [Greedy(), Beam(2)])
def test_retries_make_no_sense_where_nothing_is_random(search: Any) -> None:
    with pytest.raises(OptionError, match=r"retries=2 .*search=Sample"):
        refusing(set())("a", search=search, retries=2)
