"""Fixtures shared by the tests of guides."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer
from trellm import Vocabulary


@pytest.fixture(scope="session")
def llama3_tokenizer(shared_data: Path) -> Tokenizer:
    return Tokenizer.from_file(str(shared_data / "tokenizers" / "llama3" / "tokenizer.json"))


@pytest.fixture(scope="session")
def llama3(llama3_tokenizer: Tokenizer) -> Vocabulary:
    return Vocabulary.from_tokenizer(llama3_tokenizer, eos_ids=[128001, 128009])
