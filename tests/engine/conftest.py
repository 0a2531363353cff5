"""Small random models of several architectures over one small tokenizer, and guides that are a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from trellm import Vocabulary, models

from ..watching import watched
from .support import Scheduler

HANGS = 120
"""Seconds after which a test hangs that waits for something: many times what it takes."""
WIDTH = 32

# Threads cost more than they bring on models this small, all the more where several tests run side by side.
torch.set_num_threads(1)

ATTENTION = {
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 128,
}
SLIDING = ["sliding_attention", "full_attention"]
CONFIGS: dict[str, Callable[..., Any]] = {
    "gpt2": lambda **names: transformers.GPT2Config(n_embd=WIDTH, n_layer=2, n_head=4, n_positions=128, **names),
    "llama": lambda **names: transformers.LlamaConfig(**ATTENTION, **names),
    "qwen3": lambda **names: transformers.Qwen3Config(**ATTENTION, **names),
    "mistral": lambda **names: transformers.MistralConfig(**ATTENTION, sliding_window=7, **names),
    "gemma": lambda **names: transformers.GemmaConfig(**ATTENTION, **names),
    "gemma2": lambda **names: transformers.Gemma2Config(**ATTENTION, sliding_window=6, layer_types=SLIDING, **names),
    "gemma3": lambda **names: transformers.Gemma3TextConfig(
        **ATTENTION, sliding_window=5, layer_types=SLIDING, **names
    ),
}


def until(condition: Callable[[], object]) -> None:
    """Wait for what other threads do."""
    end = time.monotonic() + HANGS
    while not condition():
        assert time.monotonic() < end, "the test hangs"
        time.sleep(0.002)


@pytest.fixture
def use_threads() -> Iterator[Callable[[int], None]]:
    """Gives torch so many threads, until the test ends."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def given_up(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The groups of texts that give their memory up."""
    return watched(monkeypatch, Scheduler, "_preempt", lambda _, group: group)


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """Printable ASCII characters and a few merges, byte level, with BOS and EOS: 120 tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    characters = [c for c in alphabet if c.isascii()] + ["Ġ", "Ċ", "Ã", "©"]
    merges = [
        ("t", "h"),
        ("th", "e"),
        ("a", "n"),
        ("Ġ", "the"),
        ("o", "n"),
        ("1", "2"),
        ("2", "3"),
        ("i", "n"),
    ]
    tokens = ["<bos>", "<eos>", *characters, *(left + right for left, right in merges)]
    backend = Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")


@pytest.fixture(scope="session")
def hugging_face(tokenizer: Any) -> Callable[[str], Any]:
    """A random model of an architecture; larger weights than usual, so that its choices are far apart."""
    made: dict[str, Any] = {}

    def make(name: str) -> Any:
        if name not in made:
            torch.manual_seed(len(name) + ord(name[0]))
            config = CONFIGS[name](
                vocab_size=len(tokenizer),
                bos_token_id=0,
                eos_token_id=1,
                pad_token_id=1,
                initializer_range=0.4,
            )
            made[name] = transformers.AutoModelForCausalLM.from_config(config).eval()
        return made[name]

    return make


@pytest.fixture(scope="session")
def t5(tokenizer: Any) -> Callable[[], Any]:
    """Makes a random encoder-decoder, a new one each time."""

    def make() -> Any:
        torch.manual_seed(5)
        config = transformers.T5Config(
            d_model=32, d_kv=8, d_ff=48, num_layers=1, num_decoder_layers=2, num_heads=4, vocab_size=len(tokenizer),
            eos_token_id=1, pad_token_id=0, decoder_start_token_id=0,
        )  # fmt: skip
        network = transformers.T5ForConditionalGeneration(config).eval()
        for parameter in network.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.2)
        return network

    return make


@pytest.fixture(scope="session")
def decoder(hugging_face: Callable[[str], Any], tokenizer: Any) -> Callable[..., models.Model]:
    """The same model in our hands."""
    return lambda name, **options: models.transformers(hugging_face(name), tokenizer, **options)


class TableGuide:
    """A guide over whole tokens: `edges[state][token]` is the next state; distances by relaxation.

    asked: the states of which masks were asked for
    """

    def __init__(self, vocabulary: Vocabulary, edges: Sequence[dict[int, int]], accepting: set[int]) -> None:
        self.vocabulary = vocabulary
        self.start = 0
        self.edges = edges
        self.accepting = accepting
        self.asked: list[int] = []
        self.distances = [0 if state in accepting else 2**30 for state in range(len(edges))]
        for _ in edges:
            for state, row in enumerate(edges):
                nearest = min((self.distances[target] for target in row.values()), default=2**30)
                self.distances[state] = min(self.distances[state], nearest + 1)

    def mask(self, state: int) -> Any:
        self.asked.append(state)
        allowed = np.zeros((self.vocabulary.size + 31) // 32 * 32, bool)
        allowed[list(self.edges[state])] = True
        if state in self.accepting:
            allowed[list(self.vocabulary.eos_ids)] = True
        return np.packbits(allowed, bitorder="little").view(np.uint32)

    def advance(self, state: int, token: int) -> int:
        if token in self.vocabulary.eos_ids:
            return state if state in self.accepting else -1
        return self.edges[state].get(token, -1)

    def is_accepting(self, state: int) -> bool:
        return state in self.accepting

    def distance(self, state: int) -> int:
        return self.distances[state]


@pytest.fixture(scope="session")
def table_guide() -> type[TableGuide]:
    """The class TableGuide."""
    return TableGuide
