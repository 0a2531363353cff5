"""Empty prompts: models that begin by themselves, and configs that name what a text begins with."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import transformers
from trellm import Beam, Generator, Greedy, OptionError, Sample, generate, models

from ..machines import TABLE, VOCABULARY

SEARCHES = [Greedy(), Sample(), Beam(2)]


class Letters:
    """A model of letters that says which texts it was asked about."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, ...]] = []

    def __call__(self, ids: Sequence[int]) -> Any:
        self.asked.append(tuple(ids))
        return TABLE[ids[-1] if ids else 2]


@pytest.mark.parametrize("search", SEARCHES, ids=str)
@pytest.mark.parametrize(
    "options", [{}, {"repetition_penalty": 2.0}, {"no_repeat_ngram_size": 2}, {"logprobs": True}], ids=str
)
def test_a_function_begins_without_any_token(search: Any, options: dict[str, Any]) -> None:
    function = Letters()
    model = models.from_function(function, VOCABULARY)
    found = generate.regex(model, "[a-e]{5}").run("", search=search, seed=1, **options)
    assert len(found.text) == 5
    assert function.asked[0] == ()
    assert all(-1 not in ids for ids in function.asked)
    # The table says after nothing what it says after a c, which a pattern can ask for.
    if not options or "logprobs" in options:
        after = generate.regex(models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY), "[a-e]{5}")
        assert after.run("c", search=search, seed=1, **options) == found


def test_one_of_several_prompts_may_be_empty() -> None:
    model = models.from_function(Letters(), VOCABULARY)
    generator = generate.regex(model, "[a-e]{5}")
    several = ["", "c", "a", ""]
    together = generator(several, search=Sample(), seed=[1, 2, 3, 4])
    assert together == [generator(prompt, search=Sample(), seed=seed) for seed, prompt in enumerate(several, 1)]
    assert len({*together}) > 2


def test_an_encoder_has_something_to_read(t5: Callable[[], Any], tokenizer: Any) -> None:
    model = models.transformers(t5(), tokenizer)
    assert tokenizer.encode("") == []
    for search in SEARCHES:
        with pytest.raises(OptionError, match=r"prompt 1 is empty, .* encoder has no input"):
            generate.text(model)(["the", ""], search=search, max_tokens=3)


def test_the_compressor_begins_by_itself() -> None:
    model = models.ziplm("the cat sat on the mat")
    assert generate.choice(model, ["the cat", "xqz vwk"])("") == "the cat"
    assert len(generate.text(model)("", max_tokens=5)) == 5
    assert "".join(generate.regex(model, "[a-z]{3}").stream("")) == generate.regex(model, "[a-z]{3}")("")


def test_a_function_that_needs_a_token_says_why_it_has_none() -> None:
    model = models.from_function(lambda ids: TABLE[ids[-1]], VOCABULARY)
    with pytest.raises(IndexError) as caught:
        generate.regex(model, "[a-e]{5}")("")
    assert any("the prompt is empty" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("search", SEARCHES, ids=str)
def test_a_config_names_what_a_text_begins_with(
    hugging_face: Callable[[str], Any], tokenizer: Any, decoder: Callable[..., models.Model], search: Any
) -> None:
    bare: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(tokenizer.backend_tokenizer),
                                                     eos_token="<eos>")  # fmt: skip
    network = hugging_face("llama")
    options: dict[str, Any] = {"search": search, "seed": 4, "max_tokens": 6}
    found = generate.text(models.transformers(network, bare)).run("", **options)
    assert found == generate.text(models.transformers(network, bare)).run((0,), **options)
    assert found.token_ids == generate.text(decoder("llama")).run("", **options).token_ids


def test_without_one_an_empty_prompt_is_refused(tokenizer: Any, hugging_face: Callable[[str], Any]) -> None:
    bare: Any = transformers.PreTrainedTokenizerFast(tokenizer_object=copy.deepcopy(tokenizer.backend_tokenizer),
                                                     eos_token="<eos>")  # fmt: skip
    network = copy.deepcopy(hugging_face("llama"))
    network.config.bos_token_id = network.generation_config.bos_token_id = None
    with pytest.raises(OptionError, match="prompt 0 is empty, and neither the tokenizer nor the model's config"):
        Generator(models.transformers(network, bare))("")
