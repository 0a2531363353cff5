"""JSON text read by guides, against the JSON Schema Test Suite: nothing invalid passes, what is refused is listed."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary
from trellm.errors import LimitError, SchemaError
from trellm.guides import JSONGuide

from .test_suite import DRAFTS, remotes

RATCHET = Path(__file__).with_name("ratchet.json")
"""By reason: the draft, group and name of every valid test that is refused. May only shrink."""

BYTES = Vocabulary.from_bytes()
EMPTY = "no value satisfies this schema"


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


def verdicts(suite: Path, draft: str) -> list[tuple[str, bool, bool, str]]:
    """For every test its name, the expected verdict, ours, and why."""
    resources = remotes(suite, draft)
    found: list[tuple[str, bool, bool, str]] = []
    folder = suite / "tests" / draft
    for path in sorted([*folder.glob("*.json"), *folder.glob("optional/format/*.json")]):
        for group in json.loads(path.read_text("utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict):
                schema = {"$schema": DRAFTS[draft], **schema}
            guide = guide_of(schema, resources=resources, formats=path.name != "format.json")
            for number, test in enumerate(group["tests"]):
                name = f"{draft}/{path.stem} | {group['description']} | {test['description']}"
                reason = guide if isinstance(guide, str) else path.stem
                ours = not isinstance(guide, str) and reads(
                    guide, json.dumps(test["data"], ensure_ascii=number % 2 == 0)
                )
                found.append((name, test["valid"], ours, reason))
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
    assert [name for name, valid, ours, _ in found if ours and not valid] == []
    refused: defaultdict[str, list[str]] = defaultdict(list)
    for name, valid, ours, reason in found:
        if valid and not ours:
            refused[reason].append(name)
    assert EMPTY not in refused
    listed = json.loads(RATCHET.read_text("utf-8"))
    ours_only = {reason: [name for name in names if name.startswith(f"{draft}/")] for reason, names in listed.items()}
    assert {reason: sorted(names) for reason, names in refused.items()} == {
        reason: sorted(names) for reason, names in ours_only.items() if names
    }
    assert sum(map(len, refused.values())) < 0.1 * sum(valid for _, valid, _, _ in found)
