"""Architectures that run, and those that are refused with what to do about it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from trellm import Generator, ModelError, OptionError, VocabularyError, generate, models

from ..support import DecoderModel
from .support import AttentionMasks, AttentionSpan, Head, find_head, layer_kinds, unscaled_context

PROMPTS = ["the 12th", "x", "an inning then on"]
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64}
NAMES = {"vocab_size": 128, "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 1, "initializer_range": 0.4}


def build(config: Any) -> Any:
    torch.manual_seed(1)
    return transformers.AutoModelForCausalLM.from_config(config).eval()


def expected(model: Any, tokenizer: Any) -> list[list[int]]:
    outputs: list[list[int]] = []
    for prompt in PROMPTS:
        ids = torch.tensor([tokenizer.encode(prompt)])
        out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
        new = out[0, ids.shape[1] :].tolist()
        outputs.append(new[: new.index(1)] if 1 in new else new)
    return outputs


@pytest.mark.parametrize(
    "config",
    [
        transformers.OPTConfig(ffn_dim=48, word_embed_proj_dim=32, **SMALL, **NAMES),
        transformers.GPTNeoXConfig(intermediate_size=48, **SMALL, **NAMES),
        transformers.CohereConfig(intermediate_size=48, logit_scale=0.3, **SMALL, **NAMES),
        transformers.GraniteConfig(intermediate_size=48, logits_scaling=3.0, **SMALL, **NAMES),
        transformers.Llama4TextConfig(
            intermediate_size=48, intermediate_size_mlp=48, num_key_value_heads=2, head_dim=8, num_local_experts=2,
            attention_chunk_size=5, **SMALL, **NAMES),
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_other_architectures_equal_transformers(config: Any, tokenizer: Any) -> None:
    model = build(config)
    found = Generator(models.transformers(model, tokenizer)).run(PROMPTS, max_tokens=8, heal=False)
    assert [list(result.token_ids) for result in found] == expected(model, tokenizer)


@pytest.mark.parametrize(
    "config",
    [
        transformers.BloomConfig(n_layer=2, n_head=4, hidden_size=32, **NAMES),
        transformers.GPTNeoConfig(
            num_layers=2, num_heads=4, attention_types=[[["global", "local"], 1]], hidden_size=32,
            max_position_embeddings=64, window_size=8, **NAMES),
        transformers.GPTJConfig(n_layer=2, n_head=4, n_embd=32, rotary_dim=4, n_positions=64, **NAMES),
    ],
    ids=lambda config: config.model_type,
)  # fmt: skip
def test_attention_of_their_own_runs_with_a_cache_too(config: Any, tokenizer: Any) -> None:
    model = build(config)
    for cache in (True, False):
        found = Generator(models.transformers(model, tokenizer, cache=cache)).run(PROMPTS, max_tokens=8, heal=False)
        assert [list(result.token_ids) for result in found] == expected(model, tokenizer)


def test_layers_that_keep_other_things_are_refused() -> None:
    config = SimpleNamespace(layer_types=["full_attention", "indexed_attention"], num_hidden_layers=2)
    with pytest.raises(OptionError, match=r"indexed_attention.*cache=False"):
        layer_kinds(config)


def test_attention_that_cannot_be_run_from_a_cache_is_refused(tokenizer: Any) -> None:
    """Each way that gives other logits than the plain model is refused, and the last reason is said."""
    model = build(transformers.LlamaConfig(intermediate_size=48, **SMALL, **NAMES))

    class Leaning(type(model.model.layers[0].self_attn)):
        def forward(self, hidden_states: Any, *args: Any, **options: Any) -> Any:
            return super().forward(hidden_states.flip(1).cumsum(1), *args, **options)

    for layer in model.model.layers:
        layer.self_attn.__class__ = Leaning
    with pytest.raises(OptionError, match=r"LlamaForCausalLM cannot be run from a cache \(other logits.*cache=False"):
        models.transformers(model, tokenizer)


@pytest.mark.parametrize("cache", [True, False])
def test_weights_that_are_not_numbers_are_named(cache: bool, tokenizer: Any) -> None:
    model = build(transformers.LlamaConfig(intermediate_size=48, **SMALL, **NAMES))
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[1, 2] = torch.nan
    with pytest.raises(ModelError, match=r"LlamaForCausalLM gives .* NaN .*: some weights of model\.layers\.0"):
        models.transformers(model, tokenizer, cache=cache)
    with torch.no_grad():
        model.model.layers[0].mlp.up_proj.weight[1, 2] = 0.0
        model.model.norm.weight.fill_(3e38)
        model.lm_head.weight *= 1e10
    with pytest.raises(ModelError, match=r"NaN .*: they grow too large; its weights or its configuration"):
        models.transformers(model, tokenizer, cache=cache)


def test_what_is_not_a_decoder_is_refused(hugging_face: Callable[[str], Any]) -> None:
    t5 = transformers.T5Config(d_model=16, d_kv=4, d_ff=16, num_layers=1, num_heads=2, vocab_size=128)
    with pytest.raises(OptionError, match="needs its tokenizer"):
        models.transformers(hugging_face("llama"))
    with pytest.raises(OptionError, match="attn_implementation='sdpa'"):
        AttentionMasks(t5, "flash_attention_2", torch.float32)


@pytest.mark.parametrize("kind", ["T5", "UMT5"])
@pytest.mark.parametrize("scale", [0.05, 100.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_what_counts_as_near_follows_type_and_scale(
    kind: str, scale: float, dtype: torch.dtype, tokenizer: Any
) -> None:
    """Logits of hundreds differ by more than those of units do, and mean the same."""
    torch.manual_seed(1)
    config = getattr(transformers, f"{kind}Config")(
        d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, vocab_size=128, decoder_start_token_id=0,
        initializer_factor=scale, pad_token_id=1, eos_token_id=1,
    )  # fmt: skip
    model = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval().to(dtype)
    assert generate.regex(models.transformers(model, tokenizer), "[a-z]{2}")("on", max_tokens=4).isalpha()


def test_a_head_behind_a_projection_runs_with_its_model(tokenizer: Any) -> None:
    config = transformers.RemBertConfig(
        **{**SMALL, "num_hidden_layers": 1}, **NAMES, intermediate_size=48, input_embedding_size=16,
        output_embedding_size=24, is_decoder=True,
    )  # fmt: skip
    model = build(config)
    found = Generator(models.transformers(model, tokenizer)).run(PROMPTS, max_tokens=8, heal=False)
    assert [list(result.token_ids) for result in found] == expected(model, tokenizer)


def test_a_context_without_limit() -> None:
    for limit, context in ((-1, None), (None, None), (7, 7)):
        assert unscaled_context(SimpleNamespace(max_position_embeddings=limit)) == context


def test_the_nearest_of_several_heads_is_taken() -> None:
    """Logits so small that a soft cap changes them by a few parts in a thousand only."""
    config = transformers.Gemma2Config(
        **{**SMALL, "num_hidden_layers": 1}, intermediate_size=48, num_key_value_heads=2, head_dim=8,
        final_logit_softcapping=4.0, **{**NAMES, "initializer_range": 0.02},
    )  # fmt: skip
    model = build(config)
    hidden = torch.randn(5, 32)
    with torch.inference_mode():
        plain = model.lm_head(hidden)
        expected = torch.tanh(plain / 4) * 4
        head = find_head(model, hidden, expected)
        assert head is not None and (plain - expected).abs().max() > 0
        torch.testing.assert_close(head(hidden * 99, None), torch.tanh(model.lm_head(hidden * 99) / 4) * 4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_logits_of_some_tokens_of_each_text(dtype: torch.dtype, tokenizer: Any) -> None:
    """What a kernel computes for several texts at once is what is computed for each alone."""
    config = transformers.GraniteConfig(intermediate_size=48, logits_scaling=3.0, **SMALL, **NAMES)
    model, several = models.transformers(build(config).to(dtype), tokenizer), [[3], [5, 0, 127], [], [1, 2]]
    hidden, ids = torch.randn(6, 32, dtype=dtype), [torch.tensor(each, dtype=torch.int64) for each in several]
    with torch.inference_mode():
        found = model.logits_listed(hidden, [4, 0, 2, 5], ids)
        assert (found is None) == (dtype == torch.bfloat16)
        for row, place, own in zip(range(4), [4, 0, 2, 5], ids, strict=True):
            if found is not None:
                assert found.dtype == torch.float32
                torch.testing.assert_close(found[row, : len(own)], model.logits(hidden, [place], own)[0])


def test_a_model_that_says_other_logits_than_its_head(tokenizer: Any) -> None:
    class Own(DecoderModel):
        def logits(self, hidden: Any, rows: Any, ids: Any) -> torch.Tensor:
            return super().logits(hidden, rows, ids) + 0

    model = Own(build(transformers.LlamaConfig(intermediate_size=48, **SMALL, **NAMES)), tokenizer)
    assert model.logits_listed(torch.randn(1, 32), [0], [torch.tensor([3])]) is None


def test_a_tokenizer_without_eos_is_refused(tokenizer: Any) -> None:
    names = {**NAMES, "eos_token_id": None, "pad_token_id": None}
    model = build(transformers.LlamaConfig(intermediate_size=48, **SMALL, **names))
    bare = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer)
    with pytest.raises(VocabularyError):
        models.transformers(model, bare)


def test_a_model_is_loaded_by_its_path(
    tmp_path: Any, tokenizer: Any, hugging_face: Callable[[str], Any], decoder: Callable[..., Any]
) -> None:
    hugging_face("llama").save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    for path in (tmp_path, str(tmp_path)):
        loaded = models.transformers(path)
        assert generate.text(loaded)("the", max_tokens=6) == generate.text(decoder("llama"))("the", max_tokens=6)


def test_eager_attention_gets_the_same_text(tokenizer: Any) -> None:
    config = transformers.MistralConfig(intermediate_size=48, num_key_value_heads=2, sliding_window=5, **SMALL, **NAMES)
    results: list[Any] = []
    for implementation in ("sdpa", "eager"):
        model = build(config)
        model.set_attn_implementation(implementation)
        results.append(generate.text(models.transformers(model, tokenizer))(PROMPTS, max_tokens=10))
    assert results[0] == results[1]


def test_half_precision_runs(tokenizer: Any) -> None:
    model = build(transformers.LlamaConfig(intermediate_size=48, **SMALL, **NAMES)).to(torch.bfloat16)
    texts = generate.regex(models.transformers(model, tokenizer), "[a-z]{2,5}")(PROMPTS, max_tokens=6)
    assert all(text.isalpha() for text in texts)


@pytest.mark.parametrize(
    ("reach", "seen"),
    [(AttentionSpan(), ["11100000", "11111100"]), (AttentionSpan(window=2), ["01100000", "00001100"]),
     (AttentionSpan(chunk=4), ["11100000", "00001100"])],
)  # fmt: skip
def test_what_layers_see(reach: AttentionSpan, seen: list[str]) -> None:
    mask = reach.allowed(torch.tensor([[2], [5]]), 8)
    assert mask.shape == (2, 1, 1, 8)
    assert ["".join(map(str, row[0, 0].int().tolist())) for row in mask] == seen


@pytest.mark.parametrize("bias", [True, False])
def test_large_heads_compute_what_linear_does(bias: bool) -> None:
    """More than 8M weights take another path for up to 8 rows."""
    torch.manual_seed(0)
    linear = torch.nn.Linear(260, 33_000, bias=bias)
    head = Head(linear, lambda out: out)
    with torch.inference_mode():
        for rows in (1, 2, 8, 9):
            hidden = torch.randn(rows, 260)
            logits = head(hidden, None)
            torch.testing.assert_close(logits, linear(hidden), rtol=1e-4, atol=1e-4)
            assert logits.is_contiguous()
            ids = torch.tensor([0, 7, 32_999])
            torch.testing.assert_close(head(hidden, ids), logits[:, ids], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_other_weights_of_the_head_are_read_and_another_head_is_refused(
    hugging_face: Any, tokenizer: Any, kind: str
) -> None:
    network = copy.deepcopy(hugging_face(kind))
    generator = generate.text(models.transformers(network, tokenizer))
    before = generator("on", max_tokens=6)
    head = network.get_output_embeddings()
    head.weight = torch.nn.Parameter(torch.flip(head.weight.detach(), [0]).contiguous())
    fresh = generate.text(models.transformers(copy.deepcopy(network), tokenizer))
    assert generator("on", max_tokens=6) == fresh("on", max_tokens=6) != before
    network.set_output_embeddings(copy.deepcopy(head))
    with pytest.raises(ModelError, match=r"output layer of .* was replaced"):
        generator("on", max_tokens=6)
