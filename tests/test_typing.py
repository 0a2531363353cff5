"""What an editor knows of values: pyright's own words for the types of generators and of what they give."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

SOURCE = """
import datetime
import enum
from collections.abc import Sequence
from dataclasses import dataclass

from trellm import Sample, generate, models

model = models.ziplm("text")


@dataclass
class Person:
    name: str


class Mood(enum.Enum):
    GOOD = "good"


def remind(when: str, what: str) -> None: ...


def several(prompts: Sequence[str]) -> None:
    reveal_type(generate.json(model, Person)(prompts))  # list[Person]


reveal_type(generate.json(model, Person))  # Generator[Person]
reveal_type(generate.json(model, Person)("a"))  # Person
reveal_type(generate.json(model, Person, order="any")(["a"], max_tokens=9, search=Sample(), retries=2))  # list[Person]
reveal_type(generate.json(model, Person).run("a"))  # Generation[Person]
reveal_type(generate.json(model, Person).run("a").value)  # Person
reveal_type(generate.json(model, Person).run(["a"], logprobs=True))  # list[Generation[Person]]
reveal_type(generate.json(model, list[int])("a"))  # list[int]
reveal_type(generate.json(model, {"type": "object"})("a"))  # Any
reveal_type(generate.json(model, True)("a"))  # Any
reveal_type(generate.json(model, remind)("a"))  # dict[str, Any]
reveal_type(generate.text(model)("a"))  # str
reveal_type(generate.text(model)([1, 2]))  # str
reveal_type(generate.text(model)([{"role": "user", "content": "a"}]))  # str
reveal_type(generate.text(model)([[{"role": "user", "content": "a"}], [1], "a"]))  # list[str]
reveal_type(generate.regex(model, "a+")(["a", "b"]))  # list[str]
reveal_type(generate.regex(model, "a+").run("a").text)  # str
reveal_type(generate.choice(model, ["a"])("a"))  # str
reveal_type(generate.choice(model, {"a": 1})("a"))  # int
reveal_type(generate.choice(model, Mood)(["a"]))  # list[Mood]
reveal_type(generate.cfg(model, "start: A")("a"))  # str
reveal_type(generate.fsm(model, None)("a"))  # str
reveal_type(generate.format(model, int)("a"))  # int
reveal_type(generate.format(model, datetime.date)(["a"]))  # list[date]
reveal_type(generate.format(model, Mood)("a"))  # Mood
reveal_type(generate.extract(model, "a b")("a"))  # Span
reveal_type(generate.extract(model, "a b", none_text="none")(["a"]))  # list[Span | None]
reveal_type(generate.extract(model, "a b", spans=3)("a"))  # list[Span]
reveal_type(next(generate.text(model).stream("a")))  # str
"""

WRONG = """
from trellm import generate, models

model = models.ziplm("text")
generate.text(model)("a", temperature=1.0)
generate.text(model)("a", logprobs=True)
generate.text(model)(5)
generate.regex("a+", model)
generate.json(model, True, ordr="any")
generate.extract(model, "a", boundary="words")
"""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[tuple[int, str, str]]]:
    """What pyright says of both files, in strict mode: line, severity and message."""
    program = shutil.which("pyright")
    if program is None:
        pytest.skip("pyright is not installed")
    folder = tmp_path_factory.mktemp("typing")
    # The package as a plain install has it: a folder of that name.
    (folder / "site").mkdir()
    (folder / "site" / "trellm").symlink_to(ROOT, target_is_directory=True)
    settings = {"typeCheckingMode": "strict", "extraPaths": [str(folder / "site")], "include": ["*.py"]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    (folder / "right.py").write_text(SOURCE)
    (folder / "wrong.py").write_text(WRONG)
    done = subprocess.run([program, "--outputjson"], cwd=folder, capture_output=True, text=True, timeout=1000)
    try:
        diagnostics = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {done.stdout}{done.stderr}")
    found: dict[str, list[tuple[int, str, str]]] = {"right.py": [], "wrong.py": []}
    for one in diagnostics:
        place = (one["range"]["start"]["line"], one["severity"], one["message"])
        found[Path(one["file"]).name].append(place)
    return found


def test_values_have_the_types_that_were_asked_for(reported: dict[str, list[tuple[int, str, str]]]) -> None:
    lines = SOURCE.splitlines()
    expected = {number: line.split("  # ")[1] for number, line in enumerate(lines) if "reveal_type(" in line}
    revealed: dict[int, str] = {}
    for line, severity, message in reported["right.py"]:
        assert severity == "information", f"{lines[line]}: {message}"
        kind = re.fullmatch(r'Type of ".*" is "(.*)"', message, re.S)
        assert kind is not None, message
        revealed[line] = kind[1]
    assert revealed == expected


def test_mistakes_are_seen_before_anything_runs(reported: dict[str, list[tuple[int, str, str]]]) -> None:
    calls = [number for number, line in enumerate(WRONG.splitlines()) if line.startswith("generate.")]
    assert {line for line, severity, _ in reported["wrong.py"] if severity == "error"} == set(calls)
