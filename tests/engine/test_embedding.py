"""Embeddings: the directions of transformers' own final hidden states, whatever runs the model and whatever beside."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from numpy.typing import NDArray
from trellm import Engine, ModelError, OptionError, Sample, Vocabulary, generate, models

from .models.gguf_files.tiny import network_of, write_model
from .models.recurrent_architectures import build as build_recurrent
from .paged import PagedModel, crowd

PROMPTS = ["the 12th", "x", "an inning then on", "on the other one in the thin ninth, 12345 of them", "the 12th then"]
CHAT = [{"role": "user", "content": "the 12th"}]


def expected(network: Any, ids: list[int], size: int | None = None) -> NDArray[np.float32]:
    """What transformers says of the last token, behind the last norm."""
    with torch.inference_mode():
        state = network(torch.tensor([ids]), output_hidden_states=True).hidden_states[-1][0, -1, :size].double()
    return (state / state.norm()).float().numpy()


def near(found: Any, wanted: Any) -> None:
    np.testing.assert_allclose(found, wanted, atol=2e-5)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama", "qwen3", "mistral", "gemma2"])
def test_embeddings_are_the_hidden_states_of_transformers(
    name: str, cache: bool, hugging_face: Callable[[str], Any], tokenizer: Any
) -> None:
    network = hugging_face(name)
    embed = generate.embedding(models.transformers(network, tokenizer, cache=cache))
    for prompt, found in zip(PROMPTS, embed(PROMPTS), strict=True):
        near(found, expected(network, tokenizer.encode(prompt)))


@pytest.mark.parametrize("name", ["mamba", "mamba2", "falcon_h1", "lfm2"])
def test_models_that_keep_states(name: str, tokenizer: Any) -> None:
    network = build_recurrent(name)
    embed = generate.embedding(models.transformers(network, tokenizer))
    for prompt, found in zip(PROMPTS, embed(PROMPTS), strict=True):
        with torch.inference_mode():  # not all of these count what is behind the last norm among their hidden states
            state = network.base_model(torch.tensor([tokenizer.encode(prompt)])).last_hidden_state[0, -1]
        near(found, torch.nn.functional.normalize(state, dim=0))


@pytest.mark.parametrize(("name", "config"), [
    ("gptj", transformers.GPTJConfig(n_layer=2, n_head=4, n_embd=32, rotary_dim=4, n_positions=64)),
    ("bloom", transformers.BloomConfig(n_layer=2, n_head=4, hidden_size=32)),
])  # fmt: skip
def test_models_with_attention_of_their_own(name: str, config: Any, tokenizer: Any) -> None:
    torch.manual_seed(3)
    config.vocab_size, config.bos_token_id, config.eos_token_id = len(tokenizer), 0, 1
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    embed = generate.embedding(models.transformers(network, tokenizer))
    for prompt, found in zip(PROMPTS, embed(PROMPTS), strict=True):
        near(found, expected(network, tokenizer.encode(prompt)))


@pytest.mark.parametrize("weights", ["F32", "Q8_0"])
def test_models_of_gguf_files(weights: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    network = network_of("llama")
    write_model(tmp_path / "m.gguf", "llama", network, weights)
    model = models.gguf(tmp_path / "m.gguf")
    for prompt, found in zip(PROMPTS, generate.embedding(model)(PROMPTS), strict=True):
        product = float(found @ expected(network, model.tokenizer.encode(prompt)))
        assert product == pytest.approx(1, abs=1e-4 if weights == "F32" else 2e-2)


def test_a_real_model_in_a_file() -> None:
    try:
        model = models.pulled("smollm2")
    except (ModelError, OptionError):
        pytest.skip("smollm2 was not pulled")
    cat, kitten, shares = generate.embedding(model)(
        ["The cat sat on the mat.", "A kitten was sitting on a rug.", "Stock markets fell sharply today."]
    )
    # Quantized products round what they multiply.
    assert cat @ expected(model.model, model.tokenizer.encode("The cat sat on the mat.")) > 0.99
    assert cat @ kitten > max(cat @ shares, kitten @ shares)


def test_prompts_of_every_form(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    network = hugging_face("llama")
    embed = generate.embedding(models.transformers(network, tokenizer))
    ids = tokenizer.encode("the 12th")
    one = embed("the 12th")
    assert one.dtype == np.float32 and one.shape == (32,)
    near(embed(ids), one)
    near(embed([ids, "x"])[0], one)
    result = embed.run("the 12th")
    assert (result.text, result.token_ids, result.finish_reason, result.prompt) == ("", (), "complete", "the 12th")
    assert "the 12th" not in repr(result) and "value=array" in repr(result)
    assert {number for number, _ in embed.iter(["x", "the"])} == {0, 1}
    whole = tokenizer.encode("on" * 128)
    near(embed(whole), expected(network, whole))  # all of the context: nothing is to follow
    with pytest.raises(OptionError, match=r"129 tokens; the model's context of 128 must have room for it; shorten"):
        embed([*whole, 2])


def test_few_dimensions_have_the_length_1(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    network = hugging_face("qwen3")
    model = models.transformers(network, tokenizer)
    embed = generate.embedding(model, dimensions=5)
    near(embed("the 12th"), expected(network, tokenizer.encode("the 12th"), 5))
    near(pickle.loads(pickle.dumps(generate.embedding(models.small(), dimensions=3)))("a"), embed_small(3))
    for wrong in (0, 33, 2.5):
        with pytest.raises(OptionError, match="dimensions"):
            generate.embedding(model, dimensions=wrong)  # type: ignore[arg-type]


def embed_small(dimensions: int) -> NDArray[np.float32]:
    return generate.embedding(models.small(), dimensions=dimensions)("a")


def test_texts_and_embeddings_share_a_batch_and_what_was_read(
    hugging_face: Callable[[str], Any], tokenizer: Any
) -> None:
    network = hugging_face("llama")
    model = models.transformers(network, tokenizer)
    embed, text = generate.embedding(model), generate.text(model)
    prompt = "the other one in the thin ninth inning, then on"
    engine = Engine.of(model)
    alone = text(prompt, max_tokens=4)
    handles = [engine.submit(embed, [prompt, prompt, f"{prompt} x"]), engine.submit(text, prompt, max_tokens=4)]
    found = [each.value for each in handles[0].result()]
    assert handles[1].result().value == alone
    near(found[0], expected(network, tokenizer.encode(prompt)))
    near(found[1], found[0])
    near(found[2], expected(network, tokenizer.encode(f"{prompt} x")))
    assert handles[0].call.reused_tokens[0] >= 16, "blocks that another text has read are not read again"
    both = generate.batch([(embed, prompt), (generate.regex(model, "[0-9]{3}"), prompt)])
    near(both[0], found[0])
    assert len(both[1]) == 3


class PooledModel(PagedModel):
    """The hidden state of a text tells all of it, and begins with a number that is not its own."""

    embedding_size = 64

    def pool(self, hidden: Any, rows: Any) -> torch.Tensor:
        return torch.stack([_state(hidden[row]) for row in rows])


def _state(text: Any) -> torch.Tensor:
    return torch.randn(64, generator=torch.Generator().manual_seed(hash(tuple(text)) % (1 << 31)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("states", "window"), [(0, None), (0, 24), (48, None)])
def test_embeddings_in_little_memory(seed: int, states: int, window: int | None) -> None:
    """Beside texts that take each other's memory, and prompts that are read in chunks."""
    model = PooledModel(window=window, state_bytes=states, reads_drafts=not states)
    engine, prompts, texts = crowd(model, seed)
    found = engine.submit(generate.embedding(model), prompts).result()
    for prompt, each in zip(prompts, found, strict=True):
        state = _state(model.tokenizer.encode(prompt)).double()
        near(each.value, (state / state.norm()).numpy())
    assert [len(each.token_ids) for each in texts.result()] == [60] * 4
    engine._loop.check()
    assert engine.held_bytes == 0


def test_what_has_no_embedding_says_so(t5: Callable[[], Any], tokenizer: Any) -> None:
    projected = transformers.RemBertConfig(
        vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
        input_embedding_size=16, output_embedding_size=24, is_decoder=True, bos_token_id=0, eos_token_id=1,
        pad_token_id=1, max_position_embeddings=64,
    )  # fmt: skip
    for model in (
        models.transformers(transformers.AutoModelForCausalLM.from_config(projected), tokenizer),
        models.ziplm("abc"),
        models.from_function(lambda ids: [0.0, 1.0], Vocabulary([b"a", None], (1,))),
        models.transformers(t5(), tokenizer),
    ):
        with pytest.raises(OptionError, match=r"has no embeddings; they need the final hidden states"):
            generate.embedding(model)
    with pytest.raises(OptionError, match=r"generate\.embedding: the first argument must be a model"):
        generate.embedding("llama")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value"),
    [("max_tokens", 3), ("search", Sample()), ("seed", 1), ("stop", "x"), ("logprobs", True), ("diagnostics", True)],
)
def test_options_of_texts_are_refused(name: str, value: Any) -> None:
    embed = generate.embedding(models.small())
    with pytest.raises(OptionError, match=rf"^{name}=.*an embedding has no output text"):
        embed.run("x", **{name: value})
    with pytest.raises(OptionError, match="cannot be streamed"):
        list(embed.stream("x"))
    with pytest.raises(OptionError, match="include"):
        embed("x", include="y")


def test_hidden_states_without_a_direction(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    model = PooledModel()
    bad = generate.embedding(model)
    model.pool = lambda hidden, rows: torch.zeros(len(rows), 64)  # type: ignore[method-assign]
    with pytest.raises(ModelError, match="at the end of prompt 0 is NaN, infinite or zero"):
        bad("abc")
