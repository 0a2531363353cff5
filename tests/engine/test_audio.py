"""Prompts with audio: the tokens are those of transformers' own `generate`, whatever runs beside them."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from trellm import Audio, AudioError, Beam, Engine, OptionError, Sample, generate, models

from ..thresholds import thresholds
from .audio_models import MODELS, RATE, build, expected, sound
from .image_models import PARTS, TEXTS, Loaded, loaded, picture
from .image_models import build as build_seeing
from .media.test_audio import wav
from .support import ChatEncoder, prompts_of, read

TOKENS = 10
LONG, SHORT = sound(1.713), sound(0.237, 1)


@pytest.fixture(scope="module")
def made() -> Loaded:
    return loaded(build)


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def both(name: str, made: Loaded) -> tuple[Any, Any, Any]:
    return made(name)


@pytest.fixture
def qwen(made: Loaded) -> Any:
    return made("qwen2_audio")[2]


PROMPTS: list[list[Any]] = [
    [LONG, "What is said?"],
    [SHORT, LONG, "or"],
    [SHORT, LONG, "rather this"],
    ["Hear ", SHORT, " and ", sound(1.0, 2), " and ", SHORT, "!"],
    ["Only words."],
]
"""One clip, two, one in the middle and the same again, and none."""


def chat_of(prompt: list[Any]) -> list[dict[str, Any]]:
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "audio", "audio": part} for part in prompt
    ]
    return [{"role": "user", "content": parts}]


def given(prompt: list[Any]) -> Any:
    """A prompt as our calls take it: without audio a chat."""
    return chat_of(prompt) if len(prompt) == 1 else prompt


def said(result: Any) -> list[int]:
    """The tokens of a result, with EOS where that ended it."""
    return [*result.token_ids, *([1] if result.finish_reason == "complete" else [])]


def test_tokens_are_those_of_generate(both: tuple[Any, Any, Any]) -> None:
    model, processor, ours = both
    for prompt in PROMPTS:
        found = generate.text(ours).run(given(prompt), max_tokens=TOKENS)
        assert said(found) == expected(model, processor, chat_of(prompt), TOKENS)


def test_rows_of_a_batch_in_chunks_in_little_memory(both: tuple[Any, Any, Any]) -> None:
    """They are preempted, read again, and begin alike; and the features are forgotten meanwhile."""
    model, processor, ours = both
    several = PROMPTS * 2
    wanted = [expected(model, processor, chat_of(prompt), TOKENS) for prompt in PROMPTS] * 2
    with Engine(ours, memory=22 * ours.block_bytes, tokens=48, chunk=16) as engine:
        handle = engine.submit(generate.text(ours), [given(prompt) for prompt in several], max_tokens=TOKENS)
        while engine.step():
            ours.media.forget()
        assert [said(each) for each in handle.result()] == wanted
        engine._loop.check()  # pyright: ignore[reportPrivateUsage]


def test_equal_audio_is_read_once(both: tuple[Any, Any, Any], tmp_path: Path) -> None:
    ours = both[2]
    ours.media.forget()
    (tmp_path / "it.wav").write_bytes(data := wav(LONG.samples, RATE))
    kinds = [data, tmp_path / "it.wav", Audio.of(data)]
    tower = both[0].model.audio_tower
    with patch.object(tower, "forward", wraps=tower.forward) as heard, Engine(ours):
        text = generate.text(ours)
        first = text([kinds[0], "What is it?"], max_tokens=3)
        assert text([[kind, "What is it?"] for kind in kinds], max_tokens=3) == [first] * 3
        assert heard.call_count == 1


def test_beams_and_samples(both: tuple[Any, Any, Any]) -> None:
    """Beams are those of `generate`, which has them of one window of sound only; texts beside others are as alone."""
    model, processor, ours = both
    text = generate.text(ours)
    found = text.run(["Hear ", SHORT], max_tokens=8, search=Beam(3))
    assert said(found) == expected(model, processor, chat_of(["Hear ", SHORT]), 8, beams=3)
    several = [["Hear ", LONG], ["Hear ", SHORT], chat_of(["Words"])]
    options: dict[str, Any] = {"max_tokens": 8, "search": Sample(n=2, temperature=0.7), "seed": [1, 2, 3]}
    alone = [text([prompt], **{**options, "seed": [seed]})[0] for seed, prompt in enumerate(several, 1)]
    assert text(several, **options) == alone


def test_a_prompt_that_begins_alike_is_found_in_memory(qwen: Any) -> None:
    with Engine(qwen, tokens=16):
        text = generate.text(qwen)
        begin, more = "A text that is longer than a block: ", " which many texts go on with, as this one does"
        first = text.run([begin, LONG, more, " one"], max_tokens=1)
        again = text.run([begin, LONG, more, " two"], max_tokens=1)
        other = text.run([begin, SHORT, more, " two"], max_tokens=1)
        assert again.steps < other.steps < first.steps


def test_what_follows_audio_is_constrained(both: tuple[Any, Any, Any]) -> None:
    assert generate.json(both[2], {"type": "boolean"})(["Is it?", LONG]) in (True, False)


def test_another_rate_is_resampled(qwen: Any) -> None:
    text = generate.text(qwen)
    high = sound(1.0, 3, 44_100)
    found = text.run([high, "?"], max_tokens=TOKENS)
    assert said(found) == said(text.run([Audio(high.at(RATE), RATE), "?"], max_tokens=TOKENS))
    assert found.audio_tokens == text.run([sound(1.0), "?"], max_tokens=1).audio_tokens


def test_tokens_of_audio_are_counted(qwen: Any) -> None:
    text = generate.text(qwen)
    counts = [text.run(prompt, max_tokens=1).audio_tokens for prompt in (["a", sound(1.0)], [SHORT, SHORT], "a")]
    assert counts == [25, 12, 0]
    found = text.run(["a", LONG, "b"], max_tokens=3)
    sent = pickle.loads(pickle.dumps(found))
    assert (sent.image_tokens, sent.audio_tokens, sent.prompt) == (0, found.audio_tokens, "user: ab assistant:")


@pytest.mark.parametrize("template", [PARTS, TEXTS])
def test_templates_that_know_only_lists_or_texts(template: str) -> None:
    model, processor = build("qwen2_audio", template)
    ours = models.transformers(model, processor)
    found = generate.text(ours).run([{"role": "system", "content": "Short."}, *chat_of(["a", LONG])], max_tokens=TOKENS)
    assert found.prompt == "system: Short. user: a assistant:" and found.audio_tokens


def test_models_by_name(both: tuple[Any, Any, Any], tmp_path: Path) -> None:
    model, processor, _ = both
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    ours = models.transformers(tmp_path)
    assert ours.reads_audio and not ours.reads_images
    with pytest.raises(OptionError, match="not quantized"):
        models.transformers(tmp_path, weights="q8")


def test_features_that_are_let_go_are_computed_again(qwen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = generate.text(qwen)
    several = [["a", LONG], ["b", SHORT], ["c", SHORT, LONG]]
    before = text(several, max_tokens=6)
    thresholds(monkeypatch, bytes_of_media_kept=1)
    with Engine(qwen, tokens=16) as engine:
        assert text(several, max_tokens=6) == before
        assert engine.kept_bytes < 1 << 20


def test_audio_as_short_and_as_long_as_can_be(name: str, both: tuple[Any, Any, Any]) -> None:
    """It is read whole, or refused before a step that others share."""
    text = generate.text(both[2])
    shortest = [Audio(LONG.samples[:1], RATE), "?"]
    if name == "qwen3_asr":  # whose processor makes it longer
        assert text.run(shortest, max_tokens=1).audio_tokens
    else:
        with pytest.raises(OptionError, match=r"audio of 0\.00 seconds is too short: it is 0 of the model's tokens"):
            text(shortest)
    longest = {"audioflamingo3": 4, "glmasr": 4, "qwen2_audio": 2}.get(name)
    assert text.run([sound(longest or 5), "?"], max_tokens=1).audio_tokens
    if longest is not None:
        with pytest.raises(OptionError, match=f"longer than the {longest} seconds that the model reads; cut it"):
            text([sound(longest + 0.01), "?"])


def test_mistakes_are_told_before_generation(qwen: Any) -> None:
    text = generate.text(qwen)
    several: list[tuple[Any, dict[str, Any], str]] = [
        (["<image>", LONG], {}, "1 audio, and its text has 2 times '<image>'"),
        ([{"role": "user", "content": [{"type": "audio", "audio": "a.wav"}]}], {}, "not a data URL; give an Audio"),
        ([{"role": "user", "content": [{"type": "audio"}]}], {}, "and audio, "),
        ([b"RIFF\0\0\0\0WAVE", "a"], {}, "the audio is a WAV file that is damaged"),
        ([Path("/none.wav"), "a"], {}, "the audio cannot be read"),
        ([LONG.samples, "a"], {}, "prompt 0"),
        (["a", LONG], {"prompt_logprobs": True}, "prompt 0 has images or audio"),
        (["a", LONG], {"draft": qwen}, "a smaller model does not read"),
        (["a", LONG], {"max_tokens": 5000}, "context"),
        (["a", picture(9, 9)], {}, "prompt 0 has an image, but .* reads only texts and audio"),
    ]
    for prompt, options, message in several:
        with pytest.raises((OptionError, AudioError), match=message):
            text.run(prompt, **options)


def test_models_that_read_no_audio_refuse_it(decoder: Any) -> None:
    seeing = models.transformers(*build_seeing("llava"))
    for model, kinds in ((decoder("gpt2"), "texts"), (seeing, "texts and images")):
        assert not model.reads_audio
        for prompt in (["a", LONG], chat_of([LONG])):
            with pytest.raises(OptionError, match=f"prompt 0 has audio, but .* reads only {kinds}; use a model that"):
                generate.text(model)(prompt)
    model, processor = build("qwen2_audio")
    with pytest.raises(OptionError, match="given with its processor"):
        generate.text(models.transformers(model, processor.tokenizer))(["a", LONG])


def test_what_is_not_run_is_refused_by_its_name(tmp_path: Path) -> None:
    import transformers

    transformers.VoxtralConfig(audio_token_id=24).save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(OptionError, match="VoxtralForConditionalGeneration is an architecture for texts and more"):
        models.transformers(tmp_path, tokenizer=object())


def test_rows_are_prompts_as_ids(qwen: Any) -> None:
    """As the server has them, which reads prompts before it runs them."""
    text, prompt = generate.text(qwen), ["Hear ", LONG, "!"]
    ids, held = read(qwen, prompts_of(prompt).items[0], 0, {})
    assert held and text.run(ids, max_tokens=4).token_ids == text.run(prompt, max_tokens=4).token_ids
    ids = ChatEncoder(qwen).ids(chat_of(["Is <image> in ", LONG, "?"]), 0, {})
    words = qwen.vocabulary.decode([token for token in ids if token >= 0])
    assert words == b"user: Is <image> in ? assistant:"
    assert text.run(ids, max_tokens=2).audio_tokens == sum(token < 0 for token in ids)


def test_models_without_a_template_read_texts_and_audio() -> None:
    model, processor = build("audioflamingo3", None)
    found = generate.text(models.transformers(model, processor)).run(["USER: ", LONG, " what?"], max_tokens=TOKENS)
    processor.chat_template = "USER: <image> what?"
    assert found.prompt == "USER:  what?" and said(found) == expected(model, processor, chat_of([LONG]), TOKENS)
