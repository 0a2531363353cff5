"""Salts: what was read under one is not known under another, nor without one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from trellm import Beam, Engine, OptionError, Sample, generate, models

from ..paged import PagedModel
from ..support import BLOCK

PROMPT = "abcdefgh" * 5


def cost(model: PagedModel, **options: Any) -> int:
    """How many tokens of a prompt are read again."""
    before = model.read
    generate.text(model)(PROMPT, max_tokens=1, **options)
    return model.read - before


@pytest.mark.parametrize("search", [{}, {"search": Sample(n=3), "seed": 1}, {"search": Beam(3)}])
def test_what_was_read_is_shared_by_salt(search: dict[str, Any]) -> None:
    model = PagedModel()
    known = 2 * BLOCK
    first, again = (cost(model, **search) for _ in range(2))
    assert first >= len(PROMPT) and again == first - known
    for salt in ("one", "two"):
        assert [cost(model, cache_salt=salt, **search) for _ in range(2)] == [first, again]
    assert cost(model, **search) == again


def test_prompts_of_one_step_and_texts_are_the_same() -> None:
    model = PagedModel()
    engine, text = Engine.of(model), generate.text(model)
    expected = text(PROMPT, max_tokens=5)
    engine.close()
    model = PagedModel()
    engine, text = Engine.of(model), generate.text(model)
    salts = [None, "one", "one", "two", None]
    handles = [engine.submit(text, PROMPT, max_tokens=5, cache_salt=salt) for salt in salts]
    assert [handle.result().value for handle in handles] == [expected] * 5
    assert model.read == 3 * len(PROMPT) + 5 * 4, "once for each salt, and once without"


def test_sources_are_encoded_for_each_salt(t5: Callable[[], Any], tokenizer: Any) -> None:
    model = models.transformers(t5(), tokenizer)
    engine, text, read = Engine.of(model), generate.text(model), list[int]()
    hook = model.model.get_encoder().register_forward_hook(lambda module, args, out: read.append(len(out[0])))
    handles = [engine.submit(text, "the 12th", max_tokens=3, cache_salt=salt) for salt in (None, "one", "one", "two")]
    assert len({handle.result().value for handle in handles}) == 1
    hook.remove()
    assert sum(read) == 3


@pytest.mark.parametrize("salt", ["", 3, b"x", "\ud800"])
def test_what_is_no_salt(salt: Any) -> None:
    with pytest.raises(OptionError, match="cache_salt"):
        generate.text(PagedModel())(PROMPT, cache_salt=salt)
