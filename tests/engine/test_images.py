"""Prompts with images: the tokens are those of transformers' own `generate`, whatever runs beside them."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import PIL.Image
import pytest
import torch
from trellm import Beam, Engine, Image, OptionError, Sample, generate, models

from ..thresholds import thresholds
from .image_models import MODELS, PARTS, TEMPLATE, TEXTS, Loaded, build, expected, loaded, picture
from .support import ChatEncoder, prompts_of, read

TOKENS = 10
WIDE, TALL = picture(41, 23), picture(17, 50, 1)


@pytest.fixture(scope="module")
def made() -> Loaded:
    return loaded(build)


@pytest.fixture(params=MODELS)
def name(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def both(name: str, made: Loaded) -> tuple[Any, Any, Any]:
    return made(name)


def prompts(name: str) -> list[list[Any]]:
    """One image, two, one in the middle and the same again."""
    several: list[list[Any]] = [[WIDE, "What is it?"], [TALL, WIDE, "or"], [TALL, WIDE, "rather this"]]
    if name != "paligemma":  # whose images come first
        several += [["See ", TALL, " and ", WIDE, " and ", TALL, "!"], ["Only words."]]
    return several


def asked(name: str, prompt: list[Any]) -> Any:
    """A prompt as `expected` takes it."""
    if name == "paligemma":
        images = [part for part in prompt if not isinstance(part, str)]
        return "".join("<image>" for _ in images) + prompt[-1], images
    return chat_of(prompt)


def chat_of(prompt: list[Any]) -> list[dict[str, Any]]:
    parts = [
        {"type": "text", "text": part} if isinstance(part, str) else {"type": "image", "image": part} for part in prompt
    ]
    return [{"role": "user", "content": parts}]


def given(prompt: list[Any]) -> Any:
    """A prompt as our calls take it: without images a chat."""
    return chat_of(prompt) if len(prompt) == 1 else prompt


def said(result: Any) -> list[int]:
    """The tokens of a result, with EOS where that ended it."""
    return [*result.token_ids, *([1] if result.finish_reason == "complete" else [])]


def test_tokens_are_those_of_generate(name: str, both: tuple[Any, Any, Any]) -> None:
    model, processor, ours = both
    for prompt in prompts(name):
        found = generate.text(ours).run(given(prompt), max_tokens=TOKENS)
        assert said(found) == expected(model, processor, asked(name, prompt), TOKENS)


def test_rows_of_a_batch_in_chunks_in_little_memory(name: str, both: tuple[Any, Any, Any]) -> None:
    """They are preempted, read again, and begin alike; and the model's images are forgotten meanwhile."""
    model, processor, ours = both
    several = prompts(name) * 2
    wanted = [expected(model, processor, asked(name, prompt), TOKENS) for prompt in prompts(name)] * 2
    with Engine(ours, memory=22 * ours.block_bytes, tokens=48, chunk=16) as engine:
        handle = engine.submit(generate.text(ours), [given(prompt) for prompt in several], max_tokens=TOKENS)
        while engine.step():
            ours.media.forget()
        found = handle.result()
        assert [said(each) for each in found] == wanted
        engine._loop.check()  # pyright: ignore[reportPrivateUsage]


def test_images_of_equal_content_are_read_once(name: str, both: tuple[Any, Any, Any]) -> None:
    model, _, ours = both
    ours.media.forget()
    data = io.BytesIO()
    WIDE.save(data, "PNG")
    kinds = [WIDE, data.getvalue(), Image.of(WIDE)]
    with patch.object(model.model, "get_image_features", wraps=model.model.get_image_features) as read, Engine(ours):
        text = generate.text(ours)
        first = text([kinds[0], "What is it?"], max_tokens=3)
        assert text([[kind, "What is it?"] for kind in kinds], max_tokens=3) == [first] * 3
        assert read.call_count == 1


@pytest.mark.parametrize("name", ["gemma3", "paligemma"])
def test_tokens_that_look_at_one_another_in_half_precision(name: str) -> None:
    """Blocks of another type than the model's change no token that is far from the next likely one."""
    model, processor = build(name)
    ours = models.transformers(model, processor, kv_cache_dtype="float16")
    found = generate.text(ours).run([WIDE, "What is it?"], max_tokens=4)
    assert said(found) == expected(model, processor, asked(name, [WIDE, "What is it?"]), 4)


def test_images_as_small_as_can_be(name: str, both: tuple[Any, Any, Any]) -> None:
    """They are read, or refused before a step that others share."""
    text = generate.text(both[2])
    for size in ((1, 1), (2, 9), (9, 2)):
        if name == "mistral3" and size == (1, 1):
            with pytest.raises(OptionError, match=r"1 x 1 pixels is too small: .* 2 are the fewest"):
                text([picture(*size), "?"])
        else:
            assert text.run([picture(*size), "?"], max_tokens=1).image_tokens


class Painting(PIL.Image.Image):
    """A subclass of PIL's class, as libraries have them."""


def test_subclasses_of_images_are_images(llava: Any) -> None:
    painting = Painting()
    painting.__dict__.update(WIDE.__dict__)
    text = generate.text(llava)
    assert text(["a", painting], max_tokens=3) == text(["a", WIDE], max_tokens=3)


@pytest.fixture
def llava(made: Loaded) -> Any:
    return made("llava")[2]


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3"])
def test_a_prompt_that_begins_alike_is_found_in_memory(both: tuple[Any, Any, Any]) -> None:
    ours = both[2]
    with Engine(ours, tokens=16):
        text = generate.text(ours)
        begin, more = "A text that is longer than a block: ", " which many texts go on with, as this one does"
        first = text.run([begin, WIDE, more, " one"], max_tokens=1)
        again = text.run([begin, WIDE, more, " two"], max_tokens=1)
        other = text.run([begin, TALL, more, " two"], max_tokens=1)
        assert again.steps < other.steps - 1 < first.steps


@pytest.mark.parametrize("name", ["llava", "idefics3", "qwen3_vl", "gemma3"])
def test_beams_are_those_of_generate(name: str, both: tuple[Any, Any, Any]) -> None:
    model, processor, ours = both
    for prompt in prompts(name)[2:4]:
        found = generate.text(ours).run(prompt, max_tokens=8, search=Beam(3))
        assert said(found) == expected(model, processor, asked(name, prompt), 8, beams=3)


@pytest.mark.parametrize("name", ["llava", "qwen2_5_vl", "gemma3"])
def test_beams_and_samples(both: tuple[Any, Any, Any]) -> None:
    """Alone and beside others they come to the same."""
    ours = both[2]
    text = generate.text(ours)
    several = [["See ", WIDE], ["See ", TALL], chat_of(["Words"])]
    for search in (Beam(3), Sample(n=2, temperature=0.7)):
        options: dict[str, Any] = {"max_tokens": 8, "search": search, "seed": [1, 2, 3]}
        together = text(several, **options)
        alone = [text([prompt], **{**options, "seed": [seed]})[0] for seed, prompt in enumerate(several, 1)]
        assert together == alone


@pytest.mark.parametrize("name", ["llava", "qwen3_vl"])
def test_drafts_change_nothing(both: tuple[Any, Any, Any]) -> None:
    ours = both[2]
    pattern = generate.regex(ours, r"(abcabc[de]){6}")
    prompt = ["abcabcd abcabce ", WIDE, " abcabcd"]
    drafted = pattern.run(prompt)
    assert drafted.text == pattern(prompt, draft=False)
    assert drafted.steps < len(drafted.token_ids)


def test_what_follows_an_image_is_constrained(both: tuple[Any, Any, Any]) -> None:
    found = generate.regex(both[2], "yes|no|[0-9]{3}").run([WIDE, "Is it?"])
    assert found.value in ("yes", "no") or found.value.isdecimal()
    assert generate.json(both[2], {"type": "boolean"})([TALL, "Is it?"]) in (True, False)


def test_penalties_look_at_tokens_only(llava: Any) -> None:
    text = generate.text(llava)
    options: dict[str, Any] = {"max_tokens": 8, "repetition_penalty": 1.5, "no_repeat_ngram_size": 2}
    found = text.run(["a", WIDE, "b", WIDE], **options)
    pairs = list(zip(found.token_ids, found.token_ids[1:], strict=False))
    assert len(pairs) == len(set(pairs))
    assert text.run(["a", WIDE], max_tokens=8, no_repeat_ngram_size=1).token_ids


def test_tokens_of_images_are_counted(llava: Any) -> None:
    text = generate.text(llava)
    assert [text.run(prompt, max_tokens=1).image_tokens for prompt in (["a", WIDE], [WIDE, WIDE], "a")] == [16, 32, 0]
    found = text.run(["a", WIDE, "b"], max_tokens=1)
    assert found.prompt == "user: ab assistant:"


def test_streams_and_texts_beside_images(llava: Any) -> None:
    text = generate.text(llava)
    prompt = [{"role": "system", "content": "Short."}, *chat_of(["a", WIDE, "b"])]
    whole = text.run(prompt, max_tokens=6).text
    assert "".join(text.stream(prompt, max_tokens=6)) == whole
    mixed = text.run([prompt, "does not support", chat_of(["words"])], max_tokens=6)
    assert mixed[0].text == whole
    assert mixed[1].text == text("does not support", max_tokens=6)


def test_an_image_that_cannot_be_read_fails_its_prompts_alone() -> None:
    model, processor = build("llava")
    ours = models.transformers(model, processor)
    read, broken = model.model.get_image_features, PIL.Image.new("RGB", (30, 30), "red")
    text = generate.text(ours)
    others = [["a", WIDE], ["only words"], ["b", TALL]]
    wanted = text.run([given(prompt) for prompt in others], max_tokens=TOKENS)

    def reads(pixel_values: Any, **options: Any) -> Any:
        if any(image.std(dim=(-1, -2)).max() == 0 for image in pixel_values):
            raise RuntimeError("no kernel for this image")
        return read(pixel_values, **options)

    ours.media.forget()
    with patch.object(model.model, "get_image_features", reads), Engine(ours) as engine:
        handles = [engine.submit(text, given(prompt), max_tokens=TOKENS) for prompt in [*others, ["c", broken]]]
        for handle, expected_result in zip(handles, wanted, strict=False):
            assert handle.result() == expected_result
        with pytest.raises(RuntimeError, match="no kernel for this image"):
            handles[-1].result()
        assert text.run(given(others[0]), max_tokens=TOKENS) == wanted[0]


@pytest.mark.parametrize("template", [PARTS, TEXTS])
def test_templates_that_know_only_lists_or_texts(template: str) -> None:
    model, processor = build("llava", template)
    ours = models.transformers(model, processor)
    prompt = [{"role": "system", "content": [{"type": "text", "text": "Short."}]}, *chat_of(["a", WIDE])]
    short = [{"role": "system", "content": "Short."}, *prompt[1:]]
    text = generate.text(ours)
    asked_for = "system: Short. user: a<image> assistant:", [WIDE]
    for chat in (prompt, short):
        found = text.run(chat, max_tokens=TOKENS)
        assert found.prompt == "system: Short. user: a assistant:"
        assert said(found) == expected(model, processor, asked_for, TOKENS)


def test_models_without_a_template_read_texts_and_images() -> None:
    model, processor = build("llava", None)
    ours = models.transformers(model, processor)
    found = generate.text(ours).run(["USER: ", WIDE, " what? ASSISTANT:"], max_tokens=TOKENS)
    assert said(found) == expected(model, processor, ("USER: <image> what? ASSISTANT:", [WIDE]), TOKENS)
    with pytest.raises(OptionError, match="no chat template"):
        generate.text(ours)(chat_of(["words"]))


def test_models_by_name(tmp_path: Any) -> None:
    model, processor = build("llava")
    model.save_pretrained(tmp_path)
    processor.save_pretrained(tmp_path)
    ours = models.transformers(tmp_path)
    assert ours.reads_images
    found = generate.text(ours).run([WIDE, "What?"], max_tokens=TOKENS)
    assert said(found) == expected(model, processor, chat_of([WIDE, "What?"]), TOKENS)
    with pytest.raises(OptionError, match="not quantized"):
        models.transformers(tmp_path, weights="q8")


def refusals(ours: Any) -> Iterator[tuple[Any, dict[str, Any], str]]:
    yield ["<image>", WIDE], {}, "1 image, and its text has 2 times '<image>'"
    yield [WIDE, 3], {}, "part 1 of the content"
    yield [b"", "a"], {}, "empty"
    yield ["a", WIDE], {"prompt_logprobs": True}, "prompt 0 has images"
    yield ["a", WIDE], {"draft": ours}, "a smaller model does not read"
    yield [{"role": "user", "content": [{"type": "video", "video": "x"}]}], {}, "models read texts here"
    yield ["a", WIDE], {"max_tokens": 5000}, "context"


def test_mistakes_are_told_before_generation(llava: Any) -> None:
    text = generate.text(llava)
    for prompt, options, message in refusals(llava):
        with pytest.raises((OptionError, ValueError), match=message):
            text.run(prompt, **options)
    with pytest.raises(OptionError, match="has images"):
        generate.json(llava, {"type": "boolean"}).run([WIDE], fields=True)


def test_models_of_text_refuse_images(decoder: Any, tokenizer: Any) -> None:
    plain = decoder("gpt2")
    assert not plain.reads_images
    for prompt in (["a", WIDE], chat_of([WIDE])):
        with pytest.raises(OptionError, match=r"prompt 0 has an image, but .* reads only texts"):
            generate.text(plain)(prompt)
    model, processor = build("llava")
    without = models.transformers(model, processor.tokenizer)
    with pytest.raises(OptionError, match="given with its processor"):
        generate.text(without)(["a", WIDE])
    assert generate.text(without)("a", max_tokens=2) == generate.text(models.transformers(model, processor))(
        "a", max_tokens=2
    )


def test_prompts_without_images_where_all_tokens_look_at_one_another() -> None:
    model, processor = build("paligemma")
    text = generate.text(models.transformers(model, processor))
    processor.chat_template = TEMPLATE
    chats = generate.text(models.transformers(model, processor))
    for ask, prompt in ((text, "caption"), (text, [5, 6]), (chats, chat_of(["caption"]))):
        with pytest.raises(OptionError, match="needs prompts with images"):
            ask(prompt)


def test_what_is_not_run_is_refused_by_its_name(tmp_path: Any) -> None:
    import transformers

    transformers.Blip2Config().save_pretrained(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(
        OptionError, match="Blip2ForConditionalGeneration is an architecture for texts and more that is not"
    ):
        models.transformers(tmp_path, tokenizer=object())
    model, processor = build("llava")
    with pytest.raises(OptionError, match="runs with a cache"):
        models.transformers(model, processor, cache=False)


def test_other_weights_of_the_vision_part(both: tuple[Any, Any, Any]) -> None:
    """What was computed with others is forgotten."""
    model, processor, ours = both
    text = generate.text(ours)
    text([WIDE, "x"], max_tokens=4)
    weights = next(
        parameter for name, parameter in model.named_parameters() if "language" not in name and parameter.ndim > 1
    )
    before = weights.detach().clone()
    with torch.no_grad():
        weights.mul_(-1)
    found = text.run([WIDE, "x"], max_tokens=4)
    prompt = [WIDE, "x"]
    kind = "paligemma" if not processor.chat_template else ""
    try:
        assert said(found) == expected(model, processor, asked(kind, prompt), 4)
    finally:
        with torch.no_grad():
            weights.copy_(before)


def test_an_engine_forgets_features_of_earlier_weights() -> None:
    """The weights changed after an earlier engine of the same model had read the image."""
    model, processor = build("llava")
    ours = models.transformers(model, processor)
    text, prompt = generate.text(ours), [WIDE, "x"]
    text.run(prompt, max_tokens=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "language" not in name:
                parameter.mul_(-1)
    with Engine(ours) as engine:
        handle = engine.submit(text, prompt, max_tokens=TOKENS)
        while engine.step():
            pass
        assert said(handle.result()) == expected(model, processor, asked("llava", prompt), TOKENS)


def test_rows_are_prompts_as_ids(both: tuple[Any, Any, Any]) -> None:
    """As the server has them, which reads prompts before it runs them."""
    ours = both[2]
    text = generate.text(ours)
    [prompt] = prompts_of(prompt_of(both[1])).items
    ids, held = read(ours, prompt, 0, {})
    found = text.run(ids, max_tokens=4)
    assert found.token_ids == text.run(prompt_of(both[1]), max_tokens=4).token_ids
    assert held
    for strange in (-70, min(ids) - 1):  # of no image, and behind the last row of one
        with pytest.raises(OptionError, match="an id below 0 that is of no image"):
            text((*ids, strange))


def prompt_of(processor: Any) -> list[Any]:
    return ["See ", WIDE, "!"] if processor.chat_template else [WIDE, "!"]


def test_messages_that_name_the_mark_are_text(llava: Any) -> None:
    ids = ChatEncoder(llava).ids(chat_of(["Is <image> in ", WIDE, "?"]), 0, {})
    assert sum(token < 0 for token in ids) == 16
    words = llava.vocabulary.decode([token for token in ids if token >= 0])
    assert words == b"user: Is <image> in ? assistant:"
    assert generate.text(llava).run(ids, max_tokens=2).image_tokens == 16
    with pytest.raises(OptionError, match="reads only texts"):
        model, processor = build("llava")
        ChatEncoder(models.transformers(model, processor.tokenizer)).ids(chat_of(["<image>", WIDE]), 0, {})


def test_features_that_are_let_go_are_computed_again(llava: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = generate.text(llava)
    several = [["a", WIDE], ["b", TALL], ["c", TALL, WIDE]]
    before = text(several, max_tokens=6)
    thresholds(monkeypatch, bytes_of_media_kept=1)
    with Engine(llava, tokens=16) as engine:
        assert text(several, max_tokens=6) == before
        assert engine.kept_bytes < 1 << 20


def test_what_is_sent_and_copied(llava: Any) -> None:
    found = generate.text(llava).run(["a", WIDE], max_tokens=3)
    sent = pickle.loads(pickle.dumps(found))
    assert (sent.image_tokens, sent.prompt) == (found.image_tokens, found.prompt) == (16, "user: a assistant:")
    assert generate.text(copy.deepcopy(llava))(["a", WIDE], max_tokens=3) == found.text


def test_callers_in_several_threads(llava: Any) -> None:
    text = generate.text(llava)
    several = [[picture(30, 20 + number, number), "?"] for number in range(6)]
    alone = [text(prompt, max_tokens=4) for prompt in several]
    llava.media.forget()
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(lambda prompt: text(prompt, max_tokens=4), several)) == alone
