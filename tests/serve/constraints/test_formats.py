"""The formats of structural tags against XGrammar's: texts and mutants of them, accepted by both or by neither.

Where the two differ on purpose: in parameters that are written one by one, XGrammar lets any white space stand around
values, ours either the line breaks of the models' templates or none.
"""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from trellm import Limits
from trellm.guides.protocol import Guide
from trellm.serve.constraints.structural_tags import FormatError, structural_guide

from ..conftest import Running
from ..tool_calls.models import TEXT, Model, accepts

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": SCHEMA}
ANY = {"type": "any_text"}


def const(value: str) -> dict[str, Any]:
    return {"type": "const_string", "value": value}


def tag(begin: Any, content: Any, end: Any) -> dict[str, Any]:
    return {"type": "tag", "begin": begin, "content": content, "end": end}


def sequence(*elements: Any) -> dict[str, Any]:
    return {"type": "sequence", "elements": list(elements)}


def triggered(**options: Any) -> dict[str, Any]:
    tags = [tag("<f=g>", JSON, "</f>"), tag("<f=h>", ANY, "</f>")]
    return {"type": "triggered_tags", "triggers": ["<f="], "tags": tags, **options}


def separated(**options: Any) -> dict[str, Any]:
    tags = [tag("<a>", const("x"), "</a>"), tag("<b>", ANY, "</b>")]
    return {"type": "tags_with_separator", "separator": ",", "tags": tags, **options}


def dispatch(**options: Any) -> dict[str, Any]:
    return {"type": "dispatch", "rules": [["<a>", JSON], ["<b>", const("x")]], **options}


AB = const("ab")
BOTH = {"at_least_one": True, "stop_after_first": True}
FORMATS: dict[str, dict[str, Any]] = {
    "text": const("hello"),
    "json": sequence(const("x"), JSON, const("y")),
    "any": ANY,
    "any in the middle": sequence(const("x"), ANY, const("y")),
    "any without": {**ANY, "excludes": ["zz", "<f"]},
    "any of a length": {**ANY, "max_chars": 3},
    "or": {"type": "or", "elements": [const("x"), JSON, tag("<a>", ANY, "</a>")]},
    "tag with ends": tag("<a>", ANY, ["</a>", "</b>"]),
    "tag of a sequence": tag("<a>", sequence(const("x"), ANY), "</a>"),
    "tag of either": tag("<a>", {"type": "or", "elements": [const("x"), ANY]}, "</a>"),
    "triggered": triggered(excludes=["zz"]),
    "triggered, one": triggered(at_least_one=True),
    "triggered, stop": triggered(stop_after_first=True),
    "triggered, one and stop": triggered(**BOTH),
    "triggered in a tag": tag("<t>", triggered(), "</t>"),
    "triggered, then": sequence(triggered(), const("y")),
    "thinking": sequence(tag("<think>", ANY, "</think>"), triggered()),
    "separated": separated(),
    "separated, one": separated(at_least_one=True),
    "separated, stop": separated(stop_after_first=True),
    "separated, one and stop": separated(**BOTH),
    "optional": sequence({"type": "optional", "content": const("ab")}, const("c")),
    "plus": {"type": "plus", "content": const("ab")},
    "star": {"type": "star", "content": {"type": "optional", "content": {"type": "or", "elements": [AB, const("c")]}}},
    "repeat": {"type": "repeat", "min": 1, "max": 3, "content": const("ab")},
    "repeat without end": {"type": "repeat", "min": 2, "max": -1, "content": const("ab")},
    "regex": {"type": "regex", "pattern": "[a-c]{2,3}"},
    "grammar": {"type": "grammar", "grammar": 'root ::= "a" [0-9]+'},
    "dispatch": dispatch(excludes=["zz"]),
    "dispatch once": dispatch(loop=False),
    "dispatch to an end": sequence(dispatch(excludes=["</e>"]), const("</e>")),
    "qwen": tag("<function=g>", {**JSON, "style": "qwen_xml"}, "</function>"),
    "qwen before": {"type": "qwen_xml_parameter", "json_schema": SCHEMA},
    "minimax": {**JSON, "style": "minimax_xml"},
    "glm": {**JSON, "style": "glm_xml"},
}  # fmt: skip
CALL = '<f=g>{"a": 1}</f>'
TEXTS = [
    *("", "hello", "x", "xqy", 'x{"a": 1}y', "<a>q</a>", "<a>q</b>", "<a>q</a></a>", "<a>xq</a>", "<a>x</a>", CALL),
    *(f"q {CALL} c<f=h>zz</f>", "<f=h></f>", "<t>q<f=h>q</f>q</t>", "<t>q</t>", "<f=h>q</f>y", "qy", "yy", "世世世"),
    *("<think>q</think>q <f=h>x</f>", "<a>x</a>,<b>q</b>", "<a>x</a><b>q</b>", "<b>q,</b>", "abc", "ab", "ababab"),
    *("abcab", "abab", "a12", "q<f", "qz", '<a>{"a": 1}q<b>x', '<a>{"a": 1}', "q<b>xq<b>x", '<a>{"a": 1}</e>', "q</e>"),
    "<function=g><parameter=a>1</parameter><parameter=b>q</parameter></function>",
    "<function=g><parameter=a>\n1\n</parameter>\n</function>",
    "<parameter=a>1</parameter>",
    "<parameter=a>\n1\n</parameter>\n<parameter=b>\nq\n</parameter>\n",
    '<parameter name="a">1</parameter><parameter name="b">q</parameter>',
    '<parameter name="a">1</parameter>\n<parameter name="b">q</parameter>\n',
    "<arg_key>a</arg_key><arg_value>1</arg_value><arg_key>b</arg_key><arg_value>q</arg_value>",
]
PARTS = [
    *("x", "y", "ab", "c", '{"a": 1}', "<f=g>", "<f=h>", "</f>", "<f=", "<a>", "</a>", "<b>", "</b>", ",", "</t>"),
    *("<think>", "</think>", "zz", "q ", "<parameter=a>", "1", "</parameter>", "<parameter=b>", "</e>", "世", "</"),
]
ACCEPTED = {"star": 5, "qwen": 2, "qwen before": 2, "minimax": 2}


def guide_of(form: Any, model: Any = TEXT) -> Guide:
    return structural_guide({"type": "structural_tag", "format": form}, model, Limits())


def mutant(random: Random) -> str:
    """A text of parts, or one like those above."""
    if random.random() < 0.3:
        return "".join(random.choices(PARTS, k=random.randint(1, 5)))
    text = random.choice(TEXTS)
    at = random.randrange(len(text) + 1)
    kept = (text[at:], text[at + random.choice([1, 2, 5]) :], text[max(0, at - 3) :])
    kind = random.randrange(3)
    return text[:at] + (random.choice(PARTS) if kind == 0 else "") + kept[kind]


@pytest.mark.parametrize("name", FORMATS)
def test_texts_that_both_accept(peer: Any, name: str) -> None:
    found, compiler = peer
    form = FORMATS[name]
    theirs = compiler.compile_structural_tag(json.dumps({"type": "structural_tag", "format": form}))
    ours, random = guide_of(form), Random(name)
    is_spaced = "xml" in json.dumps(form)
    accepted = 0
    for text in [*TEXTS, *(mutant(random) for _ in range(60))]:
        matcher = found.GrammarMatcher(theirs)
        both = [accepts(ours, list(text.encode()))]
        both.append(all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(256))
        if is_spaced and both == [False, True]:
            assert "\n" in text, text
            continue
        assert both[0] == both[1], (text, both)
        accepted += both[0]
    assert accepted >= ACCEPTED.get(name, 1)


def test_tokens() -> None:
    """Markers that are special tokens, by number or text; nothing spells them."""
    model = Model(("<call>", "</call>", "<other>"))
    begin, end, other = 257, 258, 259
    by_text = {"type": "token", "token": "<call>"}
    for token in (by_text, {"type": "token", "token": begin}):
        guide = guide_of(tag(token, const("x"), {"type": "token", "token": end}), model)
        assert accepts(guide, [begin, ord("x"), end])
        assert not accepts(guide, [*b"<call>x", end])
    tags = [tag(by_text, JSON, "!")]
    form = {"type": "token_triggered_tags", "trigger_tokens": ["<call>"], "tags": tags, "exclude_tokens": [other]}
    guide = guide_of(form, model)
    assert accepts(guide, [*b"hm", begin, *b'{"a": 1}!', *b"more"])
    assert not accepts(guide, [begin, *b"more"])
    assert not accepts(guide, [other])
    rules = {"type": "token_dispatch", "rules": [["<call>", const("x")]], "loop": False}
    assert accepts(guide_of(rules, model), [*b"hm", begin, *b"x"])
    assert accepts(guide_of(sequence({"type": "any_tokens", "exclude_tokens": [other]}, by_text), model), [97, begin])


@pytest.mark.parametrize(
    ("form", "place", "words"),
    [
        (7, "format", "a format is an object"),
        ({"type": "poem"}, "format.type", "there are const_string, json_schema"),
        ({"type": "exclude_token"}, "format.type", "not supported"),
        ({"type": "const_string"}, "format.value", "a text"),
        ({**ANY, "max_tokens": 3}, "format.max_tokens", "give max_chars"),
        ({**ANY, "most": 3}, "format.most", "unknown field"),
        ({**JSON, "style": "cohere_xml"}, "format.style", "qwen_xml, minimax_xml, glm_xml"),
        ({**JSON, "excludes": ["a"]}, "format.excludes", "not supported"),
        ({"type": "json_schema", "json_schema": {"type": "what"}}, "format.json_schema", "what"),
        (sequence(ANY, {"type": "regex", "pattern": "("}), "format.elements.1.pattern", "never closed"),
        (tag("<a>", ANY, []), "format.end", "a text, a list"),
        (tag("<a>", {"type": "or", "elements": []}, "</a>"), "format.content.elements", "not empty"),
        ({**triggered(), "triggers": ["<g"]}, "format.tags.0.begin", "none of the triggers"),
        ({"type": "repeat", "min": 3, "max": 2, "content": ANY}, "format.max", "from min=0"),
        ({"type": "repeat", "min": 0, "max": 10**9, "content": ANY}, "format.max", "from min=0"),
        ({"type": "token", "token": "<no>"}, "format.token", "no token"),
        ({"type": "token", "token": 10**9}, "format.token", "by its number"),
        (dispatch(rules=[["", ANY]]), "format.rules.0.0", "not empty"),
    ],
)
def test_what_cannot_be_done(form: Any, place: str, words: str) -> None:
    with pytest.raises(FormatError, match=words) as caught:
        guide_of(form, Model(("<call>",)))
    assert ".".join(map(str, caught.value.steps)) == place


def test_formats_within_one_another() -> None:
    form: Any = const("a")
    for _ in range(31):
        form = {"type": "optional", "content": form}
    assert accepts(guide_of(form), [97])
    for _ in range(60):
        form = sequence(form)
    with pytest.raises(FormatError, match="within one another"):
        guide_of(form)
    with pytest.raises(FormatError, match="formats"):
        guide_of(sequence(*[const("a")] * 5000))


def test_formats_of_requests(server: Running) -> None:
    form = sequence(tag("<think>", {**ANY, "max_chars": 5}, "</think>"), tag("<call>", JSON, "</call>"))
    for field in (
        {"response_format": {"type": "structural_tag", "format": form}},
        {"structured_outputs": {"structural_tag": json.dumps({"type": "structural_tag", "format": form})}},
    ):
        text = server.complete("Say: ", max_tokens=80, **field)["choices"][0]["text"]
        assert text.startswith("<think>") and text.endswith("}</call>")
        json.loads(text.partition("<call>")[2].removesuffix("</call>"))
    bad = {"type": "structural_tag", "format": sequence(const("a"), {"type": "regex", "pattern": "("})}
    error = server.error("/v1/completions", {"model": "small", "prompt": "a", "response_format": bad})
    assert error["code"] == "invalid_structural_tag"
    assert error["pointer"] == "/response_format/format/elements/1/pattern"
