"""Graphs' launches: on a GPU if there is one, else uncaptured and by Triton's interpreter, in a run of their own."""

import copy
import os
from typing import Any

import pytest
import torch
from trellm import Greedy, Sample, generate, models

from ...thresholds import thresholds
from ..support import DecoderModel
from .support import UNKNOWN, DeviceStateTable

CUDA = torch.cuda.is_available()
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if CUDA and not INTERPRETED else "cpu"
PROMPTS = ["the 12", "on", "then the inn of thirteen 1"]
TOKENS = 60 if DEVICE == "cuda" else 9

needs_triton = pytest.mark.skipif(not (CUDA or INTERPRETED), reason="no GPU; TRITON_INTERPRET=1 takes its place")


class GraphDecoder(DecoderModel):
    """A model whose rows go on by themselves, here by Triton wherever it is."""

    stays = True
    made: Any = None

    def batch_backend(self, memory: Any, records: DeviceStateTable) -> Any:
        from .recorded import graphs

        assert self.parts is not None
        self.made = graphs.GraphBackend(*self.parts, memory, records, self.vocabulary, self.device)
        return self.made


def facts(found: Any) -> Any:
    several = found if isinstance(found, list) else [found]
    return [facts(each) if isinstance(each, list) else (each.text, each.token_ids) for each in several]


@needs_triton
@pytest.mark.parametrize("kind", ["text", "regex", "json"])
@pytest.mark.parametrize("name", ["llama", "gpt2"] if DEVICE == "cuda" else ["llama"])
def test_the_same_tokens_as_step_by_step(
    hugging_face: Any, tokenizer: Any, monkeypatch: Any, name: str, kind: str
) -> None:
    thresholds(monkeypatch, times_until_known=2)
    network = hugging_face(name)
    plain = models.transformers(network, tokenizer)
    model = GraphDecoder(copy.deepcopy(network).to(DEVICE), tokenizer)
    makers: dict[str, Any] = {
        "text": generate.text,
        "regex": lambda model: generate.regex(model, "([a-z]{1,9}[ .,])*"),
        "json": lambda model: generate.json(model, {"type": "array", "items": {"enum": [1, 22, "é"]}, "minItems": 2}),
    }
    ones, others = makers[kind](plain), makers[kind](model)
    for search in (Greedy(), Sample(temperature=0.8, top_k=7, top_p=0.9, n=2)):
        for prompts in (PROMPTS, PROMPTS[:1]):
            given = {"max_tokens": TOKENS, "search": search, "seed": 3}
            assert facts(others.run(prompts, **given)) == facts(ones.run(prompts, **given))
    assert model.made._graphs, "they did go on by themselves"
    known = model.made._tables.state_tables
    rows = known.dense[known.dense != UNKNOWN].long()
    assert kind != "regex" or (known.targets[rows] != UNKNOWN).any(), "and where all tokens lead was written"


@needs_triton
def test_weights_that_move_are_seen(hugging_face: Any, tokenizer: Any) -> None:
    network = copy.deepcopy(hugging_face("llama")).to(DEVICE)
    model = GraphDecoder(network, tokenizer)
    generator = generate.text(model)
    before = facts(generator.run("the", max_tokens=6))
    with torch.no_grad():
        for weights in network.parameters():
            weights.data = weights.data.flip(0).contiguous()
    other = models.transformers(copy.deepcopy(network).cpu(), tokenizer)
    after = facts(generate.text(other).run("the", max_tokens=6))
    assert after != before
    model._trellm_engine.close()  # type: ignore[attr-defined]
    assert facts(generator.run("the", max_tokens=6)) == after
