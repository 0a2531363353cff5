"""`quote(name)` in Lark grammars: exactly the quotations, and where they stand."""

from __future__ import annotations

from typing import Any

import pytest
from trellm import Quote, Vocabulary, generate, models
from trellm.errors import GrammarError, LanguageError, OptionError
from trellm.guides import CFGGuide, laws
from trellm.guides.grammar import parse_lark

from ..quoting.naive_quoting import quotations
from ..quoting.test_substring import outputs
from ..vocabularies import SMALL

DOCUMENT = "é 4 mm, a\n4 mm"
BYTES = Vocabulary.from_bytes()
PIECES = quotations([DOCUMENT], "word")


def guide_of(grammar: str, **contexts: Any) -> CFGGuide:
    return CFGGuide(grammar, BYTES, contexts=contexts)


def accepts(guide: CFGGuide, text: str) -> bool:
    state = guide.automaton.read(guide.start, text.encode())
    return state >= 0 and guide.automaton.is_accepting(state)


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "<" quote(doc) ">"',
        'start: "<" QUOTED ">"\nQUOTED: quote(doc)',
        'start: in_angles{quote(doc)}\nin_angles{what}: "<" what ">"',
    ],
)
def test_the_outputs_are_all_quotations_and_nothing_else(grammar: str) -> None:
    guide = guide_of(grammar, doc=DOCUMENT)
    expected = {f"<{piece}>".encode() for piece in PIECES}
    assert sorted(outputs(guide)) == sorted(expected)


def test_two_contexts_and_other_alternatives() -> None:
    guide = guide_of('start: quote(one) "+" quote(two) | "none"', one="a b", two=Quote("xyz", boundary="character"))
    ones, twos = quotations(["a b"], "word"), quotations(["xyz"], "character")
    expected = {f"{one}+{two}".encode() for one in ones for two in twos} | {b"none"}
    assert sorted(outputs(guide)) == sorted(expected)


def test_ignored_text_may_follow_a_quotation() -> None:
    guide = guide_of('start: quote(doc) ";"\n%ignore " "', doc="a b")
    assert accepts(guide, " a b  ;")
    assert not accepts(guide, "a  b;")


def test_a_quotation_keeps_the_laws_of_guides() -> None:
    laws.check(CFGGuide('start: quote(doc) (" a" quote(doc))*', SMALL, contexts={"doc": "ab aba é世, ba\n\nab"}))


@pytest.mark.parametrize("piece", PIECES)
def test_the_span_of_each_quotation(piece: str) -> None:
    guide = guide_of('start: "<" quote(doc) ">" "!"?', doc=DOCUMENT)
    (span,) = guide.spans(f"<{piece}>").values()
    assert span.text == piece == DOCUMENT[span.start : span.end]
    assert [tuple(place) for place in span.occurrences] == sorted(PIECES[piece])
    assert guide.spans(f"<{piece}") == {}


def test_spans_are_numbered_by_context() -> None:
    guide = guide_of("start: item*\nitem: quote(a) quote(b) | /[0-9]+/", a=["x y", "z"], b=Quote("(q\nr)"))
    spans = guide.spans("z(q12y)")
    assert {key: (span.document, span.start, span.text) for key, span in spans.items()} == {
        "/a/0": (1, 0, "z"),
        "/b/0": (0, 0, "(q"),
        "/a/1": (0, 2, "y"),
        "/b/1": (0, 4, ")"),
    }


@pytest.mark.parametrize(
    ("text", "pieces"),
    [("a and b and c", ["a and b and c"]), ("c and b and c", ["c", "b and c"]), ("c and c", ["c", "c"])],
)
def test_of_several_readings_quotations_are_early_and_long(text: str, pieces: list[str]) -> None:
    guide = guide_of('start: start " and " quote(doc) | quote(doc) | /[a-z ]+/', doc="a and b and c")
    assert [span.text for span in guide.spans(text).values()] == pieces


def test_text_that_only_resembles_a_quotation_backtracks() -> None:
    guide = guide_of('start: /[a-z ]+/ "!" | (quote(doc) " ")+ "?"', doc="a a a a a a")
    assert guide.spans("a a a a a a!") == {}
    assert [span.text for span in guide.spans("a a a ?").values()] == ["a a a"]


def test_generation_has_the_spans() -> None:
    report = "The nodule measures 4 mm. A cyst measures 9 mm."
    model = models.ziplm('How wide? size "4 mm"\nHow large? size "4 mm"\n')
    generator = generate.cfg(model, 'start: "size \\"" quote(report) "\\""', contexts={"report": report})
    found = generator.run("How wide? ")
    span = found.spans["/report/0"]
    assert found.text == f'size "{span.text}"'
    assert report[span.start : span.end] == span.text


def test_a_rule_of_that_name_is_a_rule() -> None:
    guide = CFGGuide('start: quote("a" | "b") quote\nquote: "|"', BYTES)
    assert sorted(outputs(guide)) == [b"|a|", b"|b|"]


def test_a_grammar_with_quotations_is_written_out_as_it_was_read() -> None:
    grammar = parse_lark('start: "<" quote(doc) ">"', contexts={"doc": DOCUMENT})
    assert str(grammar) == 'start: "<" quote(doc) ">"\n'
    guide = CFGGuide(grammar, BYTES)
    assert accepts(guide, "<4 mm>")
    assert "quote(doc)" in guide.to_svg()


@pytest.mark.parametrize(
    ("grammar", "reason", "line", "column"),
    [
        ('start: "a"\n     | quote(other)', "there is no context 'other'; contexts= has 'doc'", 2, 14),
        ('start: A\n\nA: "a" quote(other)', "there is no context 'other'", 3, 14),
        ('start: "a"\n | quote()', "expected the name of a context after 'quote('", 2, 10),
        ('start: "a"\n | quote("doc")', "expected the name of a context after 'quote('", 2, 10),
        ('start: "a"\n | quote(doc | doc)', "expected ')' after 'doc', found '|'", 2, 14),
    ],
)
def test_what_cannot_be_quoted(grammar: str, reason: str, line: int, column: int) -> None:
    with pytest.raises(GrammarError) as caught:
        guide_of(grammar, doc=DOCUMENT)
    message = str(caught.value)
    assert reason in message
    assert f"line {line}, column {column}" in message
    assert message.split("\n")[-1].strip() == "^"


def test_contexts_where_they_mean_nothing() -> None:
    with pytest.raises(GrammarError, match="contexts= has none"):
        CFGGuide("start: quote(doc)", BYTES)
    with pytest.raises(GrammarError, match="GBNF has no quotations"):
        CFGGuide('root ::= "a" quote(doc)', BYTES, syntax="gbnf", contexts={"doc": DOCUMENT})
    with pytest.raises(OptionError, match="give contexts= to parse_lark"):
        CFGGuide(parse_lark('start: "a"'), BYTES, contexts={"doc": DOCUMENT})
    with pytest.raises(LanguageError):
        guide_of("start: quote(doc)", doc="")
