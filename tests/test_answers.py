"""The tasks of benchmarks/answers.py, and how answers to them are counted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "benchmarks"))

from questions.scoring import parsed, plain, score
from questions.tasks import KINDS, PER_KIND, Task, forms_of, tasks


@pytest.mark.parametrize("kind", KINDS)
def test_tasks_of_a_kind(kind: str) -> None:
    several = tasks(kind)
    assert len({task.prompt for task in several}) == PER_KIND
    assert [task.number for task in several] == list(range(PER_KIND))
    halves = [tasks(kind, half, 30) for half in ("choose", "judge")]
    assert [len(half) for half in halves] == [30, 30]
    assert not {task.prompt for task in halves[0]} & {task.prompt for task in halves[1]}
    for task in several:
        assert "{" not in task.prompt or kind == "tools", task.prompt
        assert not set("[]|") & set(task.prompt), task.prompt
        assert score(task, task.gold[0] if kind == "quotations" else task.gold) == 1.0


def test_they_are_the_same_in_other_processes() -> None:
    script = "from questions.tasks import *; print(hash(str(0)), [tasks(kind)[7].prompt for kind in KINDS])"
    folder = Path(__file__).resolve().parents[1] / "benchmarks"
    runs = [
        subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    ]
    (first, one), (second, two) = (run.split(" ", 1) for run in runs)
    assert first != second, "texts are hashed otherwise in each process"
    assert one == two == f"{[tasks(kind)[7].prompt for kind in KINDS]}\n"


@pytest.mark.parametrize("family", ["records", "tools", "numbers", "dates", "problems"])
def test_no_family_has_fewer_than_twenty_forms(family: str) -> None:
    assert min(forms_of(family)) >= 20


def test_what_is_asked_for_is_in_the_text() -> None:
    for task in tasks("quotations"):
        assert all(isinstance(each, str) for each in task.gold)
        assert task.gold[0] in task.argument
        assert task.argument in task.prompt
    for task in tasks("choices") + tasks("labels"):
        assert task.gold in task.argument
    for task in tasks("records"):
        assert set(task.gold) == set(task.argument["properties"])


def task(kind: str, gold: Any, argument: Any = None, constraint: Any = "json", prompt: str = "What is it?") -> Task:
    return Task(kind, 0, prompt, constraint, argument, gold)


def test_records_count_by_fields() -> None:
    asked = task("records", {"name": "Ann Lee", "birth_year": 1970, "people": ["A", "B"]})
    text = 'Here: ```json\n{"Name": "the Ann Lee.", "birth year": "1970", "people": ["A"]}\n```'
    assert score(asked, parsed(asked, text)) == pytest.approx(2 / 3)
    assert score(asked, parsed(asked, "- **Name**: Ann Lee\n- birth_year: 1971")) == pytest.approx(1 / 3)
    assert score(asked, parsed(asked, "I do not know.")) == 0
    assert score(asked, None) == 0


@pytest.mark.parametrize(
    "kind, gold, argument, constraint, text, right",
    [
        ("quotations", ["Ann Lee"], "Ann Lee won in Bath.", "extract", 'It was "Ann Lee".', 1),
        ("quotations", ["Ann Lee"], "Ann Lee won in Bath.", "extract", "The winner is Ann Lee.", 1),
        ("quotations", ["Ann Lee"], "Ann Lee won in Bath.", "extract", "Ann Lee won in Bath.", 0),
        ("quotations", ["1932"], "It was in 1932.", "extract", '"in 1932"', 1),
        ("choices", "yes", ["yes", "no"], "choice", "Yes, it is. No doubt.", 1),
        ("choices", "A", ["A", "B"], "choice", "a good question: A", 1),
        ("choices", "no", ["yes", "no"], "choice", "Nobody knows.", 0),
        ("numbers", 1200, None, "integer", "There are 1,200 of them in 3 rooms.", 1),
        ("numbers", "1932-03-05", None, "date", "It was on March 5, 1932.", 1),
        ("numbers", "1932-03-05", None, "date", "On 5 March 1932.", 1),
        ("problems", 12, None, "integer", "3 times 4 is 12.", 1),
        ("labels", "new card", ["card", "new card"], "choice", "It is a new card.", 1),
        ("ordering", ["b", "a"], {"items": {"enum": ["a", "b"]}}, "json", "First b, then a", 1),
        ("ordering", ["b", "a"], {"items": {"enum": ["a", "b"]}}, "json", '["a", "b"]', 0),
        (
            "tools",
            {"name": "f", "arguments": {"people": 3}},
            None,
            "json",
            '{"name": "f", "arguments": {"people": "3"}}',
            1,
        ),
    ],
)
def test_free_text_is_parsed(kind: str, gold: Any, argument: Any, constraint: Any, text: str, right: int) -> None:
    asked = task(kind, gold, argument, constraint)
    assert score(asked, parsed(asked, text)) == right


def test_values_are_compared_without_marks_and_articles() -> None:
    assert plain(' The "Blue Moon". ') == "blue moon"
    assert plain(["An Apple", 3, {"a": "B!"}]) == ["apple", 3, {"a": "b"}]
    assert json.loads(json.dumps(plain({"x": [True]}))) == {"x": [True]}
