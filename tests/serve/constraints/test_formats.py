"""The formats of structural tags against XGrammar's: texts and mutants of them, accepted by both or by neither.

Where the two differ on purpose: in parameters that are written one by one, XGrammar lets any white space stand around
values, ours either the line breaks of the models' templates or none.
"""

from __future__ import annotations

import json
from itertools import product
from random import Random
from typing import Any

import pytest
from trellm import Limits
from trellm.guides import Guide

from ..conftest import Running
from ..support import FormatError, structural_guide
from ..tool_calls.models import TEXT, Model, accepts

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
JSON = {"type": "json_schema", "json_schema": SCHEMA}
KINDS = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "u": {"type": ["integer", "string"]},
        "o": {"type": "object", "properties": {"x": {"type": "string"}, "y": {"type": "null"}}, "required": ["x"]},
        "a": {"type": "array", "items": {"enum": ["A", "B"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["s"],
}
TEXTUAL = {"type": "json_schema", "json_schema": {"type": "array", "items": {"type": "string"}}}
XML = {"type": "json_schema", "json_schema": KINDS}
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
    "tag without its ends": tag("<a>", {**ANY, "excludes": ["</a>", "zz"]}, ["</a>", "</b>"]),
    "tag without its end": tag("<a>", {**ANY, "excludes": ["</a>"]}, "</a>"),
    "triggered without the end": tag("<t>", triggered(excludes=["</t>"]), "</t>"),
    "triggered once without the end": tag("<t>", triggered(excludes=["</t>"], stop_after_first=True), "</t>"),
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
    "repeat often": {"type": "repeat", "min": 2, "max": 5000, "content": const("ab")},
    "repeat what may be empty": {"type": "repeat", "min": 2, "max": 2, "content": {"type": "optional", "content": AB}},
    "repeat never": sequence({"type": "repeat", "min": 0, "max": 0, "content": AB}, const("c")),
    "json without": {**TEXTUAL, "excludes": ["zz", ".q", "世"]},
    "deepseek": {**XML, "style": "deepseek_xml"},
    "deepseek 4.1": {**XML, "style": "deepseek_v4_1_xml"},
    "kimi": {**XML, "style": "kimi_k3_xml"},
    "cohere": {**XML, "style": "cohere_xml"},
}  # fmt: skip
CALL = '<f=g>{"a": 1}</f>'


def written(style: str, name: str, kind: str, value: str) -> str:
    """A parameter as a style has it."""
    is_text = str(kind == "string").lower()
    cohere = {"string": "raw", "object": "dict", "array": "list"}.get(kind, "json")
    return {
        "deepseek_xml": f'<｜DSML｜parameter name="{name}" string="{is_text}">{value}</｜DSML｜parameter>',
        "deepseek_v4_1_xml": f'<｜DSML｜ parameter name="{name}" string="{is_text}">{value}</｜DSML｜ parameter>',
        "kimi_k3_xml": f'<|open|>argument key="{name}" type="{kind}"<|sep|>{value}<|close|>argument<|sep|>',
        "cohere_xml": f'<cofl:value name="{name}" type="{cohere}">{value}</cofl:value>',
    }[style]


def nested(style: str) -> dict[str, str]:
    """Values of "o" and "a"."""
    if style != "cohere_xml":
        return {"o": '{"x": "q"}', "a": '["A", "B"]'}
    items = "".join(f'<cofl:value type="raw">{each}</cofl:value>' for each in "AB")
    return {"o": written(style, "x", "string", "q"), "a": items}


STYLED = ("deepseek_xml", "deepseek_v4_1_xml", "kimi_k3_xml", "cohere_xml")
XML_TEXTS = [
    text
    for style in STYLED
    for s in [written(style, "s", "string", "<q>")]
    for u in [written(style, "u", "number", "12"), written(style, "u", "string", "12")]
    for o in [written(style, "o", "object", nested(style)["o"])]
    for a in [written(style, "a", "array", nested(style)["a"])]
    for text in (s, s + u, s + u + o + a, s + a, s + o, u + s, s + s, u, s + written(style, "a", "array", ""))
]
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
    *("c", '["zz"]', '["z"]', '["", "z", "q"]', '["a.q"]', '["aq"]', '["世"]', '["界"]'),
    *XML_TEXTS,
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


def read(guide: Guide, text: str) -> bool:
    return accepts(guide, list(text.encode()))


def test_free_text_of_a_length_without_some_texts() -> None:
    """XGrammar counts bytes here, against its own description."""
    guide = guide_of(tag("<a>", {**ANY, "max_chars": 3, "excludes": ["zz", "世x", "."]}, "</a>"))
    for text in ("", "zxz", "世世世", "世世x", "zz", "xzz", "z.z", "xxxx", "z"):
        wanted = len(text) <= 3 and not any(each in text for each in ("zz", "世x", "."))
        assert read(guide, f"<a>{text}</a>") == wanted, text


@pytest.mark.parametrize("most", [1, 2, 5])
def test_white_space_up_to_a_number_of_characters(peer: Any, most: int) -> None:
    found, compiler = peer
    schema = {
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "array", "items": {"type": "integer"}},
            "c": {"type": "object"},
        },
        "required": ["a", "b", "c"],
    }
    form = tag(
        "<a>", {"type": "json_schema", "json_schema": {"type": "object", **schema}, "max_whitespace_cnt": most}, "</a>"
    )
    theirs = compiler.compile_structural_tag(json.dumps({"type": "structural_tag", "format": form}))
    ours, random = guide_of(form), Random(most)
    parts = [
        "<a>",
        "{",
        '"a"',
        ":",
        "1",
        ",",
        '"b"',
        ":",
        "[",
        "1",
        ",",
        "2",
        "]",
        ",",
        '"c"',
        ":",
        "{",
        "}",
        "}",
        "</a>",
    ]
    accepted = 0
    for _ in range(150):
        spaces = ["".join(random.choice(" \n\t\r") for _ in range(random.choice([0, 0, 0, 1, most]))) for _ in parts]
        if random.random() < 0.3:
            spaces[random.randrange(len(parts))] = " " * (most + 1)
        if random.random() < 0.8:
            spaces[0] = spaces[-2] = spaces[-1] = ""
        text = "".join(part + space for part, space in zip(parts, spaces, strict=True))
        matcher = found.GrammarMatcher(theirs)
        both = [
            read(ours, text),
            all(matcher.accept_token(byte) for byte in text.encode()) and matcher.accept_token(256),
        ]
        assert both[0] == both[1], (text, both)
        accepted += both[0]
    assert 20 < accepted < 130


def test_white_space_in_parameters_and_none_at_all() -> None:
    asked = {"type": "json_schema", "json_schema": {"properties": {"a": {"type": "array"}}, "required": ["a"]}}
    guide = guide_of({**asked, "style": "qwen_xml", "max_whitespace_cnt": 3})
    assert read(guide, "<parameter=a>[1 \t\n,  2]</parameter>")
    assert not read(guide, "<parameter=a>[1,    2]</parameter>")
    guide = guide_of({**asked, "max_whitespace_cnt": 0})
    assert read(guide, '{"a":[1,2]}') and not read(guide, '{"a":[1, 2]}')
    with pytest.raises(FormatError, match="0 to 1,000 characters of white space, not -1"):
        guide_of({**asked, "max_whitespace_cnt": -1})


def test_json_without_some_texts() -> None:
    schema = {
        "$defs": {"t": {"type": ["string", "array", "object"], "items": {"$ref": "#/$defs/t"}}},
        "$ref": "#/$defs/t",
    }
    excluded = ("zz", 'a"', "$")
    guide = guide_of({"type": "json_schema", "json_schema": schema, "excludes": list(excluded)})

    def texts(value: Any) -> list[str]:
        if isinstance(value, dict):
            return [*value, *texts(list(value.values()))]
        return [text for each in value for text in texts(each)] if isinstance(value, list) else [str(value)]

    for value in [
        *(
            "zz",
            "z",
            'a"',
            "a",
            ["q", ["zz"]],
            {"zz": 1},
            {"z": ["a$"]},
            {"z": [1, None, "b"]},
            {"z": {"a": "zza"}},
            {},
        ),
        *({'a"b': True}, ["$", "a"], [[[]]], [{"a": {"a": ["zaz"]}}]),
    ]:
        wanted = not any(each in text for text in texts(value) for each in excluded)
        assert read(guide, json.dumps(value)) == wanted, value


@pytest.mark.parametrize("style", ["qwen_xml", "glm_xml", "deepseek_xml", "cohere_xml"])
def test_parameters_in_any_order(style: str) -> None:
    names = "abcde"
    schema = {"type": "object", "properties": {each: {"type": "boolean"} for each in names}, "required": ["b", "d"]}
    guide = guide_of({"type": "json_schema", "json_schema": schema, "style": style, "any_order": True})
    heads = {
        "qwen_xml": "<parameter={}>true</parameter>",
        "glm_xml": "<arg_key>{}</arg_key><arg_value>true</arg_value>",
    }
    head = heads.get(style) or written(style, "{}", "boolean", "true")
    for count in range(6):
        for order in product(names, repeat=min(count, 4)):
            chosen = [*order, *"e" * (count - len(order))]
            text = "".join(head.format(each) for each in chosen)
            assert read(guide, text) == (len({*chosen}) == len(chosen) and {"b", "d"} <= {*chosen}), chosen


def test_styles_of_special_tokens() -> None:
    """Markers that are special tokens of the model are these tokens, and the same letters as text are text."""
    model = Model(("<|open|>", "<|sep|>", "<|close|>"))
    guide = guide_of({**XML, "style": "kimi_k3_xml"}, model)
    begin, sep, close = 257, 258, 259
    value = [*b"a<|close|>b"]
    text = [begin, *b'argument key="s" type="string"', sep, *value, close, *b"argument", sep]
    assert accepts(guide, text)
    assert not accepts(guide, [*b'<|open|>argument key="s" type="string"<|sep|>a<|close|>argument<|sep|>'])


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
        ({"type": "poem"}, "format.type", "supported are const_string, json_schema"),
        ({"type": "exclude_token"}, "format.type", "not supported"),
        ({"type": "const_string"}, "format.value", "a string"),
        ({**ANY, "max_tokens": 3}, "format.max_tokens", "give max_chars"),
        ({**ANY, "most": 3}, "format.most", "unknown field"),
        ({**JSON, "style": "xml"}, "format.style", "qwen_xml, minimax_xml, glm_xml"),
        ({**JSON, "style": "glm_xml", "excludes": ["a"]}, "format.excludes", "by a pattern"),
        ({"type": "json_schema", "json_schema": {"type": "what"}}, "format.json_schema", "what"),
        (sequence(ANY, {"type": "regex", "pattern": "("}), "format.elements.1.pattern", "never closed"),
        (tag("<a>", ANY, []), "format.end", "a string, a list"),
        (tag("<a>", {"type": "or", "elements": []}, "</a>"), "format.content.elements", "not empty"),
        ({**triggered(), "triggers": ["<g"]}, "format.tags.0.begin", "none of the triggers"),
        ({"type": "repeat", "min": 3, "max": 2, "content": ANY}, "format.max", "expected 0 <= min"),
        ({"type": "repeat", "min": 0, "max": 10**9, "content": ANY}, "format.max", "expected 0 <= min"),
        ({"type": "token", "token": "<no>"}, "format.token", "no token"),
        ({"type": "token", "token": 10**9}, "format.token", "id or text of a token"),
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
    with pytest.raises(FormatError, match="nests them more than"):
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
