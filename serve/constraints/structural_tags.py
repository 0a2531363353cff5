"""Structural tags: free text in which markers begin constrained parts, as in XGrammar, vLLM and SGLang.

A format is an object with a `type`. Free text ends where its continuation begins: within a tag at the tag's end,
elsewhere wherever the rest fits. Unsupported formats raise errors with their place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

from ...checks import brief, check_text, items_of, lone_surrogate, shown
from ...engine.models.protocol import Model
from ...errors import OptionError, TrellmError
from ...guides import CFGGuide, JSONGuide, RegexGuide, TaggedGuide
from ...guides.json_schema.lower.form import MAX_BETWEEN, Whitespace
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.tagged.composed_guide import ComposedGuide, check_guide
from ...guides.tagged.pieces import EMPTY, Fixed, Free, Inner, InOrder, Marker, OneOf, Piece, Several, optional
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import token_of
from ..tool_calls.arguments import literal_pattern, plain_arguments
from ..tool_calls.formats import TYPE, Parameters, Spelling
from ..tool_calls.tools import Tool, ToolError


class FormatError(OptionError):
    """A format that cannot be used. steps: its place within the structural tag"""

    def __init__(self, reason: str, steps: Sequence[str | int]) -> None:
        super().__init__(f"{'.'.join(map(str, steps))}: {reason}")
        self.reason = reason
        self.steps = tuple(steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.steps)


class FormatPlace(NamedTuple):
    """A place within a structural tag."""

    steps: tuple[str | int, ...]

    def at(self, *names: str | int) -> FormatPlace:
        """Return a place within this one."""
        return FormatPlace((*self.steps, *names))

    def error(self, reason: str, *names: str | int) -> FormatError:
        """Return an error at this place, or in a field."""
        return FormatError(reason, (*self.steps, *names))


ReadField = Callable[[Any, FormatPlace], Any]
"""A function that validates a field's value, None for a missing one. Raises FormatError."""


def _required(value: Any, at: FormatPlace) -> Any:
    if value is None:
        raise at.error("this field is missing")
    return value


def _text(value: Any, at: FormatPlace) -> str:
    if not isinstance(value, str) or lone_surrogate(value) >= 0:
        raise at.error(f"expected a string, not {shown(value)}")
    return value


def _nonempty_text(value: Any, at: FormatPlace) -> str:
    if not _text(value, at):
        raise at.error("expected a string that is not empty")
    return value


def _schema(value: Any, at: FormatPlace) -> Any:
    if not isinstance(value, bool | dict):
        raise at.error(f"expected a JSON Schema, not {shown(value)}")
    return cast("Any", value)


def _flag(value: Any, at: FormatPlace) -> bool:
    if not isinstance(value, bool):
        raise at.error(f"expected true or false, not {shown(value)}")
    return value


def _integer(value: Any, at: FormatPlace) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise at.error(f"expected a whole number, not {shown(value)}")
    return value


def _blanks(value: Any, at: FormatPlace) -> int:
    if not 0 <= _integer(value, at) <= MAX_BETWEEN:
        raise at.error(f"expected 0 to {MAX_BETWEEN:,} characters of white space, not {shown(value)}")
    return value


def _optional(read: ReadField, default: Any = None) -> ReadField:
    return lambda value, at: default if value is None else read(value, at)


def _list_of(read: ReadField, least: int = 1) -> ReadField:
    def read_items(value: Any, at: FormatPlace) -> list[Any]:
        items = items_of([] if value is None and not least else value)
        if items is None or len(items) < least:
            raise at.error("expected a list that is not empty" if least else "expected a list")
        return [read(each, at.at(number)) for number, each in enumerate(items)]

    return read_items


def _unsupported(reason: str) -> ReadField:
    def refuse(value: Any, at: FormatPlace) -> None:
        if value not in (None, []):
            raise at.error(f"not supported: {reason}")

    return refuse


_SCHEMA_URI = "urn:trellm:asked"
MAX_FORMATS = 4096
MAX_DEPTH = 32
MAX_REPEATS = 1 << 16
_KIMI_TYPES = tuple((each, each) for each in ("string", "number", "boolean", "object", "array", "null"))


def _lines(form: Parameters) -> tuple[Parameters, ...]:
    """Return parameter styles with and without line breaks after values."""
    return replace(form, behind=f"{form.behind}\n"), form


def _deepseek(tag: str) -> Parameters:
    return Parameters(f'<{tag} name="', '" string="false">', f"</{tag}>", "", behind_text='" string="true">')


STYLES = {
    "qwen_xml": (
        Parameters("<parameter=", ">\n", "</parameter>", "\n", own_line=True),
        Parameters("<parameter=", ">", "</parameter>", ""),
    ),
    "minimax_xml": _lines(Parameters('<parameter name="', '">', "</parameter>", "")),
    "glm_xml": (Parameters("<arg_key>", "</arg_key><arg_value>", "</arg_value>", ""),),
    "deepseek_xml": _lines(_deepseek("｜DSML｜parameter")),
    "deepseek_v4_1_xml": _lines(_deepseek("｜DSML｜ parameter")),
    "kimi_k3_xml": (
        Parameters(
            '<|open|>argument key="', f'" type="{TYPE}"<|sep|>', "<|close|>argument<|sep|>", "",
            behind_text='" type="string"<|sep|>', types=_KIMI_TYPES,
        ),
    ),
    "cohere_xml": (
        Parameters(
            '<cofl:value name="', '" type="json">', "</cofl:value>", "", behind_text='" type="raw">',
            item="<cofl:value", behind_dict='" type="dict">', behind_list='" type="list">',
        ),
    ),
}  # fmt: skip
"""Parameter styles by name, with the line breaks of the models' templates, and without."""
STYLE_TOKENS = ("<|open|>", "<|sep|>", "<|close|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
"""Texts of these styles that are special tokens of some models."""
Ends = tuple[Marker, ...]
Tags = list[tuple[Marker, Piece]]
_TEXTS, _ITEMS, _NO = _list_of(_nonempty_text, 0), _list_of(_required), _optional(_flag, False)


class FormatReader:
    """Builds pieces of formats. tokenizer: resolves tokens by text"""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, limits: Limits) -> None:
        self._tokenizer, self._vocabulary, self._limits = tokenizer, vocabulary, limits
        self._count = 0
        tags = {"tags": _list_of(self._tag_parts), "at_least_one": _NO, "stop_after_first": _NO}
        excluded = {"exclude_tokens": _list_of(self._token_id, 0)}
        schema, content = {"json_schema": _schema, "excludes": _TEXTS}, _required
        written = {"any_order": _NO, "max_whitespace_cnt": _optional(_blanks)}
        loop = {"loop": _optional(_flag, True)}
        in_text = {
            "max_tokens": _unsupported("free text is limited in characters; give max_chars"),
            "max_chars": _optional(_integer),
        }
        in_tokens = {"max_tokens": _unsupported("free text is limited in characters; use any_text with max_chars")}
        by_text, by_token = _list_of(partial(self._rule, _text)), _list_of(partial(self._rule, self._token_id))
        # By type: the builder, called with the place, the ends and these fields.
        self._kinds: dict[str, tuple[Callable[..., Piece], dict[str, ReadField]]] = {
            "const_string": (self._const, {"value": _text}),
            "json_schema": (self._json, {**schema, "style": _optional(_required, "json"), **written}),
            "qwen_xml_parameter": (partial(self._json, style="qwen_xml"), schema),
            "any_text": (self._any, {"excludes": _TEXTS, **in_text}),
            "any_tokens": (self._any, {**excluded, **in_tokens}),
            "token": (self._token, {"token": self._token_id}),
            "grammar": (self._grammar, {"grammar": _text}),
            "regex": (self._regex, {"pattern": _text}),
            "sequence": (self._sequence, {"elements": _ITEMS}),
            "or": (self._or, {"elements": _ITEMS}),
            "tag": (self._tag, {"begin": self._marker, "content": content, "end": self._ends}),
            "triggered_tags": (self._triggered, {"triggers": _list_of(_nonempty_text), "excludes": _TEXTS, **tags}),
            "token_triggered_tags": (
                self._triggered_by_tokens,
                {"trigger_tokens": _list_of(self._token_id), **excluded, **tags},
            ),
            "tags_with_separator": (self._separated, {"separator": _optional(_text, ""), **tags}),
            "optional": (partial(self._repeated, min=0, max=1), {"content": content}),
            "plus": (partial(self._repeated, min=1, max=-1), {"content": content}),
            "star": (partial(self._repeated, min=0, max=-1), {"content": content}),
            "repeat": (self._repeated, {"min": _integer, "max": _integer, "content": content}),
            "dispatch": (self._dispatch, {"excludes": _TEXTS, "rules": by_text, **loop}),
            "token_dispatch": (self._dispatch, {**excluded, "rules": by_token, **loop}),
        }

    def piece(self, value: Any, at: FormatPlace, ends: Ends = ()) -> Piece:
        """Build the piece of a format. Raises FormatError.

        ends: markers, one of which follows and is part of the piece; the first one ends free text
        """
        self._count += 1
        if self._count > MAX_FORMATS or len(at.steps) > 2 * MAX_DEPTH:
            raise at.error(
                f"the structural tag has more than {MAX_FORMATS:,} formats, or nests them more than {MAX_DEPTH} deep"
            )
        kind, fields = self._fields(value, at)
        make, _ = self._kinds[kind]
        return make(at, ends, **{name: found for name, found in fields.items() if found is not None})

    def _fields(self, value: Any, at: FormatPlace, only: str | None = None) -> tuple[str, dict[str, Any]]:
        """Return the type of a format and its fields. only: the required type, which may be omitted"""
        if not isinstance(value, Mapping):
            raise at.error(f'a format is an object such as {{"type": "any_text"}}, not {shown(value)}')
        members = dict(cast("Mapping[str, Any]", value))
        kind: Any = members.pop("type", None)
        if only is not None and kind not in (None, only):
            raise at.error(f"expected the type {only!r}, not {brief(kind)}", "type")
        kind = only or kind
        if not isinstance(kind, str) or kind not in self._kinds:
            names = ", ".join(self._kinds)
            raise at.error(f"formats of type {brief(kind)} are not supported; supported are {names}", "type")
        _, readers = self._kinds[kind]
        fields = {name: read(members.pop(name, None), at.at(name)) for name, read in readers.items()}
        for name in members:
            raise at.error(f"unknown field of the format {kind!r}", name)
        return kind, fields

    def _const(self, at: FormatPlace, ends: Ends, value: str) -> Piece:
        return _with_ends(Fixed((value,)) if value else EMPTY, ends)

    def _json(
        self,
        at: FormatPlace,
        ends: Ends,
        json_schema: Any,
        style: Any,
        excludes: Sequence[str] = (),
        any_order: bool = False,
        max_whitespace_cnt: int | None = None,
    ) -> Piece:
        blanks: Whitespace = "flexible" if max_whitespace_cnt is None else max_whitespace_cnt
        if style == "json":
            order = "any" if any_order else "schema"
            make = partial(JSONGuide, order=order, spelling="plain", whitespace=blanks, limits=self._limits)
            if excludes:
                make = partial(make, resources={_SCHEMA_URI: json_schema})
                json_schema = _excluding(excludes)
            return _with_ends(self._inner(at.at("json_schema"), make, json.dumps(json_schema)), ends)
        styles = STYLES.get(style) if isinstance(style, str) else None
        if styles is None:
            names = ", ".join(["json", *STYLES])
            raise at.error(f"the style {brief(style)} is not supported; supported are {names}", "style")
        if excludes:
            raise at.error(
                'excludes need the style "json"; for other styles bound strings by a pattern in the schema', "excludes"
            )
        pieces = tuple(self._parameters(at, json_schema, each, any_order, blanks) for each in styles)
        return _with_ends(OneOf(pieces), ends)

    def _parameters(
        self, at: FormatPlace, schema: Any, form: Parameters, any_order: bool, whitespace: Whitespace
    ) -> Piece:
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":  # pyright: ignore[reportUnknownMemberType]
            raise at.error('parameters need the schema of an object, {"type": "object", ...}', "json_schema")
        tool = Tool("parameters", {**cast("dict[str, Any]", schema), "type": "object"}, True, "json_schema")
        spelling = Spelling(STYLE_TOKENS, self._tokenizer, self._vocabulary)
        try:
            return plain_arguments(tool, form, spelling, self._limits, any_order=any_order, whitespace=whitespace).piece
        except ToolError as error:
            raise at.error(error.reason, *error.pointer.split("/")) from error

    def _any(
        self,
        at: FormatPlace,
        ends: Ends,
        excludes: Sequence[str] = (),
        exclude_tokens: Sequence[int] = (),
        max_chars: int | None = None,
    ) -> Piece:
        if max_chars is None:
            return _free((*excludes, *exclude_tokens), ends)
        if max_chars < 0:
            raise at.error(f"expected a whole number from 0, not {shown(max_chars)}", "max_chars")
        each = f"(?!{_any_of(excludes)})" if excludes else ""
        return _with_ends(self._pattern(at.at("max_chars"), rf"(?:{each}[\s\S]){{0,{max_chars}}}"), ends)

    def _token(self, at: FormatPlace, ends: Ends, token: int) -> Piece:
        return _with_ends(Fixed((token,)), ends)

    def _grammar(self, at: FormatPlace, ends: Ends, grammar: str) -> Piece:
        make = partial(CFGGuide, syntax="gbnf", limits=self._limits)
        return _with_ends(self._inner(at.at("grammar"), make, grammar), ends)

    def _regex(self, at: FormatPlace, ends: Ends, pattern: str) -> Piece:
        return _with_ends(self._pattern(at.at("pattern"), pattern), ends)

    def _pattern(self, at: FormatPlace, pattern: str) -> Piece:
        return self._inner(at, partial(RegexGuide, limits=self._limits), pattern)

    def _sequence(self, at: FormatPlace, ends: Ends, elements: list[Any]) -> Piece:
        *first, last = enumerate(elements)
        pieces = [self.piece(each, at.at("elements", number)) for number, each in first]
        return InOrder((*pieces, self.piece(last[1], at.at("elements", last[0]), ends)))

    def _or(self, at: FormatPlace, ends: Ends, elements: list[Any]) -> Piece:
        return OneOf(tuple(self.piece(each, at.at("elements", number), ends) for number, each in enumerate(elements)))

    def _tag(self, at: FormatPlace, ends: Ends, begin: Marker, content: Any, end: Ends) -> Piece:
        return _with_ends(_alternatives([(begin, self._behind_begin(at, content, end))]), ends)

    def _tag_parts(self, value: Any, at: FormatPlace) -> tuple[Marker, Piece]:
        """Return a tag's marker, and the piece after it."""
        _, fields = self._fields(value, at, "tag")
        return fields["begin"], self._behind_begin(at, fields["content"], fields["end"])

    def _behind_begin(self, at: FormatPlace, content: Any, end: Ends) -> Piece:
        if "" in end:
            # Without an end marker, the text after the tag ends it.
            inner = self.piece(content, at.at("content"))
            return _with_ends(inner, tuple(each for each in end if each != ""), may_end=True)
        return self.piece(content, at.at("content"), end)

    def _separated(
        self,
        at: FormatPlace,
        ends: Ends,
        tags: Tags,
        separator: str,
        at_least_one: bool,
        stop_after_first: bool,
    ) -> Piece:
        item: Piece = _alternatives(tags)
        if not stop_after_first:
            item = Several(item, Fixed((separator,)) if separator else EMPTY)
        return _with_ends(item if at_least_one else optional(item), ends)

    def _triggered(
        self,
        at: FormatPlace,
        ends: Ends,
        triggers: Sequence[Marker],
        tags: Tags,
        excludes: Sequence[Marker],
        at_least_one: bool,
        stop_after_first: bool,
    ) -> Piece:
        """Build free text with tags, each of which begins with a trigger."""
        by_trigger: dict[Marker, Tags] = {trigger: [] for trigger in triggers}
        for number, (begin, rest) in enumerate(tags):
            matching = [each for each in triggers if _begins_with(begin, each)]
            if len(matching) != 1:
                count = "none" if not matching else "several"
                raise at.error(
                    f"{brief(begin)} begins with {count} of the triggers; expected exactly one", "tags", number, "begin"
                )
            behind = begin.removeprefix(str(matching[0])) if isinstance(begin, str) else ""
            by_trigger[matching[0]].append((behind, rest))
        exits = tuple((trigger, _alternatives(several)) for trigger, several in by_trigger.items() if several)
        refused = (*excludes, *(trigger for trigger, several in by_trigger.items() if not several))
        if at_least_one and stop_after_first:
            return _with_ends(_alternatives(tags), ends)
        if stop_after_first:
            return _until_first(exits, refused, ends)
        loop = _loop(exits, refused, ends)
        return InOrder((_alternatives(tags), loop)) if at_least_one else loop

    def _triggered_by_tokens(
        self, at: FormatPlace, ends: Ends, trigger_tokens: list[int], exclude_tokens: list[int], **tags: Any
    ) -> Piece:
        return self._triggered(at, ends, tuple(dict.fromkeys(trigger_tokens)), excludes=exclude_tokens, **tags)

    def _dispatch(
        self,
        at: FormatPlace,
        ends: Ends,
        rules: Tags,
        loop: bool,
        excludes: Sequence[str] = (),
        exclude_tokens: Sequence[int] = (),
    ) -> Piece:
        exits: dict[Marker, Piece] = {}
        for number, (begin, piece) in enumerate(rules):
            if begin == "" or begin in exits:
                raise at.error("expected a pattern that is not empty and that no other rule has", "rules", number, 0)
            exits[begin] = piece
        return (_loop if loop else _until_first)(tuple(exits.items()), (*excludes, *exclude_tokens), ends)

    def _rule(self, marker: ReadField, value: Any, at: FormatPlace) -> tuple[Marker, Piece]:
        pair = items_of(value)
        if pair is None or len(pair) != 2:
            raise at.error(f"expected a pair of a pattern and a format, not {shown(value)}")
        return marker(pair[0], at.at(0)), self.piece(pair[1], at.at(1))

    def _repeated(self, at: FormatPlace, ends: Ends, content: Any, min: int, max: int) -> Piece:
        if not 0 <= min <= MAX_REPEATS or not (max == -1 or min <= max <= MAX_REPEATS):
            raise at.error(f"expected 0 <= min <= max <= {MAX_REPEATS}, or max=-1 for any number", "max")
        item = self.piece(content, at.at("content"))
        if max == 0:
            return _with_ends(EMPTY, ends)
        several = Several(item, EMPTY, min or 1, None if max == -1 else max)
        return _with_ends(several if min else optional(several), ends)

    def _marker(self, value: Any, at: FormatPlace) -> Marker:
        """Return a text, or a token in the format of one."""
        return self._fields(value, at, "token")[1]["token"] if isinstance(value, dict) else _text(value, at)

    def _ends(self, value: Any, at: FormatPlace) -> Ends:
        """Return the alternative end markers of a tag. Errors of list items have the list's place."""
        several: Sequence[Any] | None = [value] if isinstance(value, str | dict) else items_of(value)
        if not several:
            raise at.error("expected a string, a list of strings, or a token")
        return tuple(self._marker(each, at) for each in several)

    def _token_id(self, value: Any, at: FormatPlace) -> int:
        """Return a token by its number or text."""
        token = value
        if isinstance(value, str):
            token = token_of(self._tokenizer, value)
            if token is None:
                raise at.error(f"the model has no token {brief(value)}")
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self._vocabulary.size:
            raise at.error(f"expected the id or text of a token, not {shown(value)}")
        return token

    def _inner(self, at: FormatPlace, make: Callable[..., Any], text: str) -> Inner:
        """Build the piece of an embeddable guide."""
        try:
            guide = make(text, self._vocabulary)
            check_guide(guide)
        except TrellmError as error:
            raise at.error(str(error)) from error
        return Inner(guide)


def _any_of(texts: Sequence[str]) -> str:
    """Return a pattern of alternative literals."""
    return "|".join(map(literal_pattern, texts))


def _excluding(excludes: Sequence[str]) -> dict[str, Any]:
    """Return a schema of the values of `_SCHEMA_URI` in which no string and no name contains one of the texts."""
    text, clean = {"not": {"pattern": _any_of(excludes)}}, {"$ref": "#/$defs/clean"}
    kinds = [
        {"type": ["null", "boolean", "number"]},
        {"type": "string", **text},
        {"type": "array", "items": clean},
        {"type": "object", "propertyNames": text, "additionalProperties": clean},
    ]
    return {"allOf": [{"$ref": _SCHEMA_URI}, clean], "$defs": {"clean": {"anyOf": kinds}}}


def _begins_with(begin: Marker, trigger: Marker) -> bool:
    """Test whether a tag's marker begins with a trigger. Tokens have to be equal."""
    if isinstance(begin, str) and isinstance(trigger, str):
        return begin.startswith(trigger)
    return begin == trigger


def _with_ends(piece: Piece, ends: Ends, *, may_end: bool = False) -> Piece:
    """Append alternative markers to a piece."""
    if not ends:
        return piece
    closing: Piece = Fixed(ends) if len(ends) == 1 else OneOf(tuple(Fixed((end,)) for end in ends))
    return InOrder((piece, optional(closing) if may_end else closing))


def _alternatives(tags: Sequence[tuple[Marker, Piece]]) -> Piece:
    """Build the alternatives of several tags."""
    ways = [InOrder((Fixed((begin,)) if begin != "" else EMPTY, rest)) for begin, rest in tags]
    return ways[0] if len(ways) == 1 else OneOf(tuple(ways))


def _free(refused: Ends, ends: Ends, exits: tuple[tuple[Marker, Piece], ...] = ()) -> Free:
    """Build free text up to one of the end markers, if there are any. It contains neither these nor refused markers."""
    closing = tuple((end, EMPTY) for end in ends)
    return Free((*exits, *closing), tuple(dict.fromkeys(each for each in refused if each not in ends)), not ends)


def _loop(exits: tuple[tuple[Marker, Piece], ...], refused: Ends, ends: Ends) -> Piece:
    """Build free text with any number of parts after markers."""
    heads = tuple(marker for marker, _ in exits)
    # An end marker also ends free text before another marker.
    part = Free(exits, tuple(dict.fromkeys((*refused, *ends))))
    return InOrder((optional(Several(part, EMPTY)), _free((*refused, *heads), ends)))


def _until_first(exits: tuple[tuple[Marker, Piece], ...], refused: Ends, ends: Ends) -> Piece:
    """Build free text that may end with one part after a marker."""
    heads = tuple(marker for marker, _ in exits)
    with_one = _with_ends(Free(exits, tuple(dict.fromkeys((*refused, *ends)))), ends)
    return OneOf((with_one, _free((*refused, *heads), ends)))


_STRUCTURE = ("begin", "schema", "end")


def structural_guide(tag: Any, model: Model, limits: Limits) -> Guide:
    """Return the guide of a `format`, or of the older form with `structures` and `triggers`.

    Raises OptionError and SchemaError; FormatError, with its place, for a format.
    """
    if not isinstance(tag, dict):
        raise OptionError(f"a structural tag must be an object, not {shown(tag)}")
    fields = cast("dict[str, Any]", tag)
    vocabulary = model.vocabulary
    if fields.get("format") is not None:
        for name in fields.keys() - {"type", "format"}:
            raise FormatError("a structural tag with a format can have no other field; leave this one out", (name,))
        piece = FormatReader(model.tokenizer, vocabulary, limits).piece(fields["format"], FormatPlace(("format",)))
        return ComposedGuide(piece, vocabulary, limits=limits)
    structures, triggers = items_of(fields.get("structures")), items_of(fields.get("triggers"))
    if not structures or not triggers:
        raise OptionError(
            'a structural tag needs a "format", or "structures", a list of {begin, schema, end}, and "triggers"'
        )
    heads = [check_text(trigger, f"trigger {number}") for number, trigger in enumerate(triggers)]
    tags: list[Any] = []
    for number, each in enumerate(structures):
        if not isinstance(each, dict) or sorted(cast("dict[str, Any]", each)) != sorted(_STRUCTURE):
            raise OptionError(f"structure {number} is {brief(each)}, but must have exactly begin, schema and end")
        begin, schema, end = (cast("dict[str, Any]", each)[name] for name in _STRUCTURE)
        if not any(check_text(begin, f"structure {number}, begin").startswith(head) for head in heads if head):
            raise OptionError(f"structure {number} begins with none of the triggers: {brief(begin)}")
        text = schema if isinstance(schema, str) else json.dumps(schema)
        guide = JSONGuide(text, vocabulary, order="schema", spelling="plain", limits=limits)
        tags.append((begin, guide, check_text(end, f"structure {number}, end")))
    return TaggedGuide(tags, vocabulary, limits=limits)
