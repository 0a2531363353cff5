"""--tag, --draft and --no-draft of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary, models
from trellm.cli import main
from trellm.cli.constraint import ConstraintOptions, TagOption, guide_of
from trellm.engine.drafts import Drafter
from trellm.guides import DEAD, Guide

from .watching import watched

NOBODY: dict[str, Any] = dict.fromkeys(("pattern", "kind", "grammar", "syntax", "start"))
PLACES = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    texts = {
        "place.json": json.dumps(PLACES),
        "sum.lark": 'start: NUMBER "+" NUMBER\nNUMBER: /[0-9]+/',
        "sum.gbnf": 'root ::= [0-9]+ "-" [0-9]+',
        "year.regex": "[0-9]{4}\n",
        "broken.json": "{",
        "notes.txt": "x",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    return {name: str(tmp_path / name) for name in texts}


def test_what_is_between_markers_is_as_its_file_says(files: dict[str, str]) -> None:
    tags = ["--tag", "<p>", files["place.json"], "</p>", "--tag", "<a>", files["sum.lark"], "</a>"]
    tags += ["--tag", "<s>", files["sum.gbnf"], "</s>", "--tag", "<y>", files["year.regex"], ""]
    for text, code in (
        ("no marker at all", 0),
        ('a <p>{"city": "Rome"}</p>, <a>1+22</a> and <s>3-1</s> in <y>2024, said she', 0),
        ('<p>{"city": 3}</p>', 1),
        ("<a>1-22</a>", 1),
        ("<s>1+22</s>", 1),
        ("<y>20245", 0),
        ("<y>202", 1),
    ):
        assert main(["check", *tags, "-t", text]) == code, text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["<a>", "notes.txt", "</a>"], "has an unknown suffix; expected a schema in .json"),
        (["<a>", "broken.json", "</a>"], "is no JSON"),
        (["", "year.regex", "</a>"], "the first marker is empty"),
        (["<a>", "gone.regex", "</a>"], "cannot be read"),
        (["<a>", "year.regex", "</a>", "-r", "a"], "--regex and --tag exclude each other"),
    ],
)
def test_tags_that_cannot_be(
    arguments: list[str], said: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "--tag", *(files.get(each, each) for each in arguments), "-t", "a"]) == 2
    assert said in capsys.readouterr().err


def test_a_marker_that_is_a_special_token_is_that_token() -> None:
    vocabulary = Vocabulary([b"<", b"c", b">", b"7", None, None], eos_ids=[5], special_ids=[4])
    tags = [TagOption("<c>", "regex", "7", "")]
    written = guide_of(tags, vocabulary, None, None)
    special = guide_of(tags, vocabulary, None, {"<c>": 4}.get)
    assert reads(written, [0, 1, 2, 3]) and not reads(written, [0, 1, 2, 0])
    assert reads(special, [4, 3]) and reads(special, [0, 1, 2, 0]) and not reads(special, [4, 0])
    constraint = ConstraintOptions(**NOBODY, choices=(), flags=0, dialect="python", tags=(tags[0],))
    assert reads(constraint.guide(vocabulary, special={"<c>": 4}.get), [4, 3])


def reads(guide: Guide, tokens: list[int]) -> bool:
    state = guide.start
    for token in tokens:
        state = guide.advance(state, token)
    return state != DEAD and guide.is_accepting(state)


def test_a_model_writes_calls(files: dict[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("In <y>1999 it rained.\n" * 3, encoding="utf-8")
    command = ["generate", "-m", f"ziplm:{text}", "--tag", "<y>", files["year.regex"], "", "-p", "In <"]
    assert main([*command, "--max-tokens", "8"]) == 0
    assert "y>1999" in capsys.readouterr().out


@pytest.mark.parametrize(("flags", "drafts"), [(["--no-draft"], False), ([], True), (["--draft", "copy"], True)])
def test_drafts_are_read_unless_told_otherwise(
    flags: list[str],
    drafts: bool,
    command_runs: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = models.small()
    asked = watched(monkeypatch, Drafter, "propose", lambda _, rows, __: [row.request.options.draft for row in rows])
    command_runs(model)
    assert main(["generate", "-m", "small", "-p", "the", "--max-tokens", "6", *flags]) == 0
    assert {draft for drafts in asked for draft in drafts} == ({model} if "copy" in flags else {drafts})


def test_flags_of_drafts_that_exclude_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "-m", "x", "-p", "y", "--draft", "z", "--no-draft"]) == 2
    assert "leave one of them out" in capsys.readouterr().err
