"""JSON text read by guides, against the JSON Schema Test Suite: nothing invalid passes, what is refused is listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import LimitError, SchemaError
from trellm.guides import JSONGuide

from .test_suite import DRAFTS, REFUSED, remotes

BYTES = Vocabulary.from_bytes()
ALONE = "an ECMA 262 named group (?<name>...)"
"""Texts that a guide reads where the format `regex` is the only condition, by rules in place of a pattern."""


def guide_of(schema: Any, **options: Any) -> JSONGuide | str:
    """The guide that reads JSON written anyhow, or the reason why there is none."""
    try:
        return JSONGuide(schema, BYTES, order="any", whitespace="any", escapes="any", **options)
    except (SchemaError, LimitError) as error:
        return getattr(error, "reason", str(error))


def reads(guide: JSONGuide, text: str) -> bool:
    """Whether the text is an instance."""
    state = guide.read(guide.start, text.encode())
    return state >= 0 and guide.is_accepting(state)


def verdicts(suite: Path, draft: str) -> list[tuple[str, bool, bool]]:
    """For every test its name, the expected verdict, and ours."""
    resources = remotes(suite, draft)
    found: list[tuple[str, bool, bool]] = []
    folder = suite / "tests" / draft
    for path in sorted([*folder.glob("*.json"), *folder.glob("optional/format/*.json")]):
        for group in json.loads(path.read_text("utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            guide = guide_of(schema, resources=resources, formats=path.name != "format.json")
            for number, test in enumerate(group["tests"]):
                name = f"{draft}/{path.stem} | {group['description']} | {test['description']}"
                ours = not isinstance(guide, str) and reads(
                    guide, json.dumps(test["data"], ensure_ascii=number % 2 == 0)
                )
                found.append((name, test["valid"], ours))
    return found


@pytest.mark.parametrize(
    "draft",
    [
        pytest.param(draft, marks=[] if draft in ("draft4", "draft2020-12") else pytest.mark.slow)  # the ends
        for draft in DRAFTS
    ],
)
def test_nothing_invalid_passes_and_what_is_refused_is_listed(shared_data: Path, draft: str) -> None:
    found = verdicts(shared_data / "json-schema-test-suite", draft)
    assert len(found) > 700
    assert [name for name, valid, ours in found if ours and not valid] == []
    refused = [name for name, valid, ours in found if valid and not ours]
    listed = [line for line in REFUSED.read_text("utf-8").splitlines() if line.startswith(f"{draft}/")]
    assert sorted(refused) == sorted(name for name in listed if not name.endswith(ALONE))
