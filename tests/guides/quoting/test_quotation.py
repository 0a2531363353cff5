"""Quoted strings inside JSON: exactly the quotations, escaped as JSON escapes them, and found again."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel
from trellm import Quote, Span, Vocabulary, generate, models
from trellm.errors import LanguageError, OptionError, SchemaError
from trellm.guides import JSONGuide, laws

from ..support import Occurrence, fragment_of_quote
from ..vocabularies import SMALL
from .naive_quoting import quotations
from .test_substring import outputs

DOCUMENT = 'The "size" is\t4 mm\\cm,\né 世界 – aba.'
PLAIN = Vocabulary.from_bytes()


def texts_of(quote: Quote, escaped: bool) -> list[bytes]:
    """All texts of the fragment of a graph, read node by node."""
    template = fragment_of_quote(quote, escaped)
    begins = np.concatenate([[0], template.ends[:-1]])
    exits = set(template.exits.tolist())
    found: list[bytes] = []
    open_ones = [(0, b"")]
    while open_ones:
        node, text = open_ones.pop()
        if node in exits:
            found.append(text)
        for low, high, target in template.edges[begins[node] : template.ends[node]].tolist():
            assert low == high
            open_ones.append((target, text + bytes([low])))
    return found


PARTS = st.sampled_from(["ab", "a", "b", " ", "\n", ". ", "é", '"', "\\", "aa", "\x01"])


@given(
    st.lists(st.lists(PARTS, max_size=8).map("".join), min_size=1, max_size=2),
    st.sampled_from(["word", "character", "line"]),
    st.integers(1, 3),
    st.none() | st.integers(3, 7),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=120, deadline=None)
def test_the_piece_of_graph_has_all_quotations(
    documents: list[str], boundary: Any, min_chars: int, max_chars: int | None, collapsed: bool, escaped: bool
) -> None:
    expected = quotations(documents, boundary, min_chars, max_chars, collapsed)
    options: dict[str, Any] = dict(boundary=boundary, min_chars=min_chars, max_chars=max_chars)
    if not expected:
        with pytest.raises(LanguageError):
            Quote(documents, **options, whitespace="collapsed" if collapsed else "exact")
        return
    quote = Quote(documents, **options, whitespace="collapsed" if collapsed else "exact")
    found = texts_of(quote, escaped)
    written = {(json.dumps(text, ensure_ascii=False)[1:-1] if escaped else text).encode() for text in expected}
    assert len(found) == len(set(found)) and set(found) == written
    assert quote.examples(3) == sorted(expected, key=lambda text: (len(text), text))[:3]
    for text, places in expected.items():
        assert quote.places(text) == places


def test_json_strings_are_quotations() -> None:
    guide = JSONGuide({"type": "string", "x-quote": "doc"}, PLAIN, contexts={"doc": DOCUMENT}, whitespace="compact")
    found = {json.loads(text) for text in outputs(guide)}
    assert found == quotations([DOCUMENT], "word").keys()
    for text in found:
        spans = guide.spans(json.dumps(text))
        assert DOCUMENT[spans[""].start : spans[""].end] == text == spans[""].text


SCHEMA = {
    "type": "object",
    "properties": {
        "where": {"type": "string", "x-quote": "doc", "maxLength": 6},
        "all": {"type": "array", "items": {"$ref": "#/$defs/quoted"}, "maxItems": 2},
        "size/unit": {"anyOf": [{"const": "none"}, {"x-quote": {"context": ["4 mm", "5 cm"], "min_chars": 4}}]},
    },
    "required": ["where", "size/unit"],
    "additionalProperties": False,
    "$defs": {"quoted": {"type": ["string", "null"], "x-quote": "doc", "minLength": 3, "maxLength": 9}},
}


def test_the_laws_and_the_spans_of_a_schema() -> None:
    guide = JSONGuide(SCHEMA, SMALL, contexts={"doc": DOCUMENT}, order="schema")
    laws.check(guide, texts=3, tokens=12)
    value = {"where": "4 mm", "all": ["size", None], "size/unit": "5 cm"}
    spans = guide.spans(json.dumps(value))
    assert {pointer: (span.text, span.start, span.document) for pointer, span in spans.items()} == {
        "/where": ("4 mm", 14, 0), "/all/0": ("size", 5, 0), "/size~1unit": ("5 cm", 0, 1),
    }  # fmt: skip
    assert guide.spans('{"where": "4 mm", "size/unit": "none"}').keys() == {"/where"}
    read = guide.automaton.read
    assert read(guide.start, b'{"where": "\\"size') >= 0 > read(guide.start, b'{"where": "\\"sizes')
    assert read(guide.start, b'{"where": "4 mm') >= 0 > read(guide.start, b'{"where": "4 mm\\\\c')


class Finding(BaseModel):
    quote: Annotated[str, Quote(DOCUMENT, max_chars=12)]
    other: Annotated[str | None, Quote("ab cd", boundary="line")] = None


def test_pydantic_models() -> None:
    model = models.ziplm('{"quote": "4 mm", "other": "ab cd"}\n')
    result = generate.json(model, Finding).run("Size: ", max_tokens=80)
    assert isinstance(result.value, Finding) and result.spans["/quote"].text == result.value.quote
    span = result.spans["/quote"]
    assert DOCUMENT[span.start : span.end] == span.text
    assert result.value.other in (None, "ab cd")


def test_enumerations_keep_what_is_quoted() -> None:
    schema = {"enum": ["4 mm", "6 mm", None], "x-quote": "doc"}
    assert set(outputs(JSONGuide(schema, PLAIN, contexts={"doc": DOCUMENT}))) == {b'"4 mm"', b"null"}


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"x-quote": "report"}, "there is no context 'report'; contexts= has 'doc' .at #/x-quote"),
        ({"x-quote": 7}, "x-quote"),
        ({"x-quote": {"context": ""}}, "the context is empty: there is nothing to quote .at #/x-quote"),
        ({"x-quote": {"context": "a", "min_chars": 2}}, "fewer than min_chars=2"),
        ({"x-quote": {"context": "a", "size": 2}}, "'size' is not an option of a quotation"),
        ({"x-quote": "doc", "pattern": "a"}, "no pattern or format beside it"),
        ({"allOf": [{"x-quote": "doc"}, {"pattern": "a"}]}, "no pattern, format, negation"),
        ({"not": {"x-quote": "doc"}}, "x-quote cannot be negated"),
        ({"type": "string", "x-quote": "doc", "minLength": 99}, "no value satisfies"),
    ],
)
def test_mistakes_are_found_beforehand(schema: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        JSONGuide(schema, SMALL, contexts={"doc": DOCUMENT})


def test_a_quote_needs_a_context() -> None:
    with pytest.raises(OptionError, match="boundary='page'"):
        Quote("ab", boundary="page")  # type: ignore[arg-type]
    with pytest.raises(LanguageError, match="the context is empty"):
        Quote("")


def test_pieces_of_given_lengths() -> None:
    quote = Quote("abcab", boundary=(2, 1, 2))
    assert sorted(quote.examples(9)) == ["ab", "abc", "abcab", "c", "cab"]
    assert Quote.of(json.loads(json.dumps(quote.as_json()))) == quote
    assert quote.span("cab") == Span("cab", 2, 5, occurrences=(Occurrence(0, 2, 5),))
