"""Adapters of LoRA by name: each text is as a model with the adapter in its weights writes it, whatever runs beside."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers.pytorch_utils import Conv1D
from trellm import Beam, Engine, OptionError, Sample, generate, models

from .gguf_files.tiny import network_of, write_model
from .support import lora

PROMPTS = ["ab", "bca", "c", "abcabcabcabcabcabcab"]
RUN: dict[str, Any] = {"max_tokens": 9, "min_tokens": 9}
SETTINGS: dict[str, dict[str, Any]] = {
    "all": {"targets": (nn.Linear, Conv1D), "rank": 4, "alpha": 16},
    "few": {"targets": ("q_proj", "down_proj", "c_attn"), "rank": 2, "alpha": 3, "use_rslora": True},
    "other": {
        "targets": ("v_proj", "o_proj", "c_proj"),
        "rank": 3,
        "alpha": 8,
        "alpha_pattern": {"v_proj": 24, "mlp.c_proj": 9},
    },
}


def saved(network: Any, folder: Path, name: str, **changed: Any) -> str:
    """An adapter as PEFT saves it. changed: options of its configuration"""
    setting = SETTINGS[name]
    torch.manual_seed(sorted(SETTINGS).index(name) + 5)
    config = {"peft_type": "LORA", "r": setting["rank"], "lora_alpha": setting["alpha"], "bias": "none"}
    config |= {key: setting[key] for key in ("use_rslora", "alpha_pattern") if key in setting} | changed
    tensors: dict[str, torch.Tensor] = {}
    for path, module in network.named_modules():
        fits = isinstance(module, setting["targets"]) if name == "all" else path.endswith(setting["targets"])
        if not fits or path == "lm_head":
            continue
        size_in, size_out = module.weight.shape if isinstance(module, Conv1D) else module.weight.shape[::-1]
        for half, shape in (("A", (setting["rank"], size_in)), ("B", (size_out, setting["rank"]))):
            tensors[f"base_model.model.{path}.lora_{half}.weight"] = torch.randn(shape) * 0.4
    place = folder / name
    place.mkdir(exist_ok=True)
    (place / "adapter_config.json").write_text(json.dumps(config))
    save_file(tensors, place / "adapter_model.safetensors")
    return str(place)


def merged(network: Any, folder: Path, name: str) -> Any:
    """The network with an adapter in its weights."""
    setting, network = SETTINGS[name], copy.deepcopy(network)
    tensors = load_file(folder / name / "adapter_model.safetensors")
    for path, module in network.named_modules():
        key = f"base_model.model.{path}.lora_A.weight"
        if key in tensors:
            a, b = tensors[key], tensors[key.replace("lora_A", "lora_B")]
            alphas = [alpha for end, alpha in setting.get("alpha_pattern", {}).items() if path.endswith(end)]
            scale = (alphas or [setting["alpha"]])[0] / len(a) ** (0.5 if setting.get("use_rslora") else 1)
            delta = b @ a * scale
            with torch.no_grad():
                module.weight += delta.T if isinstance(module, Conv1D) else delta
    return network


class Case:
    """A model with three adapters, `model`, and those that it should write as, by adapter; None for none."""

    def __init__(self, network: Any, tokenizer: Any, folder: Path) -> None:
        self.places = {name: saved(network, folder, name) for name in SETTINGS}
        self.model = models.transformers(copy.deepcopy(network), tokenizer, adapters=self.places)
        alone = {name: models.transformers(merged(network, folder, name), tokenizer) for name in SETTINGS}
        self.alone: dict[str | None, Any] = {None: models.transformers(network, tokenizer), **alone}

    def written(self, name: str | None, **options: Any) -> list[str]:
        return [each.text for each in generate.text(self.alone[name]).run(PROMPTS, **RUN, **options)]


@pytest.fixture(scope="module", params=["llama", "gpt2", "qwen3"])
def case(request: Any, hugging_face: Any, tokenizer: Any, tmp_path_factory: Any) -> Case:
    return Case(hugging_face(request.param), tokenizer, tmp_path_factory.mktemp("adapters"))


def texts(found: Any) -> list[str]:
    return [each.text for each in found]


def test_each_alone(case: Case) -> None:
    free = generate.text(case.model)
    several = [texts(free.run(PROMPTS, **RUN, adapter=name)) for name in (None, *SETTINGS)]
    assert several == [case.written(name) for name in (None, *SETTINGS)]
    assert len({tuple(each) for each in several}) == 4, "adapters change what is written"


def test_all_in_one_batch(case: Case) -> None:
    """Three adapters and none, one prompt of each far longer, beside each other."""
    engine, free = Engine.of(case.model), generate.text(case.model)
    with engine._lock:  # so that they begin together
        handles = {name: engine.submit(free, PROMPTS, **RUN, adapter=name) for name in (None, *SETTINGS)}
    for name, handle in handles.items():
        assert texts(handle.result()) == case.written(name), name


def test_searches_and_constraints(case: Case) -> None:
    pattern = generate.regex(case.model, "[abc]{4,9}")
    for name in SETTINGS:
        assert case.written(name, search=Beam(3)) == texts(
            generate.text(case.model).run(PROMPTS, **RUN, search=Beam(3), adapter=name)
        )
        drawn = {"search": Sample(n=2), "seed": 4, "max_tokens": 12}
        assert texts(pattern.run("ab", **drawn, adapter=name)) == texts(
            generate.regex(case.alone[name], "[abc]{4,9}").run("ab", **drawn)
        )
        one, other = pattern.run("ab", adapter=name, logprobs=True), generate.regex(case.alone[name], "[abc]{4,9}")
        assert one.logprobs == pytest.approx(other.run("ab", logprobs=True).logprobs, abs=1e-4)


def test_what_was_read_is_not_shared_between_adapters(case: Case) -> None:
    long, free = "abcabcabc" * 9, generate.text(case.model)
    for name in ("all", None, "few", "all"):
        assert free.run(long, **RUN, adapter=name).text == generate.text(case.alone[name]).run(long, **RUN).text


def test_names_that_there_are_not(case: Case) -> None:
    assert case.model.adapters == tuple(SETTINGS)
    with pytest.raises(OptionError, match=r"'no'.*there are 'all', 'few', 'other'"):
        generate.text(case.model)("a", adapter="no")
    with pytest.raises(OptionError, match="loaded without adapters="):
        generate.text(case.alone[None])("a", adapter="all")


def test_beside_quantized_weights(hugging_face: Any, tokenizer: Any, tmp_path: Path) -> None:
    network = hugging_face("llama")
    places = {"few": saved(network, tmp_path, "few")}
    model = models.transformers(copy.deepcopy(network), tokenizer, weights="q8", adapters=places)
    plain = models.transformers(copy.deepcopy(network), tokenizer, weights="q8")
    free = generate.text(model)
    assert texts(free.run(PROMPTS, **RUN)) == texts(generate.text(plain).run(PROMPTS, **RUN))
    near = generate.text(models.transformers(merged(network, tmp_path, "few"), tokenizer))
    found, wanted = free.run("ab", **RUN, logprobs=True, adapter="few"), near.run("ab", **RUN, logprobs=True)
    assert found.logprobs[:2] == pytest.approx(wanted.logprobs[:2], abs=0.3)
    assert found.text != free.run("ab", **RUN).text


def test_beside_weights_of_a_gguf_file(tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    network = network_of("llama", 3)
    path, places = tmp_path / "m.gguf", {"few": saved(network, tmp_path, "few")}
    write_model(path, "llama", network, "Q8_0")
    free, plain = (generate.text(models.transformers(path, adapters=names)) for names in (places, None))
    assert texts(free.run(["true", "on"], **RUN)) == texts(plain.run(["true", "on"], **RUN))
    assert free.run("true", **RUN, adapter="few").text != free.run("true", **RUN).text


def test_embeddings(case: Case) -> None:
    for name in (None, "few"):
        ours = generate.embedding(case.model)("abc", adapter=name)
        assert ours == pytest.approx(generate.embedding(case.alone[name])("abc"), abs=1e-4)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"peft_type": "IA3"}, "only adapters of LoRA"),
        ({"bias": "all"}, "bias changes more"),
        ({"use_dora": True}, "use_dora changes more"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save changes more"),
        ({"alora_invocation_tokens": [5, 6]}, "alora_invocation_tokens changes more"),
        ({"init_lora_weights": "pissa_niter_4"}, "init_lora_weights changes the model's own weights"),
        ({"init_lora_weights": "OLoRA"}, "init_lora_weights changes the model's own weights"),
        ({"lora_alpha": math.nan}, "no numbers, or becomes so by its lora_alpha"),
        ({"lora_alpha": 1e300}, "no numbers, or becomes so by its lora_alpha"),
        ({"lora_alpha": 10**400}, "lora_alpha is a number"),
        ({"lora_alpha": None}, "lora_alpha is a number"),
        ({"lora_alpha": "x"}, "lora_alpha is a number"),
        ({"alpha_pattern": {"(": 3}}, "alpha_pattern has numbers by patterns"),
        ({"alpha_pattern": ["q_proj"]}, "alpha_pattern has numbers by patterns"),
    ],
)
def test_kinds_that_are_refused(
    changed: dict[str, Any], words: str, hugging_face: Any, tokenizer: Any, tmp_path: Path
) -> None:
    network = hugging_face("llama")
    with pytest.raises(OptionError, match=words):
        models.transformers(network, tokenizer, adapters={"a": saved(network, tmp_path, "few", **changed)})


def test_files_that_are_refused(hugging_face: Any, tokenizer: Any, tmp_path: Path, t5: Any) -> None:
    network = hugging_face("llama")
    place = Path(saved(network, tmp_path, "few"))

    def refused(words: str, adapters: Any = None, given: Any = network) -> None:
        with pytest.raises(OptionError, match=words):
            models.transformers(given, tokenizer, adapters={"a": place} if adapters is None else adapters)

    tensors = load_file(place / lora.FILES[1])
    key = next(key for key in tensors if "lora_A" in key)
    other = key.replace("lora_A", "lora_B")
    for words, wrong in (
        ("no part of a linear layer's adapter", {"base_model.model.lm_head.weight": tensors[key]}),
        ("no linear layer 'model.none' in its body", {"base_model.model.model.none.lora_A.weight": tensors[key]}),
        ("experts are run without", {"base_model.model.model.layers.0.mlp.experts.lora_A.weight": tensors[key]}),
        ("shapes of", {key: tensors[key][:, 1:]}),
        ("shapes of", {**tensors, other: tensors[key]}),
        ("different ranks", {**tensors, key: tensors[key][1:]}),
        ("the rank 0", {key: tensors[key][:0], other: tensors[other][:, :0]}),
        ("no numbers", {**tensors, key: tensors[key] / 0}),
        ("no layers", {}),
    ):
        save_file({name: value.clone() for name, value in wrong.items()}, place / lora.FILES[1])
        refused(words)
    config = (place / lora.FILES[0]).read_text()
    (place / lora.FILES[0]).write_text("[" * 100_000 + "]" * 100_000)
    refused("cannot be read")
    (place / lora.FILES[0]).write_text(config)
    (place / lora.FILES[1]).write_bytes(b"nothing")
    refused("cannot be read")
    (place / lora.FILES[1]).unlink()
    refused("has no adapter_model.safetensors")
    refused("by the names of adapters", {})
    refused("by the names of adapters", "sql")
    refused("which are texts", {3: place})
    refused("lone surrogate", {"\ud800": place})
    refused("encoder-decoder", {"a": str(tmp_path)}, t5())
