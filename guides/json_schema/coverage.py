"""The coverage of every keyword of a schema, and likely mistakes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal

from ..limits import spend
from .compiled import CompiledSchema
from .read.dialects import DRAFT2020
from .read.formats import ENFORCED
from .read.subschema import Subschema, show

Unenforced = Literal["refuse", "allow"]
Status = Literal["enforced", "annotation", "refused"]

SEPARABLE = frozenset(
    (
        *("uniqueItems", "multipleOf", "pattern", "minLength", "minItems", "minProperties"),
        *("contains", "minContains"),
    )
)
"""Keywords that only restrict: removing one widens the schema."""
TURNED = ("not", "if", "oneOf")
"""Keywords within which removing a keyword may narrow the schema; they are left out as a whole."""
NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies")
MAX_LEFT_OUT = 64
ANNOTATIONS = frozenset(
    (
        *("id", "title", "description", "default", "examples", "example", "deprecated", "readOnly", "writeOnly"),
        *("contentEncoding", "contentMediaType", "contentSchema", "discriminator", "nullable", "externalDocs", "xml"),
    )
)
"""Keywords without conditions, including those of OpenAPI; names that begin with $ are tested separately."""
MAX_STRANGE = 64
"""Maximum number of unknown names compared with keywords; each takes a third of a millisecond."""
ALIKE = 0.82
"""Minimum similarity of a keyword and a misspelling, see `difflib.SequenceMatcher.ratio`."""


@dataclass(frozen=True, slots=True)
class KeywordCoverage:
    """A keyword of a schema: its JSON pointer, its status, and why it is refused."""

    pointer: str
    status: Status
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.pointer}: {self.status}{self.reason and f' ({self.reason})'}"


def coverage(schema: CompiledSchema, left_out: Mapping[str, str], formats: bool) -> list[KeywordCoverage]:
    """Return the coverage of every keyword of the schema and its references, by place; left_out: reasons by pointer."""
    found = [KeywordCoverage(pointer, "refused", reason) for pointer, reason in left_out.items()]
    for place in schema.documents.places:
        spend(100 * len(place.value))
        found += [KeywordCoverage(place.pointer_to(key), _status(place, key, formats)) for key in place.value]
    return sorted(found, key=lambda one: one.pointer)


@dataclass(frozen=True, slots=True)
class StrangeKeyword:
    """A likely mistake in an otherwise valid schema."""

    pointer: str
    reason: str


def strange_keywords(schema: CompiledSchema) -> list[StrangeKeyword]:
    """Return keywords similar to one of JSON Schema but unknown, and schemas of unknown keywords only.

    Names with a leading underscore are disabled on purpose; names similar to an annotation are as harmless.
    """
    places = schema.documents.places
    found: list[StrangeKeyword] = []
    likely: dict[str, list[str]] = {}
    for place in places:
        spend(100 * len(place.value))
        keywords = place.resource.dialect.keywords.keys()
        known = keywords | DRAFT2020.keywords.keys() | ANNOTATIONS  # keywords of newer drafts are no misspellings
        for key in (key for key in place.value if key not in known and not key.startswith(("x-", "$", "_"))):
            if key not in likely and len(likely) < MAX_STRANGE:
                exact = [each for each in keywords if each.casefold() == key.casefold()]
                likely[key] = exact or get_close_matches(key, keywords, 1, ALIKE)
            matches = likely.get(key)
            if matches and matches[0] not in place.value:
                reason = f"{show(key)} is no keyword of JSON Schema, and says nothing; did you mean {show(matches[0])}?"
                found.append(StrangeKeyword(place.pointer_to(key), reason))
    root = min(places, key=lambda place: len(place.pointer_to("")), default=None)
    if root is not None and root.value and not found:
        dialect = root.resource.dialect
        if all(key not in dialect.keywords and key not in ANNOTATIONS and key[:1] != "$" for key in root.value):
            reason = "no keyword of JSON Schema is in it, so that any value satisfies it; give a schema, not a value"
            found.append(StrangeKeyword("#", reason))
    return found


def _status(place: Subschema, key: str, formats: bool) -> Status:
    dialect = place.resource.dialect
    known = key in dialect.keywords or key in ("$schema", "$anchor", "$dynamicAnchor", dialect.id_keyword)
    if not known or (dialect.ref_alone and "$ref" in place.value and key not in ("$ref", "definitions")):
        return "annotation"
    if key == "format" and not (formats and place.value[key] in ENFORCED):
        return "annotation"
    return "enforced"


def separable(pointer: str) -> str | None:
    """Return the pointer of what to leave out to drop an unenforceable keyword; None if that is not allowed."""
    keys = pointer.split("/")
    words = _keywords(keys)
    if keys[0] != "#" or len(keys) - 1 not in words or keys[-1] not in SEPARABLE:
        return None
    turned = next((index for index in words if keys[index] in TURNED), len(keys) - 1)
    return "/".join(keys[: turned + 1])


def _keywords(keys: list[str]) -> list[int]:
    """Return the indices of the steps of a JSON pointer that are keywords rather than names of members."""
    found: list[int] = []
    for index in range(1, len(keys)):
        if not found or found[-1] != index - 1 or keys[index - 1] not in NAMED:
            found.append(index)
    return found
