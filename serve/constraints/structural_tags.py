"""Structural tags: free text in which markers begin constrained parts, as XGrammar, vLLM and SGLang write them.

A format is an object with a `type`. Free text ends where what must follow it begins: within a tag at the tag's end,
else wherever the rest fits. What cannot be done is refused with its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, cast

from ...checks import brief, items_of, lone_surrogate, shown, text_of
from ...engine.models.protocol import Model
from ...errors import OptionError, TrellmError
from ...guides import CFGGuide, JSONGuide, RegexGuide, TaggedGuide
from ...guides.limits import Limits
from ...guides.protocol import Guide
from ...guides.tagged.composed_guide import ComposedGuide, check_guide
from ...guides.tagged.pieces import NOTHING, Fixed, Free, Inner, InOrder, Marker, OneOf, Piece, Several, perhaps
from ...tokenizers_adapter import Vocabulary
from ..tool_calls.arguments import plain_arguments
from ..tool_calls.formats import Parameters, Spelling, token_of
from ..tool_calls.tools import Tool, ToolError


class FormatError(OptionError):
    """A format that cannot be used. `steps`: its place within the structural tag."""

    def __init__(self, reason: str, steps: Sequence[str | int]) -> None:
        super().__init__(f"{'.'.join(map(str, steps))}: {reason}")
        self.reason = reason
        self.steps = tuple(steps)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason, self.steps)


class FormatFields:
    """A format within a structural tag, whose fields are read by name: whatever is left over is refused."""

    def __init__(self, value: Any, steps: tuple[str | int, ...]) -> None:
        self.steps = steps
        if not isinstance(value, Mapping):
            raise FormatError(f'a format is an object such as {{"type": "any_text"}}, not {shown(value)}', steps)
        self._left = dict(cast("Mapping[str, Any]", value))
        self.kind: Any = self._left.pop("type", None)

    def error(self, reason: str, *names: str | int) -> FormatError:
        """An error in a field."""
        return FormatError(reason, (*self.steps, *names))

    def take(self, name: str, default: Any = None) -> Any:
        """A field, which need not be there."""
        found = self._left.pop(name, default)
        return default if found is None else found

    def text(self, name: str) -> str:
        """A field that is a text."""
        return self.as_text(self._left.pop(name, None), name)

    def as_text(self, value: Any, *names: str | int) -> str:
        """A value that is a text."""
        if not isinstance(value, str) or lone_surrogate(value) >= 0:
            raise self.error(f"a text, not {shown(value)}", *names)
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A field that is true or false."""
        found = self.take(name, default)
        if not isinstance(found, bool):
            raise self.error(f"true or false, not {shown(found)}", name)
        return found

    def several(self, name: str, *, may_be_empty: bool = False) -> list[Any]:
        """A field that is a list."""
        found = items_of(self.take(name, [] if may_be_empty else None))
        if found is None or (not found and not may_be_empty):
            raise self.error("a list" if may_be_empty else "a list that is not empty", name)
        return list(found)

    def texts(self, name: str, *, may_be_empty: bool = False) -> list[str]:
        """A field that is a list of texts, none of them empty."""
        found = self.several(name, may_be_empty=may_be_empty)
        for number, each in enumerate(found):
            if not self.as_text(each, name, number):
                raise self.error("a text that is not empty", name, number)
        return found

    def refuse(self, name: str, why: str) -> None:
        """Refuse a field that says something."""
        if self.take(name) not in (None, []):
            raise self.error(f"not supported: {why}", name)

    def end(self) -> None:
        """Refuse what nobody asked for."""
        for name in self._left:
            raise self.error(f"unknown field of the format {self.kind!r}", name)


MOST_FORMATS = 4096
DEEPEST = 32
MOST_REPEATS = 64
STYLES = {
    "qwen_xml": (
        Parameters("<parameter=", ">\n", "</parameter>", "\n", own_line=True),
        Parameters("<parameter=", ">", "</parameter>", ""),
    ),
    "minimax_xml": (
        Parameters('<parameter name="', '">', "</parameter>", "\n"),
        Parameters('<parameter name="', '">', "</parameter>", ""),
    ),
    "glm_xml": (Parameters("<arg_key>", "</arg_key><arg_value>", "</arg_value>", ""),),
}
"""How parameters are written one by one: with the line breaks of the models' templates, and without any."""
Ends = tuple[Marker, ...]


class FormatReader:
    """Makes pieces of formats. tokenizer: knows tokens by their texts"""

    def __init__(self, tokenizer: Any, vocabulary: Vocabulary, limits: Limits) -> None:
        self._tokenizer, self._vocabulary, self._limits = tokenizer, vocabulary, limits
        self._count = 0
        self._makers: dict[str, Callable[[FormatFields, Ends], Piece]] = {
            "const_string": self._const,
            "json_schema": self._json,
            "qwen_xml_parameter": self._json,
            "any_text": self._any_text,
            "any_tokens": self._any_tokens,
            "token": self._token,
            "grammar": self._grammar,
            "regex": self._regex,
            "sequence": self._sequence,
            "or": self._or,
            "tag": self._tag,
            "triggered_tags": self._triggered,
            "token_triggered_tags": self._triggered_by_tokens,
            "tags_with_separator": self._separated,
            "optional": self._repeated,
            "plus": self._repeated,
            "star": self._repeated,
            "repeat": self._repeated,
            "dispatch": self._dispatch,
            "token_dispatch": self._dispatch_tokens,
        }

    def piece(self, value: Any, steps: tuple[str | int, ...], ends: Ends = ()) -> Piece:
        """The piece of a format. Raises FormatError.

        ends: markers one of which follows, and is a part of the piece; the first one ends free text
        """
        place = FormatFields(value, steps)
        self._count += 1
        if self._count > MOST_FORMATS or len(steps) > 2 * DEEPEST:
            raise place.error(f"more than {MOST_FORMATS:,} formats, or more than {DEEPEST} within one another")
        make = self._makers.get(place.kind) if isinstance(place.kind, str) else None
        if make is None:
            known = ", ".join(self._makers)
            raise place.error(f"formats of type {brief(place.kind)} are not supported; there are {known}", "type")
        return make(place, ends)

    def _const(self, place: FormatFields, ends: Ends) -> Piece:
        value = place.text("value")
        place.end()
        return _before(Fixed((value,)) if value else NOTHING, ends)

    def _json(self, place: FormatFields, ends: Ends) -> Piece:
        schema = place.take("json_schema")
        if not isinstance(schema, bool | dict):
            raise place.error(f"a schema, not {shown(schema)}", "json_schema")
        is_old = place.kind == "qwen_xml_parameter"
        style = "qwen_xml" if is_old else place.take("style", "json")
        any_order = not is_old and place.flag("any_order")
        most_blanks = None if is_old else place.take("max_whitespace_cnt")
        place.refuse("excludes", "say in a pattern what strings are")
        place.end()
        if most_blanks is not None and (not isinstance(most_blanks, int) or isinstance(most_blanks, bool)):
            raise place.error(f"a whole number, not {shown(most_blanks)}", "max_whitespace_cnt")
        if style == "json":
            order, blanks = "any" if any_order else "schema", "compact" if most_blanks == 0 else "flexible"
            guide = self._made(
                place,
                "json_schema",
                lambda: JSONGuide(
                    json.dumps(schema),
                    self._vocabulary,
                    order=order,
                    spelling="plain",
                    whitespace=blanks,
                    limits=self._limits,
                ),
            )
            return _before(Inner(guide), ends)
        several = STYLES.get(style) if isinstance(style, str) else None
        if several is None:
            known = ", ".join(["json", *STYLES])
            raise place.error(f"the style {brief(style)} is not supported; there are {known}", "style")
        if any_order:
            raise place.error(f"not supported with the style {style!r}; parameters come in order", "any_order")
        return _before(OneOf(tuple(self._parameters(place, schema, each) for each in several)), ends)

    def _parameters(self, place: FormatFields, schema: Any, form: Parameters) -> Piece:
        if not isinstance(schema, dict) or schema.get("type", "object") != "object":  # pyright: ignore[reportUnknownMemberType]
            raise place.error('parameters are an object, {"type": "object", ...}', "json_schema")
        tool = Tool("parameters", {**cast("dict[str, Any]", schema), "type": "object"}, True, "json_schema")
        spelling = Spelling((), self._tokenizer, self._vocabulary)
        try:
            return plain_arguments(tool, form, spelling, self._vocabulary, self._limits).piece
        except ToolError as error:
            raise place.error(error.reason, *error.pointer.split("/")) from error

    def _any_text(self, place: FormatFields, ends: Ends) -> Piece:
        excluded = place.texts("excludes", may_be_empty=True)
        place.refuse("max_tokens", "a guide counts characters; give max_chars")
        most = place.take("max_chars")
        place.end()
        if most is None:
            return _free(tuple(excluded), ends)
        if not isinstance(most, int) or isinstance(most, bool) or most < 0:
            raise place.error(f"a whole number from 0, not {shown(most)}", "max_chars")
        if excluded:
            raise place.error("not supported with excludes; give one of the two", "max_chars")
        pattern = rf"[\s\S]{{0,{most}}}"
        return _before(self._pattern(place, "max_chars", pattern), ends)

    def _any_tokens(self, place: FormatFields, ends: Ends) -> Piece:
        excluded = self._tokens(place, "exclude_tokens", may_be_empty=True)
        place.refuse("max_tokens", "a guide counts characters; give any_text with max_chars")
        place.end()
        return _free(tuple(excluded), ends)

    def _token(self, place: FormatFields, ends: Ends) -> Piece:
        token = self._token_id(place, place.take("token"), "token")
        place.end()
        return _before(Fixed((token,)), ends)

    def _grammar(self, place: FormatFields, ends: Ends) -> Piece:
        text = place.text("grammar")
        place.end()
        make = lambda: CFGGuide(text, self._vocabulary, None, "gbnf", limits=self._limits)  # noqa: E731
        return _before(Inner(self._made(place, "grammar", make)), ends)

    def _regex(self, place: FormatFields, ends: Ends) -> Piece:
        pattern = place.text("pattern")
        place.end()
        return _before(self._pattern(place, "pattern", pattern), ends)

    def _pattern(self, place: FormatFields, name: str, pattern: str) -> Piece:
        make = lambda: RegexGuide(pattern, self._vocabulary, limits=self._limits)  # noqa: E731
        return Inner(self._made(place, name, make))

    def _sequence(self, place: FormatFields, ends: Ends) -> Piece:
        elements = place.several("elements")
        place.end()
        last = len(elements) - 1
        steps = (*place.steps, "elements")
        made = [
            self.piece(each, (*steps, number), ends if number == last else ()) for number, each in enumerate(elements)
        ]
        return InOrder(tuple(made))

    def _or(self, place: FormatFields, ends: Ends) -> Piece:
        elements = place.several("elements")
        place.end()
        steps = (*place.steps, "elements")
        return OneOf(tuple(self.piece(each, (*steps, number), ends) for number, each in enumerate(elements)))

    def _tag(self, place: FormatFields, ends: Ends) -> Piece:
        begin, rest = self._tag_parts(place)
        return _before(InOrder((Fixed((begin,)) if begin != "" else NOTHING, rest)), ends)

    def _tag_parts(self, place: FormatFields) -> tuple[Marker, Piece]:
        """How a tag begins, and all that follows it."""
        given_begin, content, given_end = (place.take(name) for name in ("begin", "content", "end"))
        place.end()
        begin = self._marker(place, given_begin, "begin")
        several: Sequence[Any] | None = [given_end] if isinstance(given_end, str | dict) else items_of(given_end)
        if not several:
            raise place.error("a text, a list of texts, or a token", "end")
        markers = tuple(self._marker(place, each, "end") for each in several)
        if "" in markers:
            # Nothing marks the end: what follows the tag must.
            inner = self.piece(content, (*place.steps, "content"))
            return begin, _before(inner, tuple(each for each in markers if each != ""), may_end=True)
        return begin, self.piece(content, (*place.steps, "content"), markers)

    def _tags(self, place: FormatFields) -> list[tuple[Marker, Piece]]:
        found: list[tuple[Marker, Piece]] = []
        for number, each in enumerate(place.several("tags")):
            inner = FormatFields(each, (*place.steps, "tags", number))
            if inner.kind not in (None, "tag"):
                raise inner.error(f"a tag, not {brief(inner.kind)}", "type")
            found.append(self._tag_parts(inner))
        return found

    def _separated(self, place: FormatFields, ends: Ends) -> Piece:
        tags = self._tags(place)
        separator = place.as_text(place.take("separator", ""), "separator")
        at_least_one, is_single = place.flag("at_least_one"), place.flag("stop_after_first")
        place.end()
        item: Piece = _named(tags)
        if not is_single:
            item = Several(item, Fixed((separator,)) if separator else NOTHING)
        return _before(item if at_least_one else perhaps(item), ends)

    def _triggered(self, place: FormatFields, ends: Ends) -> Piece:
        triggers, tags = place.texts("triggers"), self._tags(place)
        excluded = place.texts("excludes", may_be_empty=True)
        found: dict[Marker, list[tuple[Marker, Piece]]] = {trigger: [] for trigger in triggers}
        for number, (begin, rest) in enumerate(tags):
            fitting = [each for each in triggers if isinstance(begin, str) and begin.startswith(each)]
            if len(fitting) != 1:
                how = "none" if not fitting else "several"
                raise place.error(f"{brief(begin)} begins with {how} of the triggers", "tags", number, "begin")
            assert isinstance(begin, str)
            found[fitting[0]].append((begin.removeprefix(fitting[0]), rest))
        exits = tuple((trigger, _named(several)) for trigger, several in found.items() if several)
        dead = tuple(trigger for trigger, several in found.items() if not several)
        return self._dispatched(place, exits, (*excluded, *dead), _named(tags), ends)

    def _triggered_by_tokens(self, place: FormatFields, ends: Ends) -> Piece:
        triggers, tags = self._tokens(place, "trigger_tokens"), self._tags(place)
        excluded = self._tokens(place, "exclude_tokens", may_be_empty=True)
        found: dict[Marker, list[Piece]] = {trigger: [] for trigger in triggers}
        for number, (begin, rest) in enumerate(tags):
            if begin not in found:
                raise place.error(f"{brief(begin)} is none of the trigger_tokens", "tags", number, "begin")
            found[begin].append(rest)
        exits = tuple((trigger, OneOf(tuple(several))) for trigger, several in found.items() if several)
        dead = tuple(trigger for trigger, several in found.items() if not several)
        return self._dispatched(place, exits, (*excluded, *dead), _named(tags), ends)

    def _dispatched(
        self,
        place: FormatFields,
        exits: tuple[tuple[Marker, Piece], ...],
        refused: tuple[Marker, ...],
        tag: Piece,
        ends: Ends,
    ) -> Piece:
        """Free text with tags in it. tag: any of them"""
        at_least_one, is_single = place.flag("at_least_one"), place.flag("stop_after_first")
        place.end()
        if at_least_one and is_single:
            return _before(tag, ends)
        if is_single:
            return _until_first(exits, refused, ends)
        loop = _loop(exits, refused, ends)
        return InOrder((tag, loop)) if at_least_one else loop

    def _dispatch(self, place: FormatFields, ends: Ends) -> Piece:
        excluded = place.texts("excludes", may_be_empty=True)
        return self._ruled(place, tuple(excluded), ends, place.as_text)

    def _dispatch_tokens(self, place: FormatFields, ends: Ends) -> Piece:
        excluded = self._tokens(place, "exclude_tokens", may_be_empty=True)
        return self._ruled(place, tuple(excluded), ends, partial(self._token_id, place))

    def _ruled(self, place: FormatFields, refused: Ends, ends: Ends, marker: Callable[..., Marker]) -> Piece:
        exits: dict[Marker, Piece] = {}
        for number, rule in enumerate(place.several("rules")):
            pair = items_of(rule)
            if pair is None or len(pair) != 2:
                raise place.error(f"a pattern and a format, not {shown(rule)}", "rules", number)
            begin = marker(pair[0], "rules", number, 0)
            if begin == "" or begin in exits:
                raise place.error("a pattern that is not empty, and none twice", "rules", number, 0)
            exits[begin] = self.piece(pair[1], (*place.steps, "rules", number, 1))
        loops = place.flag("loop", True)
        place.end()
        return (_loop if loops else _until_first)(tuple(exits.items()), refused, ends)

    def _repeated(self, place: FormatFields, ends: Ends) -> Piece:
        least, most = {"optional": (0, 1), "plus": (1, -1), "star": (0, -1), "repeat": (0, 0)}[place.kind]
        if place.kind == "repeat":
            least, most = place.take("min"), place.take("max")
            for name, value in (("min", least), ("max", most)):
                if not isinstance(value, int) or isinstance(value, bool):
                    raise place.error(f"a whole number, not {shown(value)}", name)
            if not 0 <= least <= MOST_REPEATS or not (most == -1 or least <= most <= MOST_REPEATS):
                raise place.error(f"from min=0 to max={MOST_REPEATS} times, and -1 for any number", "max")
        item = self.piece(place.take("content"), (*place.steps, "content"))
        place.end()
        if most == -1:
            more = Several(item, NOTHING)
            found = InOrder((*[item] * (least - 1), more)) if least else perhaps(more)
        else:
            optional: Piece = NOTHING
            for _ in range(most - least):
                optional = perhaps(InOrder((item, optional)))
            found = InOrder((*[item] * least, optional))
        return _before(found, ends)

    def _marker(self, place: FormatFields, value: Any, name: str) -> Marker:
        """A text, or a token in the format of one."""
        if not isinstance(value, dict):
            return place.as_text(value, name)
        inner = FormatFields(value, (*place.steps, name))
        if inner.kind not in (None, "token"):
            raise inner.error(f"a text or a token, not {brief(inner.kind)}", "type")
        token = self._token_id(inner, inner.take("token"), "token")
        inner.end()
        return token

    def _tokens(self, place: FormatFields, name: str, *, may_be_empty: bool = False) -> list[int]:
        given = place.several(name, may_be_empty=may_be_empty)
        return [self._token_id(place, each, name, number) for number, each in enumerate(given)]

    def _token_id(self, place: FormatFields, value: Any, *names: str | int) -> int:
        """A token by its number or its text."""
        token = value
        if isinstance(value, str):
            token = token_of(self._tokenizer, value)
            if token is None:
                raise place.error(f"{brief(value)} is no token of the model", *names)
        if not isinstance(token, int) or isinstance(token, bool) or not 0 <= token < self._vocabulary.size:
            raise place.error(f"a token by its number or text, not {shown(value)}", *names)
        return token

    def _made(self, place: FormatFields, name: str, make: Callable[[], Any]) -> Any:
        """A guide that can be a part of others."""
        try:
            guide = make()
            check_guide(guide)
        except TrellmError as error:
            raise place.error(str(error), name) from error
        return guide


def _before(piece: Piece, ends: Ends, *, may_end: bool = False) -> Piece:
    """A piece, and one of some markers behind it."""
    if not ends:
        return piece
    closing: Piece = Fixed(ends) if len(ends) == 1 else OneOf(tuple(Fixed((end,)) for end in ends))
    return InOrder((piece, perhaps(closing) if may_end else closing))


def _named(tags: Sequence[tuple[Marker, Piece]]) -> Piece:
    """One of several tags."""
    ways = [InOrder((Fixed((begin,)) if begin != "" else NOTHING, rest)) for begin, rest in tags]
    return ways[0] if len(ways) == 1 else OneOf(tuple(ways))


def _free(refused: Ends, ends: Ends, exits: tuple[tuple[Marker, Piece], ...] = ()) -> Free:
    """Free text up to one of the markers behind it, if there are any."""
    closing = tuple((end, NOTHING) for end in ends if end not in refused)
    return Free((*exits, *closing), tuple(dict.fromkeys(refused)), may_end=not ends)


def _loop(exits: tuple[tuple[Marker, Piece], ...], refused: Ends, ends: Ends) -> Piece:
    """Free text with any number of what markers begin."""
    heads = tuple(marker for marker, _ in exits)
    # What ends all of it ends free text also before a marker.
    part = Free(exits, tuple(dict.fromkeys((*refused, *ends))))
    return InOrder((perhaps(Several(part, NOTHING)), _free((*refused, *heads), ends)))


def _until_first(exits: tuple[tuple[Marker, Piece], ...], refused: Ends, ends: Ends) -> Piece:
    """Free text that may end with what a marker begins."""
    heads = tuple(marker for marker, _ in exits)
    with_one = _before(Free(exits, tuple(dict.fromkeys((*refused, *ends)))), ends)
    return OneOf((with_one, _free((*refused, *heads), ends)))


_STRUCTURE = ("begin", "schema", "end")


def structural_guide(asked: Any, model: Model, limits: Limits) -> Guide:
    """The guide of a `format`, or of the older form with `structures` and `triggers`. Raises OptionError, SchemaError.

    A mistake in a format is a FormatError with its place.
    """
    if not isinstance(asked, dict):
        raise OptionError(f"a structural tag is an object, not {shown(asked)}")
    given = cast("dict[str, Any]", asked)
    vocabulary = model.vocabulary
    if given.get("format") is not None:
        for name in given.keys() - {"type", "format"}:
            raise FormatError("a structural tag with a format has nothing else", (name,))
        piece = FormatReader(model.tokenizer, vocabulary, limits).piece(given["format"], ("format",))
        return ComposedGuide(piece, vocabulary, limits=limits)
    structures, triggers = items_of(given.get("structures")), items_of(given.get("triggers"))
    if not structures or not triggers:
        raise OptionError(
            'a structural tag has a "format", or "structures", a list of {begin, schema, end}, and "triggers"'
        )
    heads = [text_of(trigger, f"trigger {number}") for number, trigger in enumerate(triggers)]
    tags: list[Any] = []
    for number, each in enumerate(structures):
        if not isinstance(each, dict) or sorted(cast("dict[str, Any]", each)) != sorted(_STRUCTURE):
            raise OptionError(f"structure {number} is {brief(each)}, and must have begin, schema and end")
        begin, schema, end = (cast("dict[str, Any]", each)[name] for name in _STRUCTURE)
        if not any(text_of(begin, f"structure {number}, begin").startswith(head) for head in heads if head):
            raise OptionError(f"structure {number} begins with none of the triggers: {brief(begin)}")
        text = schema if isinstance(schema, str) else json.dumps(schema)
        guide = JSONGuide(text, vocabulary, order="schema", spelling="plain", limits=limits)
        tags.append((begin, guide, text_of(end, f"structure {number}, end")))
    return TaggedGuide(tags, vocabulary, limits=limits)
