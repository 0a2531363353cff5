"""Models of safetensors whose weights are quantized when they are loaded, beside the same weights unpacked by gguf."""

# torch does not say of what its arguments are.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

import copy
import json
import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn
from transformers.pytorch_utils import Conv1D
from trellm import ModelError, OptionError, generate, models
from trellm.cli import main
from trellm.engine.downloads.registry import cache_folder
from trellm.engine.models.quantized.conversion import quantized
from trellm.engine.models.quantized.saved import WeightsSource, load_saved, save

from ..support import QuantizedEmbedding, QuantizedLinear, strangeness

gguf = pytest.importorskip("gguf")

IDS = torch.randint(0, 100, (2, 24), generator=torch.Generator().manual_seed(1))
PROMPTS = ["the 12th on", "true", "x"]
SIZES: Mapping[str, Any] = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "initializer_range": 0.2, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 256,
    "pad_token_id": None, "bos_token_id": None, "eos_token_id": 1,
}  # fmt: skip
GPT2: Mapping[str, Any] = {
    "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 256, "initializer_range": 0.2, "bos_token_id": None,
    "eos_token_id": 1,
}  # fmt: skip
EXPERTS: Mapping[str, Any] = {
    **SIZES, "num_experts": 48, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "shared_expert_intermediate_size": 64, "decoder_sparse_step": 1,
}  # fmt: skip
MAMBA: Mapping[str, Any] = {"hidden_size": 64, "num_hidden_layers": 2, "state_size": 8, "eos_token_id": 1}
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("Llama", SIZES),
    "qwen2-tied": ("Qwen2", {**SIZES, "tie_word_embeddings": True}),
    "gpt2": ("GPT2", GPT2),
    "gemma2": ("Gemma2", {**SIZES, "query_pre_attn_scalar": 16, "sliding_window": 8}),
    "gemma3": ("Gemma3", {**SIZES, "query_pre_attn_scalar": 16, "sliding_window": 8}),
    "qwen2-moe": ("Qwen2Moe", EXPERTS),
    "mamba": ("Mamba", MAMBA),  # whose code asks for the type of a weight, and computes with others itself
}
FORMATS = ("q8", "q4")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of what is kept, which is empty."""
    place: Path = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("TRELLM_HOME", str(place))
    return place


@pytest.fixture(scope="module")
def words(tokenizer: Any) -> Any:
    return tokenizer


def network_of(kind: str, words: Any) -> Any:
    """A model with random weights, whose logits are those of transformers."""
    name, options = KINDS[kind]
    library: Any = transformers
    config = getattr(library, "Gemma3TextConfig" if name == "Gemma3" else f"{name}Config")(
        **options, vocab_size=len(words)
    )
    torch.manual_seed(0)
    network = getattr(library, "GPT2LMHeadModel" if name == "GPT2" else f"{name}ForCausalLM")(config).eval()
    with torch.no_grad():
        for weights in network.parameters():
            if weights.ndim == 1:
                weights.add_(torch.randn(len(weights)) * 0.1)
    return network


def logits(network: Any) -> torch.Tensor:
    with torch.inference_mode():
        return network(IDS).logits


@torch.no_grad()
def unpacked(network: Any, form: str) -> Any:
    """A copy of a model with the numbers that quantized weights stand for, as gguf makes and unpacks them."""
    made, ends = copy.deepcopy(network), (network.get_input_embeddings().weight, network.get_output_embeddings().weight)
    for path, layer in quantized(network, form).layers.items():
        weight = network.get_submodule(path).weight
        is_end = any(weight is end for end in ends)
        number = gguf.GGMLQuantizationType["Q8_0" if form == "q8" or is_end else "Q4_1"]
        assert layer.kind == number.name
        turned = isinstance(network.get_submodule(path), Conv1D)
        numbers = gguf.dequantize(gguf.quantize((weight.T if turned else weight).contiguous().numpy(), number), number)
        made.get_submodule(path).weight.copy_(torch.as_tensor(numbers.T if turned else numbers))
    return made


def saved_model(folder: Path, network: Any, words: Any) -> Path:
    network.save_pretrained(folder)
    words.save_pretrained(folder)
    return folder


def inner(model: Any) -> Any:
    """The network in a model of ours."""
    return model.model


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_near_those_of_the_numbers_that_weights_stand_for(
    kind: str, form: str, words: Any, tmp_path: Path
) -> None:
    """By name, first made and then from the cache, and of an object: all three are the same."""
    network = network_of(kind, words)
    before = {name: weights.clone() for name, weights in network.state_dict().items()}
    folder = saved_model(tmp_path, network, words)
    made = [models.transformers(folder, weights=form), models.transformers(str(folder), weights=form)]
    made.append(models.transformers(network, words, weights=form))
    first, *others = (logits(inner(model)) for model in made)
    # Last bits of torch's own products, of experts, depend on where in memory weights begin.
    near = 0.01 * first.std() if kind == "qwen2-moe" else 0
    assert all((other - first).abs().max() <= near for other in others)
    expected = logits(unpacked(network, form))
    assert (first - expected).abs().mean() < 0.05 * expected.std()
    after = network.state_dict()
    assert all(torch.equal(after[name], weights) for name, weights in before.items())
    assert strangeness(network) is None


LEFT: Mapping[str, tuple[set[str], set[str]]] = {
    "llama": (set(), set()),
    "qwen2-tied": (set(), set()),
    "gpt2": (set(), {"transformer.wpe.weight"}),
    "gemma2": (set(), set()),
    "gemma3": (set(), set()),
    "mamba": ({"x_proj", "dt_proj", "out_proj"}, {"A_log", "conv1d.weight"}),
    "qwen2-moe": ({"mlp.shared_expert_gate"}, {"mlp.gate.weight", "mlp.experts.gate_up_proj", "mlp.experts.down_proj"}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_all_layers_but_small_ones_are_quantized(kind: str, words: Any) -> None:
    found = inner(models.transformers(network_of(kind, words), words, weights="q4"))
    layers, others = LEFT[kind]
    plain = [path for path, module in found.named_modules() if type(module) in (nn.Linear, Conv1D)]
    assert all(any(path.endswith(end) for end in layers) for path in plain)
    large = [path for path, weights in found.named_parameters() if weights.ndim > 1]
    assert all(any(path.endswith(end) for end in [*others, *(f"{each}.weight" for each in layers)]) for path in large)
    assert bool(layers) == bool(plain)
    assert {type(found.get_output_embeddings()), type(found.get_input_embeddings())} == {
        QuantizedLinear,
        QuantizedEmbedding,
    }
    assert all(weights.dtype == torch.float32 for weights in found.parameters())


def file_of(home: Path) -> Path:
    (found,) = (home / "weights").iterdir()
    return found


@pytest.mark.parametrize("kind", ["qwen2-tied", "gpt2"])
def test_tied_heads_stay_tied(kind: str, words: Any, home: Path, tmp_path: Path) -> None:
    found = inner(models.transformers(saved_model(tmp_path, network_of(kind, words), words), weights="q4"))
    assert found.get_output_embeddings().matrix is found.get_input_embeddings().matrix
    assert found.get_output_embeddings().matrix.kind == "Q8_0"
    with safe_open(str(file_of(home)), "pt") as file:
        shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
    assert shapes.count([len(words), 2 * 34]) == 1


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="the system does not say what is mapped")
def test_saved_weights_are_mapped(words: Any, home: Path, tmp_path: Path) -> None:
    model = models.transformers(saved_model(tmp_path, network_of("llama", words), words), weights="q8")
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if str(home) in line]
    ranges = [tuple(int(end, 16) for end in line[0].split("-")) for line in lines]
    network = inner(model)
    matrices = [module.matrix.data for module in network.modules() if hasattr(module, "matrix")]
    places = [data.ctypes.data for data in matrices] + [weights.data_ptr() for weights in network.parameters()]
    assert len(places) > 16
    assert all(any(begin <= place < end for begin, end in ranges) for place in places)
    assert not any(data.flags.writeable for data in matrices)


def test_weights_are_read_from_the_cache_and_nowhere_else(words: Any, home: Path, tmp_path: Path) -> None:
    """The model's own file is no longer what it was, though it has the size and the time."""
    network = network_of("llama", words)
    network.generation_config.eos_token_id = [1, 2]
    folder = saved_model(tmp_path, network, words)
    first = generate.text(models.transformers(folder, weights="q8"))(PROMPTS, max_tokens=8)
    file = folder / "model.safetensors"
    before = file.stat()
    file.write_bytes(bytes(before.st_size))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    again = models.transformers(folder, weights="q8")
    assert generate.text(again)(PROMPTS, max_tokens=8) == first
    assert set(again.vocabulary.eos_ids) == {1, 2}
    assert inner(again).config.dtype == torch.float32
    assert file_of(home).name.startswith(f"{folder.name}-q8-")
    assert cache_folder("weights") == home / "weights"


def test_a_weight_that_is_computed_with_shows(words: Any) -> None:
    """Of quantized layers there is a weight for its type, size and place only."""
    found = inner(models.transformers(network_of("llama", words), words, weights="q8"))
    for module in (found.lm_head, found.model.embed_tokens):
        assert (module.weight.shape, module.weight.dtype, module.weight.device.type) == (
            (108, 64),
            torch.float32,
            "cpu",
        )
        assert bool(module.weight.isnan().all())
        assert "weight" not in module.state_dict()


def test_each_format_has_a_file_of_its_own(words: Any, home: Path, tmp_path: Path) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    sizes = {
        inner(models.transformers(folder, weights=form)).model.layers[0].mlp.up_proj.matrix.kind for form in FORMATS
    }
    assert sizes == {"Q8_0", "Q4_1"}
    assert len(list((home / "weights").iterdir())) == 2


def rewritten(data: bytes, how: str) -> bytes:
    size = int.from_bytes(data[:8], "little")
    match how:
        case "cut":
            return data[:-100]
        case "empty":
            return b""
        case "a bit":
            return data[:-1000] + bytes([data[-1000] ^ 1]) + data[-999:]
        case "zeros":
            return bytes(len(data))
        case "names":
            head = data[8 : 8 + size].replace(b"model.norm.weight", b"model.morn.weight")
            return data[:8] + head + data[8 + size :]
        case _:
            head = json.loads(data[8 : 8 + size])
            del head["__metadata__"]
            text = json.dumps(head).encode().ljust(size)
            return data[:8] + text + data[8 + size :]


@pytest.mark.parametrize("how", ["cut", "empty", "a bit", "zeros", "names", "nothing said"])
def test_a_damaged_file_is_made_again(
    how: str, words: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    expected = logits(inner(models.transformers(folder, weights="q8")))
    file = file_of(home)
    damaged = home / "damaged"
    damaged.write_bytes(rewritten(file.read_bytes(), how))
    damaged.replace(file)
    found = models.transformers(folder, weights="q8")
    assert torch.equal(logits(inner(found)), expected)
    (line,) = (record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING)
    assert str(file) in line and line.endswith("it is made again")
    caplog.clear()
    assert torch.equal(logits(inner(models.transformers(folder, weights="q8"))), expected)
    assert not caplog.records


def test_a_file_of_other_weights_is_made_again(
    words: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = network_of("llama", words)
    folder = saved_model(tmp_path, network, words)
    before = models.transformers(folder, weights="q8")
    old = logits(inner(before))
    with torch.no_grad():
        network.model.layers[0].mlp.up_proj.weight.mul_(2)
    network.save_pretrained(folder)
    found = models.transformers(folder, weights="q8")
    assert "was made of other files" in caplog.text
    assert torch.equal(logits(inner(found)), logits(inner(models.transformers(network, words, weights="q8"))))
    assert not torch.equal(logits(inner(found)), old)
    assert torch.equal(logits(inner(before)), old)
    file_of(home)


def test_several_at_once_do_no_harm(words: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    made: list[Any] = []
    threads = [Thread(target=lambda: made.append(models.transformers(folder, weights="q8"))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first, *others = (logits(inner(model)) for model in made)
    assert len(others) == 2 and all(torch.equal(other, first) for other in others)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    file_of(home)


def test_several_that_write_one_file_do_no_harm(words: Any, home: Path, tmp_path: Path) -> None:
    """As processes do: whoever reads meanwhile sees a whole file."""
    network = network_of("llama", words)
    source = WeightsSource.of(str(saved_model(tmp_path, network, words)), network.config, "q8")
    assert source is not None
    weights, found = quantized(network, "q8"), list[Any]()
    save(source, weights, None)
    threads = [Thread(target=save, args=(source, weights, None)) for _ in range(4)]
    threads += [Thread(target=lambda: found.append(load_saved(source))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(each is not None for each in found)
    file_of(home)


def test_what_was_left_behind_is_removed(words: Any, home: Path, tmp_path: Path) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    models.transformers(folder, weights="q8")
    file = file_of(home)
    old, new = (file.with_name(f"{file.name}.{name}.tmp") for name in ("1-old", "2-new"))
    for left in (old, new):
        left.write_bytes(b"x")
    os.utime(old, (1, 1))
    file.unlink()
    models.transformers(folder, weights="q8")
    assert sorted(each.name for each in (home / "weights").iterdir()) == sorted([file.name, new.name])


def test_a_cache_that_cannot_be_written_is_said(
    words: Any, home: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (home / "weights").write_text("a file")
    folder = saved_model(tmp_path, network_of("llama", words), words)
    model = models.transformers(folder, weights="q8")
    assert "cannot be saved" in caplog.text
    assert isinstance(inner(model).lm_head, QuantizedLinear)


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"weights": "q5"}, "weights='q5': one of 'q8', 'q4'"),
        ({"weights": "q8", "dtype": "bfloat16"}, "dtype='bfloat16' and weights='q8': .* run on a CPU"),
        ({"weights": "q8", "device_map": "auto"}, "device_map='auto' and weights='q8'"),
        ({"weights": "q8", "quantization_config": {"load_in_4bit": True}}, "quantization_config=.* and weights='q8'"),
        ({"weights": "q4", "adapter": "somebody/lora"}, "adapter='somebody/lora' and weights='q4'"),
    ],
)
def test_options_that_exclude_each_other(options: dict[str, Any], match: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=match):
        models.transformers(tmp_path, **options)


def test_usual_options_are_taken(words: Any, tmp_path: Path) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    options: dict[str, Any] = {"device": "cpu", "dtype": torch.float32, "attn_implementation": "eager"}
    for _ in range(2):
        network = inner(models.transformers(folder, weights="q8", **options))
        assert network.config._attn_implementation == "eager"


def test_objects_that_cannot_be_quantized(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of("llama", words)
    with pytest.raises(OptionError, match=r"is in training; .* call eval"):
        models.transformers(network.train(), words, weights="q8")
    network.eval()
    with pytest.raises(OptionError, match="dtype= is for a model that is given by name"):
        models.transformers(network, words, weights="q8", dtype="float32")
    once = inner(models.transformers(network, words, weights="q8"))
    with pytest.raises(OptionError, match="has no linear layer or embedding that can be quantized"):
        models.transformers(once, words, weights="q8")


def test_an_encoder_decoder_model_is_refused(t5: Any, words: Any, tmp_path: Path) -> None:
    folder = saved_model(tmp_path, t5(), words)
    for given in ((folder,), (t5(), words)):
        with pytest.raises(OptionError, match="this is an encoder-decoder model"):
            models.transformers(*given, weights="q8")


def test_a_model_that_is_quantized_already(words: Any, tmp_path: Path) -> None:
    network = network_of("llama", words)
    network.config.quantization_config = {"quant_method": "fp8"}
    network.config.save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(OptionError, match="are quantized already"):
        models.transformers(tmp_path, words, weights="q8")


def test_a_model_in_bfloat16_is_run_in_float32(words: Any) -> None:
    network = network_of("llama", words).to(torch.bfloat16)
    found = inner(models.transformers(network, words, weights="q8"))
    expected = logits(unpacked(network.float(), "q8"))
    assert found.dtype == torch.float32
    assert (logits(found) - expected).abs().mean() < 0.05 * expected.std()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e6])
def test_weights_that_cannot_be_stored(number: float, words: Any) -> None:
    network = network_of("llama", words)
    with torch.no_grad():
        network.model.layers[1].mlp.down_proj.weight[3, 5] = number
    with pytest.raises(ModelError, match=r"model\.layers\.1\.mlp\.down_proj\.weight has weights that are infinite"):
        models.transformers(network, words, weights="q4")


def test_the_command_takes_them(words: Any, home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved_model(tmp_path, network_of("llama", words), words)
    expected = generate.text(models.transformers(folder, weights="q4"))("the", max_tokens=5)
    asked = ["generate", "-m", str(folder), "-p", "the", "--max-tokens", "5"]
    assert main([*asked, "--weights", "q4"]) == 0
    assert capsys.readouterr().out == f"{expected}\n"
    assert file_of(home).name.startswith(f"{folder.name}-q4-")
    refused = {
        "--weights 'q5': one of 'q8', 'q4'": ["--weights", "q5"],
        "--dtype 'float16' and --weights 'q8'": ["--weights", "q8", "--dtype", "float16"],
    }
    for said, wrong in refused.items():
        assert main([*asked, *wrong]) == 2
        assert said in capsys.readouterr().err


def test_the_package_gguf_is_asked_for(words: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(OptionError, match=r"pip install 'trellm\[gguf\]'"):
        models.transformers(network_of("llama", words), words, weights="q8")
