"""What goes together in a request: the table of docs/serve.md, every pair of it asked for."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from ..conftest import Running

PAGE = (Path(__file__).parents[3] / "docs/serve.md").read_text(encoding="utf-8")
SCHEMA = {"enum": ["ab", "cd"]}
GBNF = 'root ::= "ab" | "cd"'
TAG = {"type": "structural_tag", "format": {"type": "regex", "pattern": "ab|cd"}}
CONSTRAINTS: dict[str, Any] = {
    "json_object": {"response_format": {"type": "json_object"}},
    "json_schema": {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}}},
    "tags": {"response_format": TAG},
    "structured": {"structured_outputs": {"regex": "ab|cd"}},
    "guided_json": {"guided_json": SCHEMA},
    "guided_regex": {"guided_regex": "ab|cd"},
    "guided_choice": {"guided_choice": ["ab", "cd"]},
    "guided_grammar": {"guided_grammar": 'start: "ab" | "cd"'},
    "regex": {"regex": "ab|cd"},
    "ebnf": {"ebnf": GBNF},
    "sglang": {"json_schema": SCHEMA},
    "grammar": {"grammar": GBNF},
    "extract": {"trellm": {"extract": {"context": "ab cd"}}},
}
TOOLS = [{"type": "function", "function": {"name": "now", "parameters": {"type": "object", "maxProperties": 0}}}]
OTHERS: dict[str, Any] = {
    "include": {"trellm": {"include": ["a"]}},
    "tools": {"tools": TOOLS},
    "stop": {"stop": "zzz"},
    "stop_token_ids": {"stop_token_ids": [7]},
    "beams": {"trellm": {"beams": 2}},
    "trellm.json": {"trellm": {"json": {"whitespace": "compact"}}},
}
JSON = {"json_object", "json_schema", "guided_json", "sglang"}


def table() -> dict[tuple[str, str], str]:
    """The cells of the table, by row and column."""
    lines = PAGE[PAGE.index("| | a constraint |") :].split("\n\n")[0].splitlines()
    cells = [[cell.strip().replace("`", "") for cell in line.strip("|").split("|")] for line in lines]
    return {
        (row[0], column): cell for row in cells[2:] for column, cell in zip(cells[0][1:], row[1:], strict=True) if cell
    }


TABLE = table()


def asked(*fields: dict[str, Any]) -> dict[str, Any]:
    """A request with these fields, those within `trellm` together."""
    body: dict[str, Any] = {"model": "small", "messages": [{"role": "user", "content": "a"}], "max_tokens": 20}
    ours: dict[str, Any] = {}
    for each in fields:
        ours |= each.get("trellm", {})
        body |= each
    return body | {"trellm": ours, "temperature": 0}


def names(body: dict[str, Any]) -> set[str]:
    """The fields of a body as errors name them."""
    return (body.keys() - {"trellm"}) | {f"trellm.{name}" for name in body["trellm"]}


def holds(server: Running, cell: str, first: dict[str, Any], second: dict[str, Any]) -> None:
    body = asked(first, second)
    answer = server.post("/v1/chat/completions", body)
    if not cell.startswith("400"):
        assert answer.status_code == 200, answer.text
        return
    assert answer.status_code == 400, answer.text
    param = answer.json()["error"]["param"]
    assert any(param.startswith(name) for name in names(asked(first)) | names(asked(second)) - names(asked())), param


def test_the_table_has_every_pair() -> None:
    kinds = ["a constraint", *OTHERS]
    assert TABLE.keys() == {*combinations(kinds, 2), ("a constraint", "a constraint")}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_two_constraints(server: Running, name: str) -> None:
    for other in CONSTRAINTS.keys() - {name}:
        fields = asked(CONSTRAINTS[name], CONSTRAINTS[other])
        if len(names(fields) - names(asked())) == 2:  # of one field there is one anyway
            holds(server, TABLE["a constraint", "a constraint"], CONSTRAINTS[name], CONSTRAINTS[other])


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_a_constraint_and_something_else(server: Running, name: str) -> None:
    for other, fields in OTHERS.items():
        cell = TABLE["a constraint", other]
        holds(server, "yes" if other == "trellm.json" and name in JSON else cell, CONSTRAINTS[name], fields)


def test_pairs_without_a_constraint(server: Running) -> None:
    for first, second in combinations(OTHERS, 2):
        holds(server, TABLE[first, second], OTHERS[first], OTHERS[second])
