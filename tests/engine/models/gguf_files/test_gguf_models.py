"""Models of GGUF files beside those of transformers with the same weights, and what files are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from trellm import ModelError, OptionError, generate, models

from ..support import QuantizedEmbedding, QuantizedLinear, load_gguf, strangeness
from .tiny import KINDS, SIZES, network_of, write_model

gguf = pytest.importorskip("gguf")

IDS = torch.randint(0, 256, (2, 40), generator=torch.Generator().manual_seed(1))
PROMPTS = ["the 12th on", "true", '{"a": 1, "b"']


def logits(network: Any) -> torch.Tensor:
    with torch.inference_mode():
        return network(IDS).logits


@pytest.mark.parametrize("weights", ["F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", KINDS)
def test_logits_are_those_of_transformers(kind: str, weights: str, tmp_path: Path) -> None:
    """But for the order of sums in float32."""
    network = network_of(kind)
    write_model(tmp_path / "m.gguf", kind, network, weights)
    found, _ = load_gguf(tmp_path / "m.gguf")
    torch.testing.assert_close(logits(found), logits(network), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("weights", ["Q8_0", "Q4_1"])
@pytest.mark.parametrize("kind", KINDS)
def test_quantized_weights_give_logits_near_those_of_their_numbers(kind: str, weights: str, tmp_path: Path) -> None:
    """States are rounded to 8 bits, which in so small a model with random weights shows more than in a trained one."""
    network = network_of(kind)
    write_model(tmp_path / "m.gguf", kind, network, weights)
    found, _ = load_gguf(tmp_path / "m.gguf")
    expected = logits(network)
    assert (logits(found) - expected).abs().mean() < 0.05 * expected.std()


@pytest.mark.parametrize("weights", ["Q4_0", "F32", "F16", "BF16"])
@pytest.mark.parametrize("kind", ["qwen3", "llama-linear"])
def test_all_products_stay_as_they_are_and_mapped(kind: str, weights: str, tmp_path: Path) -> None:
    """Also those whose rows lie in another order."""
    write_model(tmp_path / "m.gguf", kind, network_of(kind), weights)
    found, _ = load_gguf(tmp_path / "m.gguf")
    assert strangeness(found) is None
    assert {type(module) for path, module in found.named_modules() if path.endswith(("_proj", "lm_head"))} == {
        QuantizedLinear
    }
    assert isinstance(found.get_input_embeddings(), QuantizedEmbedding)
    assert found.lm_head.matrix is found.get_input_embeddings().matrix
    assert all(weights.ndim == 1 for weights in found.parameters())
    for module in found.modules():
        if isinstance(module, QuantizedLinear):
            assert not module.matrix.data.flags.owndata
            assert not module.matrix.data.flags.writeable


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("kind", "weights"), [("llama", "Q4_1"), ("gemma3", "Q8_0"), ("phi3", "F16")])
def test_weights_are_unpacked_for_other_types(kind: str, weights: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """As they are for a GPU: transformers' own modules, with the numbers that quantized weights stand for."""
    network = network_of(kind)
    write_model(tmp_path / "m.gguf", kind, network, weights)
    model = models.gguf(tmp_path / "m.gguf", dtype=dtype)
    assert {weights.dtype for weights in model.model.parameters()} == {dtype}
    assert not any(isinstance(module, QuantizedLinear) for module in model.model.modules())
    expected = logits(network.to(dtype)).double()
    assert (logits(model.model) - expected).abs().max() < (1e-4 if dtype == torch.float64 else 0.1) * expected.std()


@pytest.mark.parametrize("weights", ["F32", "Q8_0"])
def test_texts_are_those_of_the_same_network(weights: str, tmp_path: Path) -> None:
    """However it is given, and with a cache or without; of plain weights, beside transformers' own modules."""
    path = tmp_path / "m.gguf"
    network = network_of("llama", 3)
    write_model(path, "llama", network, weights)
    made = [models.gguf(path), models.gguf(str(path), cache=False), models.transformers(path)]
    made.append(models.transformers(*load_gguf(path)))
    if weights == "F32":
        network.generation_config.eos_token_id = [268, 269]
        made.append(models.transformers(network, load_gguf(path)[1]))
    first, *others = ([generate.text(model)(prompt, max_tokens=12) for prompt in PROMPTS] for model in made)
    assert all(other == first for other in others)
    assert generate.regex(made[0], "[0-9]{3}")("on", max_tokens=3).isdigit()


def test_what_ends_a_text_and_begins_one(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, "llama", network_of("llama"), words={"eom_token_id": 270})
    model = models.gguf(path)
    assert set(model.vocabulary.eos_ids) == {268, 269, 270}
    assert model.begin_id == 267
    assert all(model.vocabulary.tokens[token] is None for token in range(271, 288))


@pytest.mark.parametrize(
    ("options", "match"),
    [({"revision": "main"}, "revision='main'"), ({"quantization_config": {}}, "quantization_config"),
     ({"attn_implementation": "eager"}, "attn_implementation"), ({"device_map": "auto"}, "device_map")],
)  # fmt: skip
def test_options_that_are_not_for_files_are_refused(options: dict[str, Any], match: str, tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", "llama", network_of("llama"))
    with pytest.raises(OptionError, match=f"{match}.*from the file"):
        models.transformers(tmp_path / "m.gguf", **options)


def test_usual_options_and_absent_files(tmp_path: Path) -> None:
    write_model(tmp_path / "m.gguf", "llama", network_of("llama"))
    models.transformers(str(tmp_path / "m.gguf"), device="cpu", dtype="float32")
    with pytest.raises(OptionError, match="there is no such file"):
        models.transformers("absent.gguf")
    with pytest.raises(OptionError, match="the path of a file"):
        models.gguf(7)
    with pytest.raises(ModelError, match=r"absent\.gguf: cannot be read"):
        models.gguf("absent.gguf")
    wrong: list[tuple[dict[str, Any], str]] = [({"n_ctx": 9}, "as long as the model's"), ({"devise": "cpu"}, "device=")]
    for others, said in wrong:
        with pytest.raises(OptionError, match=said):
            models.gguf(tmp_path / "m.gguf", **others)


def test_the_package_gguf_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_model(tmp_path / "m.gguf", "llama", network_of("llama"))
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(OptionError, match=r"pip install 'trellm\[gguf\]'"):
        models.gguf(tmp_path / "m.gguf")


HIDDEN, WORDS = SIZES["hidden_size"], SIZES["vocab_size"]
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a missing tensor": ({"tensors": {"blk.1.ffn_up.weight": None}}, "the tensor 'blk.1.ffn_up.weight' is missing"),
    "no embedding": ({"tensors": {"token_embd.weight": None}}, "the tensor 'token_embd.weight' is missing"),
    "a superfluous tensor": (
        {"tensors": {"blk.0.attn_sinks.weight": np.ones(4, np.float32)}}, "has no use for the tensors 'blk.0.attn_sinks"
    ),
    "a norm of another size": (
        {"tensors": {"blk.1.attn_norm.weight": np.ones(32, np.float32)}},
        "the tensor 'blk.1.attn_norm.weight' has the shape (32,); (64,) is expected",
    ),
    "a product of another size": (
        {"tensors": {"blk.0.attn_k.weight": np.ones((64, 64), np.float32)}}, "has the shape (64, 64); (32, 64) is"
    ),
    "NaN": (
        {"tensors": {"output_norm.weight": np.full(64, np.nan, np.float32)}}, "'output_norm.weight' has numbers that"
    ),
    "factors of 0": ({"tensors": {"rope_freqs.weight": np.zeros(8, np.float32)}}, "numbers that are not above 0"),
    "few rows": ({"tensors": {"token_embd.weight": np.ones((9, 64), np.float32)}}, "has no row for each of 288 tokens"),
    "another architecture": ({"facts": {"attention.head_count": None}}, "'llama.attention.head_count' is missing"),
    "no heads": ({"facts": {"attention.head_count": 0}}, "'llama.attention.head_count' is 0; one number from 1 on"),
    "uneven heads": ({"facts": {"attention.head_count_kv": 3}}, "4 heads cannot share 3 heads of keys and values"),
    "layers of many kinds": ({"facts": {"attention.head_count_kv": [2, 4]}}, "is [2, 4]; one number"),
    "many layers": ({"facts": {"block_count": (1 << 31) - 1}}, "2,147,483,647 layers of 21 tensors"),
    "no epsilon": ({"facts": {"attention.layer_norm_rms_epsilon": float("nan")}}, "is nan; a number above 0"),
    "experts": ({"facts": {"expert_count": 8}}, "have 'llama.expert_count' (8), of which it is not known"),
    "two sizes": ({"facts": {"attention.value_length": 8}}, "keys and values of heads have two sizes"),
    "heads in part": ({"facts": {"rope.dimension_count": 8}}, "8 numbers of heads of 16 are turned"),
    "another scaling": ({"facts": {"rope.scaling.type": "bent"}}, "rope.scaling.type='bent'; read are none, linear"),
    "no factors": ({"facts": {"rope.scaling.type": "longrope"}}, "the tensor 'rope_factors_long.weight' is missing"),
    "no merges": ({"words": {"merges": None}}, "no texts by the name of 'tokenizer.ggml.merges'"),
    "no tokens": ({"words": {"tokens": None}}, "no texts by the name of 'tokenizer.ggml.tokens'"),
    "another merge": ({"words": {"merges": ["t h", "q q"]}}, "merge 1, 'q q', is not of two tokens"),
    "half a merge": ({"words": {"merges": ["t h", "th"]}}, "merge 1, 'th', is not of two tokens"),
    "another tokenizer": ({"words": {"model": "rwkv"}}, "tokenizer.ggml.model is 'rwkv'; read are 'gpt2'"),
    "another way to cut": ({"words": {"pre": "viking"}}, "tokenizer.ggml.pre is 'viking'; read are gpt-2"),
    "few types": ({"words": {"token_type": [1, 1]}}, "'tokenizer.ggml.token_type' is no array of 288 numbers"),
    "another type": ({"words": {"token_type": [9] * WORDS}}, "token_type of token 0 is 9; 0 to 6 are known"),
    "a token that is none": ({"words": {"eos_token_id": WORDS}}, "eos_token_id is 288, none of 288 tokens"),
    "a token twice": ({"words": {"tokens": ["a"] * WORDS}}, "tokens 0 and 1 are the same, 'a'"),
    "no BOS": (
        {"words": {"add_bos_token": True, "bos_token_id": None}}, "add_bos_token asks for a token, and bos_token_id"
    ),
    "no scores": ({"words": {"model": "llama"}}, "tokenizer.ggml.scores are missing"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_by_its_name(case: str, tmp_path: Path) -> None:
    changed, said = REFUSED[case]
    path = tmp_path / "m.gguf"
    write_model(path, "llama", network_of("llama"), **changed)
    with pytest.raises(ModelError) as raised:
        load_gguf(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


@pytest.mark.parametrize("weights", ["F32", "Q8_0"])
def test_logits_that_are_nan_are_refused_with_the_file(weights: str, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    large = {"output_norm.weight": np.full(HIDDEN, 3e38, np.float32)}
    write_model(path, "llama", network_of("llama"), weights, tensors=large)
    with pytest.raises(ModelError, match=r"m\.gguf: \w+ gives logits that are NaN .* damaged: fetch it again"):
        models.gguf(path)


def rewritten(path: Path, old: bytes, new: bytes) -> Path:
    data = path.read_bytes()
    assert data.count(old) >= 1
    path.write_bytes(data.replace(old, new))
    return path


def test_an_unknown_architecture_and_a_part_of_a_model(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, "llama", network_of("llama"))
    with pytest.raises(ModelError, match=r"general\.architecture is 'camel'; read are llama, qwen2"):
        load_gguf(rewritten(path, b"llama", b"camel"))
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint16("split.count", 3)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    with pytest.raises(ModelError, match="one of 3 files of a model; join them"):
        load_gguf(path)


@pytest.mark.parametrize("scale", [b"\x00\x7c", b"\x00\xfc", b"\x01\x7e"])
@pytest.mark.parametrize("weights", ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_scales_that_are_infinite_or_nan_are_refused(weights: str, scale: bytes, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_model(path, "llama", network_of("llama"), weights)
    network, _ = load_gguf(path)
    row = network.model.layers[1].mlp.down_proj.matrix.data[-1].tobytes()
    size = len(row) // 3
    rewritten(path, row, row[:-size] + scale + row[-size + 2 :])
    with pytest.raises(ModelError, match=r"'blk\.1\.ffn_down\.weight' has numbers that are infinite or NaN"):
        load_gguf(path)


def test_a_model_travels_by_its_path(tmp_path: Path) -> None:
    import pickle

    path = tmp_path / "m.gguf"
    write_model(path, "llama", network_of("llama"))
    model = models.gguf(path)
    assert pickle.loads(pickle.dumps(model)) is model
