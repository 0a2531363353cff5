"""Images and audio of `trellm generate`: --image, --audio, fields of lines, and parts of messages, by paths."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import PIL.Image
import pytest
from trellm import Audio, Image, generate, models
from trellm.cli import main

from .engine.audio_models import RATE, sound
from .engine.audio_models import build as build_hearing
from .engine.image_models import build
from .engine.media.test_audio import wav


def seeing() -> Any:
    """A small random LLaVA."""
    return models.transformers(*build("llava"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for colour in ("red", "blue"):
        PIL.Image.new("RGB", (16, 12), colour).save(tmp_path / f"{colour}.png")
    (tmp_path / "broken.png").write_bytes(b"<svg/>")
    return tmp_path


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run the command, which refuses; what it says."""

    def run(*arguments: str) -> str:
        assert main(["generate", *arguments]) != 0
        return capsys.readouterr().err

    return run


def lines_in(path: Path, *lines: Any) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def test_images_stand_before_the_text(folder: Path, command_runs: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = seeing()
    command_runs(model)
    red, blue = (Image.of(folder / f"{name}.png") for name in ("red", "blue"))
    wanted = generate.text(model)([red, blue, "Which?"], max_tokens=9)
    given = ["--image", str(folder / "red.png"), "--image", str(folder / "blue.png"), "-p", "Which?"]
    for more in ([], ["--chat"]):
        assert main(["generate", *given, *more, "--max-tokens", "9"]) == 0
        assert capsys.readouterr().out == f"{wanted}\n"


def test_lines_name_images_beside_their_file(folder: Path, command_runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = seeing()
    command_runs(model)
    monkeypatch.chdir("/")
    red, blue = (Image.of(folder / f"{name}.png") for name in ("red", "blue"))
    parts = [{"type": "text", "text": "See "}, {"type": "image", "image": "blue.png"}]
    asked = [
        {"prompt": "Which?", "images": ["red.png"]},
        {"prompt": "Which?", "images": "blue.png", "id": 7},
        {"prompt": [{"role": "user", "content": parts}]},
        "Which?",
    ]
    out, prompts_file = folder / "out.jsonl", lines_in(folder / "in.jsonl", *asked)
    assert main(["generate", "--prompts", prompts_file, "--out", str(out), "--max-tokens", "9"]) == 0
    found = [json.loads(line) for line in out.read_text().splitlines()]
    chat = [{"role": "user", "content": [parts[0], {"type": "image", "image": blue}]}]
    prompts: list[Any] = [[red, "Which?"], [blue, "Which?"], chat, "Which?"]
    assert [each["output"] for each in found] == [generate.text(model)(each, max_tokens=9) for each in prompts]
    assert (found[0]["images"], found[1]["id"]) == (["red.png"], 7) and found[2]["prompt"] == asked[2]["prompt"]  # type: ignore[index]


def test_images_that_cannot_be_read_are_named(folder: Path, refused: Callable[..., str]) -> None:
    said = refused("--image", str(folder / "broken.png"), "-p", "a")
    assert said.startswith("trellm: --image ") and "broken.png is in an unknown format" in said
    assert "No such file" in refused("--image", str(folder / "none.png"), "-p", "a")
    several: list[tuple[Any, str]] = [
        ({"prompt": "a", "images": ["red.png", "none.png"]}, "line 1: the image 'none.png' cannot be read"),
        ({"prompt": "a", "images": ["broken.png"]}, "line 1: the image 'broken.png' is in an unknown format"),
        ({"prompt": "a", "images": [3]}, "line 1: the image is 3; expected the path of its file"),
        ({"prompt": "a", "images": {"a": 1}}, "the image is {'a': 1}; expected the path of its file"),
        ({"prompt": [1, 2], "images": "red.png"}, "line 1 is not a text; --image and --audio need texts"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "line 1: the image is None"),
    ]
    for line, message in several:
        assert message in refused("--prompts", lines_in(folder / "in.jsonl", line), "--out", str(folder / "out.jsonl"))


def test_images_before_messages_are_refused(folder: Path, refused: Callable[..., str]) -> None:
    prompts = lines_in(folder / "in.jsonl", {"prompt": [{"role": "user", "content": "a"}]})
    said = refused("--image", str(folder / "red.png"), "--prompts", prompts)
    assert "line 1 is not a text; --image and --audio need texts, in messages make them parts of the content" in said


def test_a_model_that_reads_texts_alone_refuses_images(folder: Path, refused: Callable[..., str]) -> None:
    (folder / "text.txt").write_text("a b c")
    assert refused("-m", f"ziplm:{folder / 'text.txt'}", "--image", str(folder / "red.png"), "-p", "a")


@pytest.fixture
def clips(tmp_path: Path) -> Path:
    for seed, name in enumerate(("low", "high")):
        (tmp_path / f"{name}.wav").write_bytes(wav(sound(0.5, seed).samples, RATE))
    return tmp_path


def test_audio_stands_before_the_text(
    clips: Path, command_runs: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = models.transformers(*build_hearing("qwen2_audio"))
    command_runs(model)
    low, high = (Audio.of(clips / f"{name}.wav") for name in ("low", "high"))
    wanted = generate.text(model)([low, high, "Which?"], max_tokens=9)
    given = ["--audio", str(clips / "low.wav"), "--audio", str(clips / "high.wav"), "-p", "Which?"]
    for more in ([], ["--chat"]):
        assert main(["generate", *given, *more, "--max-tokens", "9"]) == 0
        assert capsys.readouterr().out == f"{wanted}\n"
    monkeypatch.chdir("/")
    parts = [{"type": "text", "text": "Hear "}, {"type": "audio", "audio": "high.wav"}]
    asked = [{"prompt": "Which?", "audio": ["low.wav"]}, {"prompt": [{"role": "user", "content": parts}]}]
    out = clips / "out.jsonl"
    lines = lines_in(clips / "in.jsonl", *asked)
    assert main(["generate", "--prompts", lines, "--out", str(out), "--max-tokens", "9"]) == 0
    found = [json.loads(line)["output"] for line in out.read_text().splitlines()]
    assert found == [generate.text(model)(each, max_tokens=9) for each in ([low, "Which?"], ["Hear ", high])]


def test_audio_that_cannot_be_read_is_named(clips: Path, refused: Callable[..., str]) -> None:
    (clips / "broken.wav").write_bytes(b"RIFF\0\0\0\0WAVE")
    said = refused("--audio", str(clips / "broken.wav"), "-p", "a")
    assert said.startswith("trellm: --audio ") and "is a WAV file that is damaged or cut off" in said
    lines = lines_in(clips / "in.jsonl", {"prompt": "a", "audio": "none.wav"})
    assert "line 1: the audio 'none.wav' cannot be read" in refused("--prompts", lines, "--out", str(clips / "out"))
