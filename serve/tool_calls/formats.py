"""How families of models write tool calls and thinking, as data, and how a tokenizer spells their markers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from ...guides.tagged.pieces import Fixed, Marker, marker_data
from ...tokenizers_adapter import Vocabulary
from ...tokenizers_adapter.marked import with_markers

THINK = ("<think>", "</think>")


@dataclass(frozen=True)
class Ident:
    """An id within a call: the text before it and its pattern.

    is_optional: whether it may be left out; behind_arguments: whether it comes after these and not after the name
    written: the id of the call, of `name` and `id`
    """

    before: str
    pattern: str
    is_optional: bool = False
    behind_arguments: bool = False
    written: str = "{id}"


@dataclass(frozen=True)
class Parameters:
    """Arguments that are written one by one: before the name of each, behind it, and the two parts of its end.

    The value ends where `end` comes for the first time, but in a string of JSON.
    own_line: whether a line break before that is none of its own
    behind_text: what is behind the name of a string that is written as it is, where the form tells it from JSON
    """

    before: str
    behind_name: str
    end: str
    behind: str
    own_line: bool = False
    behind_text: str = ""


@dataclass(frozen=True)
class CallFrame:
    """What stands around calls: `opening (head NAME behind_name ARGUMENTS tail) between (...) closing`.

    quoted: whether the name is written as within a JSON string; parameters: None where arguments are JSON
    is_single: whether there is never more than one call
    """

    head: str
    behind_name: str
    tail: str
    opening: str = ""
    between: str = ""
    closing: str = ""
    quoted: bool = False
    parameters: Parameters | None = None
    ident: Ident | None = None
    is_single: bool = False


@dataclass(frozen=True)
class FormatSpec:
    """The form of a family of models.

    frames: the ways to write calls; the first one is what a call is made like
    trigger: the marker in free text behind which there is a call; "" where a call is a text by itself, which is told
        by how it begins
    markers: what is a token of its own, where the tokenizer has one
    thinking: the markers around thinking, None where the family does none
    id_length: of the ids of calls, 0 for the usual ones
    lead: what may stand before calls, also where there is no content
    """

    name: str
    frames: tuple[CallFrame, ...]
    trigger: str = ""
    markers: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = THINK
    id_length: int = 0
    lead: str = ""
    # A piece of a chat template, and special tokens, all of which the family has
    template: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)


JSON_CALL = CallFrame('{"name": "', '", "arguments": ', "}", quoted=True, is_single=True)
ALNUM = "[a-zA-Z0-9]{9}"

HERMES = FormatSpec(
    "hermes",
    (CallFrame('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n", quoted=True),),
    trigger="<tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    template=("<tool_call>",),
)
QWEN3_CODER = FormatSpec(
    "qwen3-coder",
    (
        CallFrame(
            "<tool_call>\n<function=",
            ">\n",
            "</function>\n</tool_call>",
            between="\n",
            parameters=Parameters("<parameter=", ">\n", "</parameter>", "\n", own_line=True),
        ),
    ),
    trigger="<tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    template=("<tool_call>", "<function=", "<parameter="),
)
_LLAMA_CALL = CallFrame('{"name": "', '", "parameters": ', "}", between="; ", quoted=True)
LLAMA = FormatSpec(
    "llama3",
    (
        _LLAMA_CALL,
        CallFrame('{"name": "', '", "parameters": ', "}", opening="<|python_tag|>", between="; ", quoted=True),
    ),
    markers=("<|python_tag|>",),
    thinking=None,
    template=('{"name": ', '"parameters": '),
    tokens=("<|start_header_id|>",),
)
_MISTRAL_ID = Ident(', "id": "', ALNUM + '"', is_optional=True, behind_arguments=True)
MISTRAL = FormatSpec(
    "mistral",
    tuple(
        CallFrame(
            '{"name": "',
            '", "arguments": ',
            "}",
            opening=opening,
            between=", ",
            closing="]",
            quoted=True,
            ident=_MISTRAL_ID,
        )
        for opening in ("[TOOL_CALLS] [", "[TOOL_CALLS][")
    ),
    trigger="[TOOL_CALLS]",
    markers=("[TOOL_CALLS]",),
    thinking=("[THINK]", "[/THINK]"),
    id_length=9,
    template=("[TOOL_CALLS]",),
)
MISTRAL_V11 = FormatSpec(
    "mistral-v11",
    (CallFrame("[TOOL_CALLS]", "[ARGS]", "", ident=Ident("[CALL_ID]", ALNUM, is_optional=True)),),
    trigger="[TOOL_CALLS]",
    markers=("[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"),
    thinking=("[THINK]", "[/THINK]"),
    id_length=9,
    template=("[TOOL_CALLS]", "[ARGS]"),
)
_DEEPSEEK_MARKERS = (
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁calls▁end｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁sep｜>",
)
DEEPSEEK_R1 = FormatSpec(
    "deepseek-r1",
    (
        CallFrame(
            "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
            "\n```json\n",
            "\n```<｜tool▁call▁end｜>",
            opening="<｜tool▁calls▁begin｜>",
            between="\n",
            closing="<｜tool▁calls▁end｜>",
        ),
    ),
    trigger="<｜tool▁calls▁begin｜>",
    markers=_DEEPSEEK_MARKERS,
    template=("<｜tool▁calls▁begin｜>", "```json"),
)
DEEPSEEK_V31 = FormatSpec(
    "deepseek-v3.1",
    (
        CallFrame(
            "<｜tool▁call▁begin｜>",
            "<｜tool▁sep｜>",
            "<｜tool▁call▁end｜>",
            opening="<｜tool▁calls▁begin｜>",
            closing="<｜tool▁calls▁end｜>",
        ),
    ),
    trigger="<｜tool▁calls▁begin｜>",
    markers=_DEEPSEEK_MARKERS,
    template=("<｜tool▁calls▁begin｜>",),
)
DEEPSEEK_V32 = FormatSpec(
    "deepseek-v3.2",
    (
        CallFrame(
            '<｜DSML｜invoke name="',
            '">\n',
            "</｜DSML｜invoke>\n",
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
)
KIMI = FormatSpec(
    "kimi-k2",
    (
        CallFrame(
            "<|tool_call_begin|>functions.",
            "<|tool_call_argument_begin|>",
            "<|tool_call_end|>",
            opening="<|tool_calls_section_begin|>",
            closing="<|tool_calls_section_end|>",
            ident=Ident(":", "[0-9]{1,4}", written="functions.{name}:{id}"),
        ),
    ),
    trigger="<|tool_calls_section_begin|>",
    markers=(
        "<|tool_calls_section_begin|>",
        "<|tool_calls_section_end|>",
        "<|tool_call_begin|>",
        "<|tool_call_argument_begin|>",
        "<|tool_call_end|>",
    ),
    template=("<|tool_calls_section_begin|>",),
)
_GLM_MARKERS = ("<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
GLM_45 = FormatSpec(
    "glm-4.5",
    (
        CallFrame(
            "<tool_call>",
            "\n",
            "</tool_call>",
            between="\n",
            parameters=Parameters("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>", "\n"),
        ),
    ),
    trigger="<tool_call>",
    markers=_GLM_MARKERS,
    lead="\n",
    template=("<tool_call>", "<arg_key>", "</arg_key>\n<arg_value>"),
)
GLM_47 = FormatSpec(
    "glm-4.7",
    (
        CallFrame(
            "<tool_call>",
            "",
            "</tool_call>",
            parameters=Parameters("<arg_key>", "</arg_key><arg_value>", "</arg_value>", ""),
        ),
    ),
    trigger="<tool_call>",
    markers=_GLM_MARKERS,
    template=("<tool_call>", "<arg_key>"),
)
MINIMAX_M1 = FormatSpec(
    "minimax-m1",
    (
        CallFrame(
            '{"name": "',
            '", "arguments": ',
            "}\n",
            opening="<tool_calls>\n",
            closing="</tool_calls>",
            quoted=True,
        ),
    ),
    trigger="<tool_calls>",
    markers=("<tool_calls>", "</tool_calls>"),
    lead="\n",
    template=("<tool_calls>",),
)
MINIMAX_M2 = FormatSpec(
    "minimax-m2",
    (
        CallFrame(
            '<invoke name="',
            '">\n',
            "</invoke>\n",
            opening="<minimax:tool_call>\n",
            closing="</minimax:tool_call>",
            parameters=Parameters('<parameter name="', '">', "</parameter>", "\n"),
        ),
    ),
    trigger="<minimax:tool_call>",
    markers=("<minimax:tool_call>", "</minimax:tool_call>"),
    lead="\n",
    template=("minimax:tool_call",),
)
HARMONY = FormatSpec(
    "harmony",
    (),
    markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"),
    thinking=("<|channel|>analysis<|message|>", "<|end|>"),
    template=("<|channel|>", "<|message|>"),
)
JSON = FormatSpec(
    "json",
    (JSON_CALL, CallFrame('{"name": "', '", "arguments": ', "}", opening="[", between=", ", closing="]", quoted=True)),
)
SMALL = FormatSpec("small", (JSON_CALL,), thinking=None, template=("You can call these tools:", "<|im_start|>"))

# Those with more to tell them by come before those with less
FORMATS = {
    family.name: family
    for family in (
        *(
            HARMONY,
            KIMI,
            DEEPSEEK_V32,
            DEEPSEEK_R1,
            DEEPSEEK_V31,
            MINIMAX_M2,
            MINIMAX_M1,
            MISTRAL_V11,
            MISTRAL,
            GLM_45,
            GLM_47,
        ),
        *(QWEN3_CODER, HERMES, LLAMA, SMALL, JSON),
    )
}
NAMES = tuple(sorted(FORMATS))


class Spelling:
    """How texts with markers are spelled.

    tokens: those of the markers that are special tokens, by their text; such that end texts are not among them
    ends: those that end texts
    vocabulary: that of the model, in which the tokens have bytes
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
        """A text as texts and tokens."""
        found: list[Marker] = []
        at = 0
        for each in self._split.finditer(text) if self._split is not None else ():
            if each[0] in self.tokens:
                found += [text[at : each.start()], self.tokens[each[0]]]
                at = each.end()
        return tuple(part for part in [*found, text[at:]] if part != "")

    def fixed(self, *texts: str) -> Fixed:
        """A piece of these texts, one after the other."""
        return Fixed(self.parts("".join(texts)))

    def data(self, *texts: str) -> bytes:
        """These texts in bytes, as they are in what a model writes."""
        return marker_data(*self.parts("".join(texts)))

    def marker(self, text: str) -> Marker:
        """A marker by its text."""
        return self.tokens.get(text, text)

    def written(self, data: bytes) -> str:
        """Bytes as text, tokens by theirs."""
        for each, text in self._texts.items():
            data = data.replace(each, text.encode())
        return data.decode(errors="replace")


def token_of(tokenizer: Any, text: str) -> int | None:
    """The token that a tokenizer writes as a text; None where it has none."""
    find: Any = getattr(tokenizer, "convert_tokens_to_ids", getattr(tokenizer, "token_to_id", None))
    token = None if find is None else find(text)
    if not isinstance(token, int):
        return None
    written: Any = getattr(tokenizer, "convert_ids_to_tokens", getattr(tokenizer, "id_to_token", None))
    return token if written is None or written(token) == text else None  # other texts are the unknown token


def template_of(tokenizer: Any) -> str:
    """The chat template of a tokenizer, of several the one for tools, with line breaks as such; "" for none."""
    template: Any = getattr(tokenizer, "chat_template", None)
    if isinstance(template, Mapping):
        named = cast("Mapping[str, Any]", template)
        template = named.get("tool_use", named.get("default"))
    return template.replace("\\n", "\n") if isinstance(template, str) else ""


def detected(template: str, tokenizer: Any) -> FormatSpec:
    """The first family all of whose signs a template has, and whose tokens the tokenizer has; plain JSON for none."""
    for family in FORMATS.values():
        has_signs = bool(family.template) and all(sign in template for sign in family.template)
        if has_signs and all(token_of(tokenizer, text) is not None for text in family.tokens):
            return family
    return JSON
