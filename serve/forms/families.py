"""How families of models write tool calls and thinking, as data: from these the guides and the readers are made."""

from __future__ import annotations

from dataclasses import dataclass, field

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
class Frame:
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
class Family:
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
    frames: tuple[Frame, ...]
    trigger: str = ""
    markers: tuple[str, ...] = ()
    thinking: tuple[str, str] | None = THINK
    id_length: int = 0
    lead: str = ""
    # A piece of a chat template, and special tokens, all of which the family has
    template: tuple[str, ...] = field(default=(), repr=False)
    tokens: tuple[str, ...] = field(default=(), repr=False)


JSON_CALL = Frame('{"name": "', '", "arguments": ', "}", quoted=True, is_single=True)
ALNUM = "[a-zA-Z0-9]{9}"

HERMES = Family(
    "hermes",
    (Frame('<tool_call>\n{"name": "', '", "arguments": ', "}\n</tool_call>", between="\n", quoted=True),),
    trigger="<tool_call>",
    markers=("<tool_call>", "</tool_call>"),
    template=("<tool_call>",),
)
QWEN3_CODER = Family(
    "qwen3-coder",
    (
        Frame(
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
_LLAMA_CALL = Frame('{"name": "', '", "parameters": ', "}", between="; ", quoted=True)
LLAMA = Family(
    "llama3",
    (
        _LLAMA_CALL,
        Frame('{"name": "', '", "parameters": ', "}", opening="<|python_tag|>", between="; ", quoted=True),
    ),
    markers=("<|python_tag|>",),
    thinking=None,
    template=('{"name": ', '"parameters": '),
    tokens=("<|start_header_id|>",),
)
_MISTRAL_ID = Ident(', "id": "', ALNUM + '"', is_optional=True, behind_arguments=True)
MISTRAL = Family(
    "mistral",
    tuple(
        Frame(
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
MISTRAL_V11 = Family(
    "mistral-v11",
    (Frame("[TOOL_CALLS]", "[ARGS]", "", ident=Ident("[CALL_ID]", ALNUM, is_optional=True)),),
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
DEEPSEEK_R1 = Family(
    "deepseek-r1",
    (
        Frame(
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
DEEPSEEK_V31 = Family(
    "deepseek-v3.1",
    (
        Frame(
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
DEEPSEEK_V32 = Family(
    "deepseek-v3.2",
    (
        Frame(
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
KIMI = Family(
    "kimi-k2",
    (
        Frame(
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
GLM_45 = Family(
    "glm-4.5",
    (
        Frame(
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
GLM_47 = Family(
    "glm-4.7",
    (
        Frame(
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
MINIMAX_M1 = Family(
    "minimax-m1",
    (
        Frame(
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
MINIMAX_M2 = Family(
    "minimax-m2",
    (
        Frame(
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
HARMONY = Family(
    "harmony",
    (),
    markers=("<|channel|>", "<|message|>", "<|constrain|>", "<|start|>", "<|end|>", "<|call|>", "<|return|>"),
    thinking=("<|channel|>analysis<|message|>", "<|end|>"),
    template=("<|channel|>", "<|message|>"),
)
JSON = Family(
    "json",
    (JSON_CALL, Frame('{"name": "', '", "arguments": ', "}", opening="[", between=", ", closing="]", quoted=True)),
)
SMALL = Family("small", (JSON_CALL,), thinking=None, template=("You can call these tools:", "<|im_start|>"))

# Those with more to tell them by come before those with less
FAMILIES = {
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
NAMES = tuple(sorted(FAMILIES))
