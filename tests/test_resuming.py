"""`trellm generate --resume`: what is finished is not made again, and the end is what one run would have come to."""

import json
from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary, models
from trellm.cli import main

PROMPTS = ['"a"', '{"prompt": "b", "id": 7}', '"a"', '"c"', '{"id": 8, "prompt": "b"}']


class Letters:
    def encode(self, text: str) -> list[int]:
        return list(text.encode())


class Model:
    """A random function as a model, which counts its calls."""

    def __init__(self) -> None:
        self.calls = 0
        self.model = models.from_function(self.logits, Vocabulary.from_bytes(), Letters())

    def logits(self, ids: list[int]) -> list[float]:
        self.calls += 1
        return [float(hash((token, *ids)) % 97) / 10 for token in range(257)]


@pytest.fixture
def model(command_runs: Any) -> Model:
    made = Model()
    command_runs(made.model)
    return made


@pytest.fixture
def run(model: Model, tmp_path: Path) -> Any:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("\n".join(PROMPTS), encoding="utf-8")

    def run(out: Path, *arguments: str) -> int:
        command = [
            "generate",
            "-m",
            "x",
            "-r",
            "[a-z]{3}",
            "--temperature",
            "1",
            "--seed",
            "5",
            "--prompts",
            str(prompts),
        ]
        return main([*command, "--out", str(out), *arguments])

    return run


@pytest.mark.parametrize("samples", ["1", "2"])
@pytest.mark.parametrize("cut", ["nothing", "whole lines", "half a line", "the last of them", "all"])
def test_the_end_is_what_one_run_comes_to(cut: str, samples: str, run: Any, model: Model, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run(whole, "-n", samples) == 0
    calls, lines = model.calls, whole.read_text(encoding="utf-8").splitlines(True)
    left = {
        "nothing": None,
        "whole lines": lines[2:4],
        "half a line": [*lines[:3], lines[3][:20]],
        "the last of them": lines[-1:],
        "all": lines[::-1],
    }[cut]
    if left is not None:
        out.write_text("".join(left), encoding="utf-8")
    model.calls = 0
    assert run(out, "-n", samples, "--resume") == 0
    if cut == "all":  # the file stays as it is
        assert model.calls == 0 and out.read_text(encoding="utf-8").splitlines(True) == lines[::-1]
    else:
        assert out.read_text(encoding="utf-8") == whole.read_text(encoding="utf-8")
        assert model.calls == calls if left is None else model.calls <= calls
        assert cut != "whole lines" or model.calls < calls
    assert list(tmp_path.glob(".*")) == []


def test_equal_prompts_are_told_apart_by_their_number(run: Any, model: Model, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "out.jsonl"
    assert run(whole) == 0
    first = whole.read_text(encoding="utf-8").splitlines(True)[0]
    out.write_text(first * 2, encoding="utf-8")
    assert run(out, "--resume") == 0
    assert [json.loads(line)["prompt"] for line in out.read_text(encoding="utf-8").splitlines()] == list("abacb")
    out.write_text(first * 3, encoding="utf-8")
    assert run(out, "--resume") == 2


@pytest.mark.parametrize(
    "line",
    [
        '{"prompt": "z", "output": "abc"}',
        '{"prompt": "a"}',
        '{"prompt": "a", "output": "abc", "sample": 0}',
        '{"prompt": "a", "id": 7, "output": "abc"}',
        "[1]",
        "",
        "[" * 10**5,
    ],
)
def test_files_of_something_else_are_left_alone(
    line: str, run: Any, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.jsonl"
    out.write_text(line + "\n", encoding="utf-8")
    assert run(out, "--resume") == 2
    assert "line 1 of" in capsys.readouterr().err
    assert out.read_text(encoding="utf-8") == line + "\n" and model.calls == 0


def test_mistakes(run: Any, model: Model, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(Path("-"), "--resume") == 2
    assert "--resume continues the file of --out" in capsys.readouterr().err
    assert run(tmp_path / "out.jsonl", "--resume", "--diagnose", str(tmp_path / "page.html")) == 2
    assert "leave --diagnose out" in capsys.readouterr().err
    assert run(tmp_path, "--resume") == 2
    assert "is not a regular file, so that no results can be read from it" in capsys.readouterr().err
    (tmp_path / "out.jsonl").write_bytes(b"\xff\n")
    assert run(tmp_path / "out.jsonl", "--resume") == 2
    assert "cannot be read" in capsys.readouterr().err
    assert model.calls == 0
