"""Log-probabilities of prompts: those of transformers' logits, whatever runs the model, and in little memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from trellm import Beam, Engine, ModelError, OptionError, Sample, generate, models

from ..thresholds import thresholds
from .models.gguf_files.tiny import network_of, write_model
from .models.recurrent_architectures import build as build_recurrent
from .models.support import Way
from .paged import PagedModel, crowd, logits_of

PROMPTS = ["the 12th", "x", "an inning then on", "on the other one in the thin ninth, 12345 of them", "the 12th then"]


def check(found: Any, ids: Sequence[int], logits: Any, k: int, atol: float = 2e-4) -> None:
    """Compare with logits [len(ids), V]: every token's log-probability, its rank, and the likeliest in its place."""
    scores = torch.log_softmax(torch.as_tensor(np.asarray(logits)).double(), -1)
    assert [each.token_id for each in found] == list(ids)
    assert (found[0].logprob, found[0].rank, found[0].top_logprobs) == (None, None, ())
    for row, each in zip(scores, found[1:], strict=False):
        assert each.logprob == pytest.approx(row[each.token_id].item(), abs=atol)
        close = int((row > row[each.token_id] + atol).sum()), int((row > row[each.token_id] - atol).sum())
        assert close[0] < each.rank <= close[1] + 1
        assert [top.logprob for top in each.top_logprobs] == pytest.approx(row.topk(k).values.tolist(), abs=atol)
        assert all(top.logprob == each.logprob for top in each.top_logprobs if top.token_id == each.token_id)


def whole(network: Any, ids: Sequence[int]) -> torch.Tensor:
    with torch.inference_mode():
        return network(torch.tensor([list(ids)])).logits[0]


def check_all(model: Any, network: Any, atol: float = 2e-4) -> None:
    """In one batch with texts, and again when all of it has been read."""
    text = generate.text(model)
    for _ in range(2):
        results = text.run(PROMPTS, max_tokens=3, prompt_logprobs=3)
        for prompt, result in zip(PROMPTS, results, strict=True):
            ids = model.tokenizer.encode(prompt)
            check(result.prompt_logprobs, ids, whole(network, ids), 3, atol)
        assert [each.text for each in results] == text(PROMPTS, max_tokens=3, heal=False)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize("name", ["gpt2", "llama", "mistral", "gemma2"])
def test_they_are_those_of_transformers(
    name: str, cache: bool, hugging_face: Callable[[str], Any], tokenizer: Any
) -> None:
    network = hugging_face(name)
    check_all(models.transformers(network, tokenizer, cache=cache), network)


@pytest.mark.parametrize("name", ["mamba", "mamba2", "falcon_h1", "lfm2", "rwkv"])
def test_models_that_keep_states(name: str, tokenizer: Any) -> None:
    network = build_recurrent(name)
    model = models.transformers(network, tokenizer)
    check_all(model, network)
    text, ids = generate.text(model), tokenizer.encode(PROMPTS[3])
    chunked = Engine(model, tokens=16).submit(text, PROMPTS[3], max_tokens=0, prompt_logprobs=3)
    check(chunked.result().prompt_logprobs, ids, whole(network, ids), 3)


SIZES: dict[str, Any] = {"vocab_size": 108, "bos_token_id": 0, "eos_token_id": 1}


@pytest.mark.parametrize("config", [
    transformers.GPTJConfig(n_layer=2, n_head=4, n_embd=32, rotary_dim=4, n_positions=64, **SIZES),
    transformers.BloomConfig(n_layer=2, n_head=4, hidden_size=32, **SIZES),
    transformers.RemBertConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=4, intermediate_size=48,
                               input_embedding_size=16, output_embedding_size=24, is_decoder=True,
                               max_position_embeddings=64, pad_token_id=1, **SIZES),
], ids=lambda config: config.model_type)  # fmt: skip
@pytest.mark.parametrize("way", ["as it is known", "one by one"])
def test_rows_that_are_padded_and_models_without_a_head(config: Any, way: str, tokenizer: Any) -> None:
    torch.manual_seed(3)
    network = transformers.AutoModelForCausalLM.from_config(config).eval()
    model: Any = models.transformers(network, tokenizer)
    if way != "as it is known":  # rows that begin alike and are as long, and no others
        model._runner = model._make_runner(Way("equal"))
    check_all(model, network)


@pytest.mark.parametrize("weights", ["F32", "Q8_0"])
def test_models_of_gguf_files(weights: str, tmp_path: Path) -> None:
    pytest.importorskip("gguf")
    network = network_of("qwen3")
    write_model(tmp_path / "m.gguf", "qwen3", network, weights)
    model = models.gguf(tmp_path / "m.gguf")
    ids = model.tokenizer.encode(PROMPTS[3])
    (found,) = generate.text(model).run([PROMPTS[3]], max_tokens=0, prompt_logprobs=True)
    logprobs = torch.log_softmax(whole(network, ids).double(), -1)
    wanted = np.array([logprobs[place, token].item() for place, token in enumerate(ids[1:])])
    near = np.array([each.logprob for each in found.prompt_logprobs[1:]]) - wanted
    assert np.abs(near).mean() < (1e-4 if weights == "F32" else 0.05 * wanted.std())
    assert all(each.top_logprobs == () for each in found.prompt_logprobs)


def test_a_function_is_called_for_each_token() -> None:
    model = models.ziplm("the cat sat on the mat. " * 20)
    found = generate.text(model).run("the cat ", max_tokens=2, prompt_logprobs=2).prompt_logprobs
    assert found is not None
    ids = [each.token_id for each in found]
    rows = [model.logits([ids[:end]], [0], None)[0].numpy() for end in range(1, len(ids))]
    check(found, ids, rows, 2)
    assert generate.text(model).run("", max_tokens=1, prompt_logprobs=True).prompt_logprobs == ()


def test_a_text_is_scored_without_one_being_written(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    model = models.transformers(hugging_face("llama"), tokenizer)
    text = generate.text(model)
    found = text.run("the 12th", max_tokens=0, prompt_logprobs=True)
    assert (found.text, found.token_ids, found.finish_reason) == ("", (), "length")
    assert found.prompt_logprobs is not None and "prompt_logprobs" in repr(found)
    full = tokenizer.encode("on" * 128)  # all of the context
    assert len(text.run(full, max_tokens=0, prompt_logprobs=True).prompt_logprobs or ()) == 128
    with pytest.raises(OptionError, match="at least one more token"):
        text.run(full, prompt_logprobs=True)
    with pytest.raises(OptionError, match="max_tokens"):
        text.run("x", max_tokens=0)
    assert text.run("x", max_tokens=1).prompt_logprobs is None


def test_constraints_do_not_change_them(hugging_face: Callable[[str], Any], tokenizer: Any) -> None:
    """Nor is a text that follows from its constraint at its end before the prompt was read."""
    network = hugging_face("llama")
    model = models.transformers(network, tokenizer)
    ids = tokenizer.encode(PROMPTS[2])
    for generator in (generate.choice(model, ["on"]), generate.regex(model, "[0-9]{3}"), generate.choice(model, [""])):
        result = generator.run(PROMPTS[2], prompt_logprobs=2)
        check(result.prompt_logprobs, ids, whole(network, ids), 2)
        assert result.value == generator(PROMPTS[2])


def test_samples_of_one_prompt_read_it_once() -> None:
    model = PagedModel()
    prompt = "abcdefgh" * 6
    alone = generate.text(model).run(prompt, max_tokens=0, prompt_logprobs=1)
    read = model.read
    several = generate.text(model).run(prompt, max_tokens=0, prompt_logprobs=1, search=Sample(n=4))
    assert model.read - read == len(prompt), "all of it, though it is known, and once for the four"
    assert all(each.prompt_logprobs == alone.prompt_logprobs for each in several)  # type: ignore[attr-defined]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("states", "window"), [(0, None), (0, 24), (48, None)])
def test_prompts_in_little_memory(seed: int, states: int, window: int | None) -> None:
    """Beside texts that take each other's memory, and begin with what others read; in chunks."""
    model = PagedModel(window=window, state_bytes=states, reads_drafts=not states)
    (engine, prompts, others), text = crowd(model, seed), generate.text(model)
    scored = engine.submit(text, prompts, max_tokens=20, min_tokens=20, prompt_logprobs=2)
    for prompt, result in zip(prompts, scored.result(), strict=True):
        ids = model.tokenizer.encode(prompt)
        check(result.prompt_logprobs, ids, [logits_of(ids[: end + 1]) for end in range(len(ids))], 2)
        assert result.text == text(prompt, max_tokens=20, min_tokens=20, heal=False)
    assert [len(each.token_ids) for each in others.result()] == [60] * 4
    engine._loop.check()
    assert engine.held_bytes == 0


def test_logits_are_held_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    model, rows = PagedModel(), list[int]()
    plain = model.logits

    def counted(hidden: Any, places: Sequence[int], ids: Any) -> Any:
        rows.append(len(places))
        return plain(hidden, places, ids)

    model.logits = counted
    thresholds(monkeypatch, logits_scored_at_once=4 * model.vocabulary.size * 7)
    generate.text(model).run("abcdefgh" * 6, max_tokens=0, prompt_logprobs=True)
    assert rows == [7] * 6 + [5]


def test_what_cannot_be_scored_says_so(t5: Callable[[], Any], tokenizer: Any) -> None:
    model = PagedModel()
    text = generate.text(model)
    for wrong in (0, -1, 1.5, None, "all"):
        with pytest.raises(OptionError, match=r"prompt_logprobs=.*True for the"):
            text.run("abc", prompt_logprobs=wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"prompt_logprobs=2 with search=Beam"):
        text.run("abc", prompt_logprobs=2, search=Beam(2))
    with pytest.raises(OptionError, match=r"only run returns results"):
        text("abc", prompt_logprobs=2)  # type: ignore[call-arg]
    with pytest.raises(OptionError, match=r"is an encoder-decoder"):
        generate.text(models.transformers(t5(), tokenizer)).run("abc", prompt_logprobs=True)


def test_logits_that_are_no_numbers_fail_their_prompt_alone() -> None:
    model = PagedModel()
    plain = model.logits

    def broken(hidden: Any, places: Sequence[int], ids: Any) -> Any:
        found = plain(hidden, places, ids)
        found[[len(hidden[place]) < 4 and hidden[place][0] == 1 for place in places]] = math.nan
        return found

    model.logits = broken
    engine = Engine.of(model)
    bad = engine.submit(generate.text(model), "bcdefg", max_tokens=2, prompt_logprobs=True)
    good = engine.submit(generate.text(model), "acdefg", max_tokens=2, prompt_logprobs=True)
    with pytest.raises(ModelError, match=r"logits in the 6 tokens of prompt 0 that begin at 0 are NaN"):
        bad.result()
    assert len(good.result().prompt_logprobs) == 6
