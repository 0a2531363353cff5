"""Fixtures shared by the tests of guides, which need no torch, transformers or tokenizers until they are asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from trellm import Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@pytest.fixture(scope="session")
def llama3_tokenizer(shared_data: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(shared_data / "tokenizers" / "llama3" / "tokenizer.json"))


@pytest.fixture(scope="session")
def llama3(llama3_tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(llama3_tokenizer, eos_ids=[128001, 128009])
