"""The normal form against the JSON Schema Test Suite: all required tests, and the optional ones of formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ..support import CompiledSchema, SchemaOptions

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": "https://json-schema.org/draft/2020-12/schema",
}
REFUSED = Path(__file__).with_name("refused_formats.txt")


def remotes(suite: Path, draft: str) -> dict[str, Any]:
    """The documents that the suite's schemas refer to; those without `$schema` are of their folder's draft."""
    found: dict[str, Any] = {}
    for path in (suite / "remotes").rglob("*.json"):
        name = path.relative_to(suite / "remotes").as_posix()
        if name.split("/")[0] in ("draft3", "v1"):
            continue
        schema = json.loads(path.read_text("utf-8"))
        if isinstance(schema, dict) and "$schema" not in schema:
            schema = {**schema, "$schema": DRAFTS.get(name.split("/")[0], DRAFTS[draft])}
        found[f"http://localhost:1234/{name}"] = schema
    return found


def verdicts(suite: Path, draft: str, folder: str, formats: bool) -> list[tuple[str, bool, bool]]:
    """For every test its name, the expected verdict, and ours."""
    resources = remotes(suite, draft)
    found: list[tuple[str, bool, bool]] = []
    for path in sorted((suite / "tests" / draft / folder).glob("*.json")):
        for group in json.loads(path.read_text("utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            # In the required tests of `format` it is an annotation, as it is by default in the newest drafts.
            options = SchemaOptions(formats=formats and path.name != "format.json")
            compiled = CompiledSchema(schema, resources, options)
            for test in group["tests"]:
                name = f"{draft}/{path.stem} | {group['description']} | {test['description']}"
                found.append((name, test["valid"], compiled.accepts(compiled.root, test["data"])))
    return found


@pytest.mark.parametrize("draft", DRAFTS)
def test_required_tests(shared_data: Path, draft: str) -> None:
    found = verdicts(shared_data / "json-schema-test-suite", draft, ".", formats=True)
    assert len(found) > 500
    assert [name for name, expected, ours in found if ours != expected] == []


@pytest.mark.parametrize("draft", DRAFTS)
def test_formats_accept_nothing_invalid_and_refuse_only_what_is_listed(shared_data: Path, draft: str) -> None:
    """The list may only shrink: a test that is no longer refused must leave it."""
    found = verdicts(shared_data / "json-schema-test-suite", draft, "optional/format", formats=True)
    assert len(found) > 100
    assert [name for name, expected, ours in found if ours and not expected] == []
    listed = [line for line in REFUSED.read_text("utf-8").splitlines() if line.startswith(draft + "/")]
    assert sorted(name for name, expected, ours in found if expected and not ours) == sorted(listed)
