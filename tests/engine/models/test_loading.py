"""How models are loaded by name, adapters of PEFT, and models that accelerate spreads."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from trellm import Beam, Generator, OptionError, models

from .support import entry_device, is_absent, is_spread, tolerance

PROMPTS = ["the 12th", "x", "an inning then on"]
PARTS = ["model.embed_tokens", "model.layers.0", "model.layers.1", "model.norm", "model.rotary_emb", "lm_head"]
CODE = """
from transformers import LlamaConfig, LlamaForCausalLM


class OwnConfig(LlamaConfig):
    model_type = "own"


class OwnModel(LlamaForCausalLM):
    config_class = OwnConfig
"""

needs_peft = pytest.mark.skipif(find_spec("peft") is None, reason="peft is not installed")
needs_accelerate = pytest.mark.skipif(find_spec("accelerate") is None, reason="accelerate is not installed")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any, hugging_face: Callable[[str], Any], tokenizer: Any) -> Path:
    """A small Llama, saved."""
    place: Path = tmp_path_factory.mktemp("llama")
    hugging_face("llama").save_pretrained(place)
    tokenizer.save_pretrained(place)
    return place


@pytest.fixture(scope="module")
def peft() -> Any:
    return import_module("peft")


@pytest.fixture(scope="module")
def with_lora(folder: Path, peft: Any) -> Callable[..., Any]:
    def make(**options: Any) -> Any:
        torch.manual_seed(3)
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        config = peft.LoraConfig(r=4, task_type="CAUSAL_LM", init_lora_weights=False, **options)
        return peft.get_peft_model(network, config).eval()

    return make


def written(network: Any, tokenizer: Any, **options: Any) -> list[list[int]]:
    """What transformers writes."""
    texts: list[list[int]] = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt)])
        out = network.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=7, do_sample=False, **options
        )
        new = out[0, ids.shape[1] :].tolist()
        texts.append(new[: new.index(1)] if 1 in new else new)
    return texts


def ours(model: Any, **options: Any) -> list[list[int]]:
    return [list(result.token_ids) for result in Generator(model).run(PROMPTS, max_tokens=7, heal=False, **options)]


def test_options_reach_what_loads(folder: Path) -> None:
    model: Any = models.transformers(folder, dtype="bfloat16", attn_implementation="eager", trust_remote_code=False)
    assert model.model.dtype == torch.bfloat16 and model.model.config._attn_implementation == "eager"
    assert models.transformers(str(folder)).model.config._attn_implementation == "sdpa"


def test_a_revision_is_asked_for(folder: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, of the configuration, the weights and the tokenizer."""
    asked: list[tuple[str, Any]] = []

    def asking(kind: Any) -> None:
        plain = kind.from_pretrained

        def load(name: str, revision: Any = None, **options: Any) -> Any:
            asked.append((name, revision))
            return plain(folder, **options)

        monkeypatch.setattr(kind, "from_pretrained", load)

    for kind in (transformers.AutoConfig, transformers.AutoModelForCausalLM, transformers.AutoTokenizer):
        asking(kind)
    models.transformers("somebody/llama", revision="v2")
    assert [each for each in asked if each[0] == "somebody/llama"] == [("somebody/llama", "v2")] * 3


def test_code_that_comes_with_a_model_runs_if_it_may(
    folder: Path, tmp_path: Path, tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transformers.dynamic_module_utils as dynamic

    monkeypatch.setattr(dynamic, "HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.syspath_prepend(str(tmp_path / "modules"))
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"model_type": "own", "architectures": ["OwnModel"]}
    config["auto_map"] = {"AutoConfig": "own.OwnConfig", "AutoModelForCausalLM": "own.OwnModel"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "own.py").write_text(CODE)
    with pytest.raises(OptionError, match=r"Python code of its own.*trust_remote_code=True"):
        models.transformers(tmp_path)
    model: Any = models.transformers(tmp_path, trust_remote_code=True)
    assert type(model.model).__name__ == "OwnModel"
    assert ours(model) == ours(models.transformers(folder))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"revision": "main"}, "is a folder, which has no revisions"),
        ({"revision": 3}, "a branch, a tag or a commit"),
        ({"device": "cpu", "device_map": "auto"}, "give one of them"),
        ({"device_map": {}}, "a dict of devices by the names of modules"),
        ({"device_map": {"model": "moon"}}, r"device_map\['model'\]='moon': a device, or 'disk'"),
        ({"device_map": "cuda:99"}, "'balanced', 'balanced_low_0', 'sequential', a device"),
        ({"attn_implementation": ""}, "'sdpa' or 'eager'"),
        ({"attn_implementation": "sdpb"}, r"cannot be loaded .*sdpb.*attn_implementation= fit the model"),
        ({"quantization_config": 4}, r"such as BitsAndBytesConfig\(\.\.\.\)"),
        ({"quantization_config": {"quant_method": "none"}}, r"quantization_config= fit the model"),
        ({"trust_remote_code": 1}, "trust_remote_code"),
        ({"adapter": 5}, "adapter=5: a name on the Hugging Face Hub, or a folder"),
        ({"adapter": "./nowhere"}, "adapter='./nowhere': there is no such folder"),
    ],
)
def test_what_does_not_fit_is_refused(folder: Path, options: dict[str, Any], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        models.transformers(folder, **options)


@pytest.mark.skipif(find_spec("bitsandbytes") is not None, reason="bitsandbytes is installed")
def test_a_quantization_names_the_package_that_it_needs(folder: Path) -> None:
    with pytest.raises(OptionError, match=r"bitsandbytes.*quantization_config= fit"):
        models.transformers(folder, quantization_config=transformers.BitsAndBytesConfig(load_in_4bit=True))


def test_a_loaded_model_is_loaded_already(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    with pytest.raises(OptionError, match="dtype= is for a model that is given by name"):
        models.transformers(hugging_face("llama"), tokenizer, dtype="float32")


def test_quantized_layers_may_round_what_they_multiply(hugging_face: Callable[[str], Any]) -> None:
    network = hugging_face("llama")
    plain = tolerance(network, torch.float32)
    network.hf_quantizer = object()
    try:
        assert tolerance(network, torch.float32) > 10 * plain
    finally:
        del network.hf_quantizer


@needs_peft
@pytest.mark.filterwarnings("ignore:.is_gradient_checkpointing. is deprecated:FutureWarning")  # peft 0.21
class TestAdapters:
    @pytest.mark.parametrize(
        "options",
        [{}, {"target_modules": ["q_proj", "lm_head"]}, {"target_modules": ["v_proj"], "modules_to_save": ["lm_head"]}],
        ids=["attention", "head", "saved-head"],
    )
    def test_in_a_loaded_model(self, with_lora: Any, options: dict[str, Any], folder: Path, tokenizer: Any) -> None:
        network = with_lora(**options)
        model = models.transformers(network, tokenizer)
        assert written(network, tokenizer) == ours(model) != ours(models.transformers(folder))
        assert written(network, tokenizer, num_beams=3) == ours(model, search=Beam(3))

    def test_by_name(self, with_lora: Any, folder: Path, tokenizer: Any, tmp_path: Path) -> None:
        network = with_lora(target_modules=["q_proj", "down_proj"])
        network.save_pretrained(tmp_path)
        model: Any = models.transformers(folder, adapter=tmp_path)
        assert type(model.model).__name__ == "LlamaForCausalLM"
        assert not any("lora" in name for name, _ in model.model.named_parameters()), "it is in the weights"
        assert ours(model) == written(network, tokenizer) != ours(models.transformers(folder))

    @needs_accelerate
    def test_weights_on_the_disk_take_none(
        self, with_lora: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        with_lora().save_pretrained(tmp_path)
        places = {part: "disk" if part == "model.layers.1" else "cpu" for part in PARTS}
        with pytest.raises(OptionError, match=r"device_map=.*merge"):
            models.transformers(folder, adapter=tmp_path, device_map=places)

    def test_those_before_the_prompt_are_refused(self, folder: Path, peft: Any, tokenizer: Any, tmp_path: Path) -> None:
        network = transformers.AutoModelForCausalLM.from_pretrained(folder)
        network = peft.get_peft_model(network, peft.PromptTuningConfig(num_virtual_tokens=2, task_type="CAUSAL_LM"))
        with pytest.raises(OptionError, match=r"'default' of PeftModelForCausalLM .*PROMPT_TUNING.* such as LoRA"):
            models.transformers(network, tokenizer)
        network.save_pretrained(tmp_path)
        with pytest.raises(OptionError, match="PROMPT_TUNING"):
            models.transformers(folder, adapter=tmp_path)

    def test_what_is_no_adapter_of_the_model(self, with_lora: Any, folder: Path, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match=r"has no adapter_config\.json"):
            models.transformers(folder, adapter=tmp_path)
        with_lora().save_pretrained(tmp_path)
        config = json.loads((tmp_path / "adapter_config.json").read_text())
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"target_modules": ["no_such_layer"]}))
        with pytest.raises(OptionError, match=r"no_such_layer.*trained for this model"):
            models.transformers(folder, adapter=tmp_path)
        (tmp_path / "adapter_config.json").write_text(json.dumps(config | {"peft_type": "NONE"}))
        with pytest.raises(OptionError, match="cannot be loaded"):
            models.transformers(folder, adapter=tmp_path)


def test_an_adapter_needs_peft(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "peft", None)
    with pytest.raises(OptionError, match="pip install peft"):
        models.transformers(folder, adapter=folder)


@needs_accelerate
class TestSpread:
    @pytest.mark.parametrize("away", ["model.embed_tokens", "model.layers.1", "lm_head", "model"])
    def test_weights_on_the_disk(
        self, away: str, folder: Path, tokenizer: Any, tmp_path: Path, hugging_face: Any, monkeypatch: Any
    ) -> None:
        monkeypatch.chdir(tmp_path)  # where transformers puts what is on the disk, unless it lies there already
        parts = ["model", "lm_head"] if away == "model" else PARTS
        model: Any = models.transformers(folder, device_map={part: "disk" if part == away else "cpu" for part in parts})
        assert any(weights.device.type == "meta" for weights in model.model.parameters())
        assert is_spread(model.model) and not is_absent(model.model) and model.device == torch.device("cpu")
        assert ours(model) == written(hugging_face("llama"), tokenizer)
        assert ours(model, search=Beam(3)) == written(hugging_face("llama"), tokenizer, num_beams=3)
        assert model.sparse_head_limit == 0 and model.parts is None, "weights are where their layers are called"

    def test_all_on_one_device_is_as_ever(self, folder: Path, decoder: Callable[[str], Any]) -> None:
        for device_map in ("auto", "cpu"):
            model: Any = models.transformers(folder, device_map=device_map)
            assert not is_spread(model.model) and model.parts is not None
            assert ours(model) == ours(decoder("llama"))

    def test_an_encoder_and_a_decoder(self, tokenizer: Any, tmp_path: Path, monkeypatch: Any) -> None:
        monkeypatch.chdir(tmp_path)
        torch.manual_seed(1)
        config = transformers.T5Config(
            vocab_size=128, d_model=32, d_kv=8, d_ff=48, num_layers=1, num_decoder_layers=1, num_heads=4,
            decoder_start_token_id=0, pad_token_id=1, eos_token_id=1,
        )  # fmt: skip
        transformers.T5ForConditionalGeneration(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        places = {"shared": "cpu", "encoder": "cpu", "lm_head": "cpu"}
        parts = ["embed_tokens", "block.0", "final_layer_norm", "dropout"]
        beside = {f"decoder.{part}": "disk" if part == "block.0" else "cpu" for part in parts}
        model = models.transformers(tmp_path, device_map=places | beside)
        assert is_spread(model.model) and ours(model) == ours(models.transformers(tmp_path))
        # Embeddings that two modules share are on the disk for one of them only, so that accelerate finds none.
        with pytest.raises(OptionError, match=r"T5ForConditionalGeneration cannot be run \(KeyError"):
            models.transformers(tmp_path, device_map=places | {"decoder": "disk"})


def test_where_ids_go_of_a_model_whose_weights_are_brought() -> None:
    """accelerate says on each module's hook where it runs; the model says 'meta'."""
    hook = type("Hook", (), {"execution_device": "cpu", "offload": True})()
    network = torch.nn.Sequential(torch.nn.Linear(2, 2, device="meta"))
    network.device = torch.device("meta")
    assert is_absent(network)
    network[0]._hf_hook = type("Several", (), {"hooks": [hook]})()
    assert not is_absent(network) and is_spread(network) and entry_device(network) == torch.device("cpu")


def test_a_text_is_as_long_as_the_biases_of_mpt(tokenizer: Any) -> None:
    config = transformers.MptConfig(d_model=32, n_layers=1, n_heads=4, max_seq_len=24, vocab_size=128)
    model = models.transformers(transformers.MptForCausalLM(config).eval(), tokenizer)
    assert model.context == 24
    with pytest.raises(OptionError, match="24"):
        Generator(model).run("abc", max_tokens=40)
    assert len(Generator(model).run("abc", max_tokens=20, min_tokens=20, heal=False).token_ids) == 20
