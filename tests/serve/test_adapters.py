"""Adapters of LoRA by their names in `model`."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from trellm import generate, models
from trellm.cli import main
from trellm.errors import OptionError
from trellm.serve import Settings, application

from .conftest import Running, running

RUN = {"prompt": "ab", "max_tokens": 8, "min_tokens": 8, "temperature": 0}


def _adapter(network: Any, folder: Path) -> str:
    torch.manual_seed(8)
    tensors = {}
    for name, module in network.named_modules():
        if name.endswith("q_proj") or name.endswith("down_proj"):
            path = f"base_model.model.{name}"
            tensors[f"{path}.lora_A.weight"] = torch.randn(2, module.in_features)
            tensors[f"{path}.lora_B.weight"] = torch.randn(module.out_features, 2)
    save_file(tensors, folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "lora_alpha": 4}))
    return str(folder)


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> Any:
    from tokenizers import Tokenizer, decoders
    from tokenizers.models import BPE

    alphabet = ["</s>", *map(chr, range(33, 127))]
    backend = Tokenizer(BPE({each: number for number, each in enumerate(alphabet)}, []))
    backend.decoder = decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="</s>")
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=len(alphabet), hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=256, eos_token_id=0, initializer_range=0.4,
    )  # fmt: skip
    network = LlamaForCausalLM(config).eval()
    place = _adapter(network, tmp_path_factory.mktemp("sql"))
    return models.transformers(network, tokenizer, adapters={"sql": place})


@pytest.fixture(scope="module")
def adapted(model: Any) -> Iterator[Running]:
    yield from running(model, Settings(name="base"))


def test_requests_name_adapters(adapted: Running, model: Any) -> None:
    free = generate.text(model)
    for name, adapter in (("base", None), ("sql", "sql"), ("base", None)):
        answer = adapted.post("/v1/completions", {**RUN, "model": name}).json()
        wanted = free.run("ab", max_tokens=8, min_tokens=8, adapter=adapter).text
        assert (answer["model"], answer["choices"][0]["text"]) == (name, wanted)
        events = adapted.events("/v1/completions", {**RUN, "model": name})
        assert {event["model"] for event in events} == {name}
        assert "".join(event["choices"][0]["text"] for event in events) == wanted
    assert free.run("ab", max_tokens=8).text != free.run("ab", max_tokens=8, adapter="sql").text


def test_other_addresses_do_too(adapted: Running) -> None:
    one, other = (adapted.post("/v1/embeddings", {"model": name, "input": "abc"}).json() for name in ("base", "sql"))
    assert one["data"][0]["embedding"] != other["data"][0]["embedding"] and other["model"] == "sql"


def test_they_are_listed(adapted: Running) -> None:
    base, adapter = adapted.http.get("/v1/models").json()["data"]
    assert "parent" not in base and (adapter["id"], adapter["parent"]) == ("sql", "base")
    assert adapted.http.get("/v1/models/sql").json() == adapter
    error = adapted.error("/v1/completions", {**RUN, "model": "other"}, 404)
    assert "the server has 'base', 'sql'" in error["message"]


def test_the_name_of_the_model_is_no_adapters(model: Any) -> None:
    with pytest.raises(OptionError, match="adapter 'sql' has the name of a model"):
        application(model, Settings(name="sql"))


def test_the_option(capsys: pytest.CaptureFixture[str]) -> None:
    for given, words in (
        (["a"], "expected NAME=PLACE"),
        (["a=b", "a=c"], "each name once"),
        (["a=b"], "that is named"),
    ):
        options = [part for each in given for part in ("--lora-modules", each)]
        assert main(["serve", *options]) == 2
        assert words in capsys.readouterr().err
