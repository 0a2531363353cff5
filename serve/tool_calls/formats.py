"""Tool-call formats of model families as data, and the spelling of their markers.

A format is one entry of `FORMATS`. The guide of answers (`grammar.py`) and their reader (`reader.py`) follow from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

from ...guides.tagged.pieces import Fixed, Marker, marker_data
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import token_of, with_markers

NAME, JSON_NAME, IDENT, ARGUMENTS = "$name", "$json_name", "$id", "$arguments"
TYPE = "$type"
_PLACES = re.compile(r"(\$name|\$json_name|\$id|\$arguments)")


@dataclass(frozen=True)
class Ident:
    """The id of a call: its pattern, and the texts before and after it, if it has its own.

    is_optional: whether it may be omitted, together with these texts
    template: format of the call's id, with `name` and `id`
    """

    before: str
    pattern: str
    behind: str = ""
    is_optional: bool = False
    template: str = "{id}"


@dataclass(frozen=True)
class Parameters:
    """Parameters written one by one: texts before and after the name of each, and the two parts of its end.

    A value ends at the first `end` outside of JSON strings.
    own_line: whether a line break before the end is not part of the value
    behind_text: text after the name of a plain string, if the format distinguishes it from JSON
    types: texts that replace TYPE in `behind_name`, by JSON type; values of other types are written otherwise. Empty if
        there is no such place
    item: text before an array's item that is written one by one; behind_dict, behind_list: texts after the names of
        objects and arrays written one by one; "" if both are JSON
    """

    before: str
    behind_name: str
    end: str
    behind: str
    own_line: bool = False
    behind_text: str = ""
    types: tuple[tuple[str, str], ...] = ()
    item: str = ""
    behind_dict: str = ""
    behind_list: str = ""


@dataclass(frozen=True)
class CallFrame:
    """Calls in order: `opening call between call ... closing`.

    call: a call, with `$name` for the tool's name, or `$json_name` inside a JSON string, `$arguments`, and `$id`
    ident: spelling of the id; parameters: spelling of the arguments, None for JSON
    is_single: whether there is at most one call
    """

    call: str
    opening: str = ""
    between: str = ""
    closing: str = ""
    parameters: Parameters | None = None
    ident: Ident | None = None
    is_single: bool = False

    @cached_property
    def head(self) -> str:
        """The text before the name of the first call."""
        return self.opening + self.call_head

    @cached_property
    def call_head(self) -> str:
        """The text before the name of each call."""
        return _PLACES.split(self.call)[0]

    @cached_property
    def after_name(self) -> tuple[str, ...]:
        """The parts after the name: texts, `IDENT` and `ARGUMENTS`."""
        return tuple(filter(None, _PLACES.split(self.call)[2:]))

    @cached_property
    def is_json(self) -> bool:
        """True if the name is inside a JSON string."""
        return JSON_NAME in self.call

    @cached_property
    def behind_name(self) -> tuple[str, ...]:
        """The texts that may follow the name."""
        first, second = (*self.after_name, "")[:2]
        if first == IDENT and self.ident is not None:
            return (self.ident.before, *([second] if self.ident.is_optional else ()))
        return (first,) if self.parameters is None or first != ARGUMENTS else (self.parameters.before, second)


@dataclass(frozen=True)
class FormatSpec:
    """The tool-call format of a model family.

    frames: spellings of calls; the first one is used for calls in prompts
    trigger: the marker in free text that begins a call; "" if calls only stand at the start of an answer and are
        recognised by their beginning
    markers: texts that are special tokens, if the tokenizer has them
    thinking: the markers around thinking, None without thinking
    id_length: length of call ids, 0 for the usual ones
    lead: text that may stand before calls, even without content
    template, tokens: signs of the family: parts of its chat template, and special tokens
    """

    name: str
    frames: tuple[CallFrame, ...]
    trigger: str = ""
    markers: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = ("<think>", "</think>")
    id_length: int = 0
    lead: str = ""
    template: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)


_ALNUM = "[a-zA-Z0-9]{9}"
_ARGUMENTS = '{"name": "$json_name", "arguments": $arguments}'
_PARAMETERS = '{"name": "$json_name", "parameters": $arguments}'
_TOOL_CALL = ("<tool_call>", "</tool_call>")
_DEEPSEEK = tuple(f"<｜tool▁{each}｜>" for each in ("calls▁begin", "calls▁end", "call▁begin", "call▁end", "sep"))
_GLM = (*_TOOL_CALL, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
_KIMI = tuple(
    f"<|tool_call{each}|>" for each in ("s_section_begin", "s_section_end", "_begin", "_argument_begin", "_end")
)
_MISTRAL = CallFrame(
    '{"name": "$json_name", "arguments": $arguments$id}',
    opening="[TOOL_CALLS] [",
    between=", ",
    closing="]",
    ident=Ident(', "id": "', _ALNUM, '"', is_optional=True),
)

HARMONY = FormatSpec(
    "harmony",
    (),  # messages in channels, see `harmony.py`
    markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"),
    thinking=("<|channel|>analysis<|message|>", "<|end|>"),
    template=("<|channel|>", "<|message|>"),
)
JSON = FormatSpec(
    "json",
    (CallFrame(_ARGUMENTS, is_single=True), CallFrame(_ARGUMENTS, opening="[", between=", ", closing="]")),
)
# families with more specific signs come first
_SPECS = (
    HARMONY,
    FormatSpec(
        "kimi-k2",
        (
            CallFrame(
                "<|tool_call_begin|>functions.$name$id<|tool_call_argument_begin|>$arguments<|tool_call_end|>",
                opening="<|tool_calls_section_begin|>",
                closing="<|tool_calls_section_end|>",
                ident=Ident(":", "[0-9]{1,4}", template="functions.{name}:{id}"),
            ),
        ),
        trigger="<|tool_calls_section_begin|>",
        markers=_KIMI,
        template=("<|tool_calls_section_begin|>",),
    ),
    FormatSpec(
        "deepseek-v3.2",
        (
            CallFrame(
                '<｜DSML｜invoke name="$name">\n$arguments</｜DSML｜invoke>\n',
                opening="<｜DSML｜function_calls>\n",
                closing="</｜DSML｜function_calls>",
                parameters=Parameters(
                    '<｜DSML｜parameter name="',
                    '" string="false">',
                    "</｜DSML｜parameter>",
                    "\n",
                    behind_text='" string="true">',
                ),
            ),
        ),
        trigger="<｜DSML｜function_calls>",
        lead="\n\n",
        template=("DSML｜function_calls>", "DSML｜invoke"),
    ),
    FormatSpec(
        "deepseek-r1",
        (
            CallFrame(
                "<｜tool▁call▁begin｜>function<｜tool▁sep｜>$name\n```json\n$arguments\n```<｜tool▁call▁end｜>",
                opening="<｜tool▁calls▁begin｜>",
                between="\n",
                closing="<｜tool▁calls▁end｜>",
            ),
        ),
        trigger="<｜tool▁calls▁begin｜>",
        markers=_DEEPSEEK,
        template=("<｜tool▁calls▁begin｜>", "```json"),
    ),
    FormatSpec(
        "deepseek-v3.1",
        (
            CallFrame(
                "<｜tool▁call▁begin｜>$name<｜tool▁sep｜>$arguments<｜tool▁call▁end｜>",
                opening="<｜tool▁calls▁begin｜>",
                closing="<｜tool▁calls▁end｜>",
            ),
        ),
        trigger="<｜tool▁calls▁begin｜>",
        markers=_DEEPSEEK,
        template=("<｜tool▁calls▁begin｜>",),
    ),
    FormatSpec(
        "minimax-m2",
        (
            CallFrame(
                '<invoke name="$name">\n$arguments</invoke>\n',
                opening="<minimax:tool_call>\n",
                closing="</minimax:tool_call>",
                parameters=Parameters('<parameter name="', '">', "</parameter>", "\n"),
            ),
        ),
        trigger="<minimax:tool_call>",
        markers=("<minimax:tool_call>", "</minimax:tool_call>"),
        lead="\n",
        template=("minimax:tool_call",),
    ),
    FormatSpec(
        "minimax-m1",
        (CallFrame(f"{_ARGUMENTS}\n", opening="<tool_calls>\n", closing="</tool_calls>"),),
        trigger="<tool_calls>",
        markers=("<tool_calls>", "</tool_calls>"),
        lead="\n",
        template=("<tool_calls>",),
    ),
    FormatSpec(
        "mistral-v11",
        (CallFrame("[TOOL_CALLS]$name$id[ARGS]$arguments", ident=Ident("[CALL_ID]", _ALNUM, is_optional=True)),),
        trigger="[TOOL_CALLS]",
        markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
        thinking=("[THINK]", "[/THINK]"),
        id_length=9,
        template=("[TOOL_CALLS]", "[ARGS]"),
    ),
    FormatSpec(
        "mistral",
        (_MISTRAL, replace(_MISTRAL, opening="[TOOL_CALLS][")),
        trigger="[TOOL_CALLS]",
        markers=("[TOOL_CALLS]",),
        thinking=("[THINK]", "[/THINK]"),
        id_length=9,
        template=("[TOOL_CALLS]",),
    ),
    FormatSpec(
        "glm-4.5",
        (
            CallFrame(
                "<tool_call>$name\n$arguments</tool_call>",
                between="\n",
                parameters=Parameters("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n"),
            ),
        ),
        trigger="<tool_call>",
        markers=_GLM,
        lead="\n",
        template=("<tool_call>", "<arg_key>", "</arg_key>\n<arg_value>"),
    ),
    FormatSpec(
        "glm-4.7",
        (
            CallFrame(
                "<tool_call>$name$arguments</tool_call>",
                parameters=Parameters("<arg_key>", "</arg_key><arg_value>", "</arg_value>", ""),
            ),
        ),
        trigger="<tool_call>",
        markers=_GLM,
        template=("<tool_call>", "<arg_key>"),
    ),
    FormatSpec(
        "qwen3-coder",
        (
            CallFrame(
                "<tool_call>\n<function=$name>\n$arguments</function>\n</tool_call>",
                between="\n",
                parameters=Parameters("<parameter=", ">\n", "</parameter>", "\n", own_line=True),
            ),
        ),
        trigger="<tool_call>",
        markers=_TOOL_CALL,
        template=("<tool_call>", "<function=", "<parameter="),
    ),
    FormatSpec(
        "hermes",
        (CallFrame(f"<tool_call>\n{_ARGUMENTS}\n</tool_call>", between="\n"),),
        trigger="<tool_call>",
        markers=_TOOL_CALL,
        template=("<tool_call>",),
    ),
    FormatSpec(
        "llama3",
        (CallFrame(_PARAMETERS, between="; "), CallFrame(_PARAMETERS, opening="<|python_tag|>", between="; ")),
        markers=("<|python_tag|>",),
        thinking=None,
        template=('{"name": ', '"parameters": '),
        tokens=("<|start_header_id|>",),
    ),
    FormatSpec(
        "small",
        (CallFrame(_ARGUMENTS, is_single=True),),
        thinking=None,
        template=("You can call these tools:", "<|im_start|>"),
    ),
    JSON,
)
FORMATS = {each.name: each for each in _SPECS}
NAMES = tuple(sorted(FORMATS))


class Spelling:
    """Spelling of texts with markers.

    tokens: markers that are special tokens, by text, without those that end texts
    ends: markers that end texts
    vocabulary: the model's, with bytes for these tokens
    """

    def __init__(self, texts: Iterable[str], tokenizer: Any, vocabulary: Vocabulary) -> None:
        listed = sorted(set(texts), key=len, reverse=True)
        self.tokens: dict[str, int] = {}
        self.ends: set[str] = set()
        for text in listed:
            token = token_of(tokenizer, text)
            if token is not None and token in vocabulary.eos_ids:
                self.ends.add(text)
            elif token is not None and token in vocabulary.special_ids:
                self.tokens[text] = token
        self.vocabulary = with_markers(vocabulary, self.tokens.values())
        self._split = re.compile("|".join(map(re.escape, listed))) if listed else None
        self._texts = {marker_data(token): text for text, token in self.tokens.items()}

    def parts(self, text: str) -> tuple[Marker, ...]:
        """Split a text into texts and tokens."""
        found: list[Marker] = []
        at = 0
        for each in self._split.finditer(text) if self._split is not None else ():
            if each[0] in self.tokens:
                found += [text[at : each.start()], self.tokens[each[0]]]
                at = each.end()
        return tuple(part for part in [*found, text[at:]] if part != "")

    def fixed(self, *texts: str) -> Fixed:
        """Return the piece of joined texts."""
        return Fixed(self.parts("".join(texts)))

    def data(self, *texts: str) -> bytes:
        """Return the bytes of joined texts as in a model's output."""
        return marker_data(*self.parts("".join(texts)))

    def marker(self, text: str) -> Marker:
        """Return the marker of a text."""
        return self.tokens.get(text, text)

    def decode(self, data: bytes) -> str:
        """Decode bytes, with markers as their texts."""
        for each, text in self._texts.items():
            data = data.replace(each, text.encode())
        return data.decode(errors="replace")


def template_of(tokenizer: Any) -> str:
    """Return a tokenizer's chat template, the one for tools if there are several, with unescaped line breaks; "" for
    none."""
    template: Any = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        named = cast("Mapping[str, Any]", template)
        template = named.get("tool_use", named.get("default"))
    return template.replace("\\n", "\n") if isinstance(template, str) else ""


def detect(template: str, tokenizer: Any) -> FormatSpec:
    """Return the first family whose template signs and tokens are all present; plain JSON if there is none."""
    for family in FORMATS.values():
        has_signs = bool(family.template) and all(sign in template for sign in family.template)
        if has_signs and all(token_of(tokenizer, text) is not None for text in family.tokens):
            return family
    return JSON
