"""How the chat templates of families write a turn of the assistant, and tools to call; written for these tests."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from jinja2 import Environment


class Turn(NamedTuple):
    """A turn of the assistant. prompt: what of it the template has put behind the prompt already"""

    content: str
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()
    reasoning: str = ""


WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "exact": {"type": "boolean"},
        "note": {"type": ["string", "null"]},
        "parts": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}
TOOLS = [
    {"type": "function", "function": {"name": "get_weather", "parameters": WEATHER, "strict": True}},
    {"type": "function", "function": {"name": "get_weather_of", "parameters": WEATHER}},
    {"type": "function", "function": {"name": "now"}},
]
_THINK = "{% if m.reasoning %}<think>\n{{ m.reasoning }}\n</think>\n\n{% endif %}"
_CALL = '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}'
_ARGUMENTS = "{{ c.arguments | tojson }}"

# In the style of the families' templates: m has content, reasoning and calls, each with name, arguments, id and number
TEMPLATES = {
    "hermes": _THINK
    + "{{ m.content }}{% for c in m.calls %}{% if not loop.first or m.content %}\n{% endif %}<tool_call>\n"
    + '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}\n</tool_call>{% endfor %}',
    "qwen3-coder": _THINK
    + "{{ m.content }}{% for c in m.calls %}{% if not loop.first or m.content %}\n{% endif %}<tool_call>\n"
    + "<function={{ c.name }}>\n{% for k, v in c.arguments.items() %}<parameter={{ k }}>\n"
    + "{{ v if v is string else v | tojson }}\n</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}",
    "llama3": "{{ m.content }}{% for c in m.calls %}{% if not loop.first %}; {% endif %}"
    + '{"name": "{{ c.name }}", "parameters": {{ c.arguments | tojson }}}{% endfor %}',
    "mistral": "{{ m.content }}{% if m.calls %}[TOOL_CALLS] [{% for c in m.calls %}{% if not loop.first %}, {% endif %}"
    + '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}, "id": "{{ c.id }}"}{% endfor %}]{% endif %}',
    "mistral-v11": "{% if m.reasoning %}[THINK]{{ m.reasoning }}[/THINK]{% endif %}{{ m.content }}"
    + "{% for c in m.calls %}[TOOL_CALLS]{{ c.name }}[CALL_ID]{{ c.id }}[ARGS]{{ c.arguments | tojson }}{% endfor %}",
    "deepseek-r1": _THINK
    + "{{ m.content }}{% if m.calls %}<｜tool▁calls▁begin｜>{% for c in m.calls %}{% if not loop.first %}\n{% endif %}"
    + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>{{ c.name }}\n```json\n"
    + _ARGUMENTS
    + "\n```<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}",
    "deepseek-v3.1": _THINK
    + "{{ m.content }}{% if m.calls %}<｜tool▁calls▁begin｜>{% for c in m.calls %}<｜tool▁call▁begin｜>{{ c.name }}"
    + "<｜tool▁sep｜>"
    + _ARGUMENTS
    + "<｜tool▁call▁end｜>{% endfor %}<｜tool▁calls▁end｜>{% endif %}",
    "deepseek-v3.2": _THINK
    + "{{ m.content }}{% if m.calls %}\n\n<｜DSML｜function_calls>\n{% for c in m.calls %}"
    + '<｜DSML｜invoke name="{{ c.name }}">\n{% for k, v in c.arguments.items() %}<｜DSML｜parameter name="{{ k }}" '
    + "string=\"{{ 'true' if v is string else 'false' }}\">{{ v if v is string else v | tojson }}"
    + "</｜DSML｜parameter>\n{% endfor %}</｜DSML｜invoke>\n{% endfor %}</｜DSML｜function_calls>{% endif %}",
    "kimi-k2": _THINK
    + "{{ m.content }}{% if m.calls %}<|tool_calls_section_begin|>{% for c in m.calls %}<|tool_call_begin|>"
    + "functions.{{ c.name }}:{{ loop.index0 }}<|tool_call_argument_begin|>"
    + _ARGUMENTS
    + "<|tool_call_end|>{% endfor %}<|tool_calls_section_end|>{% endif %}",
    "glm-4.5": _THINK
    + "{{ m.content }}{% for c in m.calls %}\n<tool_call>{{ c.name }}\n{% for k, v in c.arguments.items() %}"
    + "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v if v is string else v | tojson }}</arg_value>\n{% endfor %}"
    + "</tool_call>{% endfor %}",
    "glm-4.7": _THINK
    + "{{ m.content }}{% for c in m.calls %}<tool_call>{{ c.name }}{% for k, v in c.arguments.items() %}"
    + "<arg_key>{{ k }}</arg_key><arg_value>{{ v if v is string else v | tojson }}</arg_value>{% endfor %}"
    + "</tool_call>{% endfor %}",
    "minimax-m1": _THINK
    + "{{ m.content }}{% if m.calls %}\n<tool_calls>\n{% for c in m.calls %}"
    + '{"name": "{{ c.name }}", "arguments": {{ c.arguments | tojson }}}\n{% endfor %}</tool_calls>{% endif %}',
    "minimax-m2": _THINK
    + "{{ m.content }}{% if m.calls %}\n<minimax:tool_call>\n{% for c in m.calls %}"
    + '<invoke name="{{ c.name }}">\n{% for k, v in c.arguments.items() %}<parameter name="{{ k }}">'
    + "{{ v if v is string else v | tojson }}</parameter>\n{% endfor %}</invoke>\n{% endfor %}"
    + "</minimax:tool_call>{% endif %}",
    "harmony": "{% if m.reasoning %}<|channel|>analysis<|message|>{{ m.reasoning }}<|end|><|start|>assistant{% endif %}"
    + "{% for c in m.calls %}{% if m.content %}<|channel|>commentary<|message|>{{ m.content }}<|end|><|start|>assistant"
    + "{% endif %} to=functions.{{ c.name }}<|channel|>commentary json<|message|>{{ c.arguments | tojson }}<|call|>"
    + "{% else %}<|channel|>final<|message|>{{ m.content }}<|return|>{% endfor %}",
    "json": _THINK
    + "{{ m.content }}{% if m.calls[1:] %}[{% endif %}{% for c in m.calls %}{% if not loop.first %}, {% endif %}"
    + _CALL
    + "{% endfor %}{% if m.calls | length > 1 %}]{% endif %}",
    "small": "{{ m.content }}{% for c in m.calls %}" + _CALL + "{% endfor %}",
}
# What of these is a call by itself, never behind content; of which there is one at most; which never think
ALONE, SINGLE, THOUGHTLESS = {"llama3", "json", "small"}, {"small", "harmony"}, {"llama3", "small", "mistral"}

_environment = Environment()
_environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)


def rendered(name: str, turn: Turn) -> str:
    """A turn as a template of the family writes it."""
    calls = [
        {"name": tool, "arguments": values, "id": f"call{number:05}"}
        for number, (tool, values) in enumerate(turn.calls)
    ]
    return _environment.from_string(TEMPLATES[name]).render(
        m={"content": turn.content, "reasoning": turn.reasoning, "calls": calls}
    )


Calls = tuple[tuple[str, dict[str, Any]], ...]


def turns_of(name: str, inside: str) -> list[Turn]:
    """The turns that a family can write. inside: what a string among the arguments has in it"""
    strange = {"city": f'Zürich "{inside}" {{\n\\ 世', "days": -3, "exact": True, "note": "null?", "parts": ["a]", "}"]}
    calls: Calls = (
        ("get_weather", {"city": "Oslo"}),
        ("now", {}),
        ("get_weather_of", strange),
        ("get_weather", {"city": "", "note": None}),
    )
    turns = [
        Turn("Hello there. 世"),
        Turn("", calls[:1]),
        Turn("I look it up.", calls[2:3]),
        Turn("", calls[1:2], "What is\n\nasked?"),
        Turn("Two lines\nof content.", calls[3:], "{}"),
        Turn("", calls),
        Turn("Both.", calls[:2], "Twice <b>."),
        Turn("After all.", (), "Let me think."),
    ]
    found: list[Turn] = []
    for content, called, reasoning in turns:
        fewer = called[:1] if name in SINGLE else called
        found.append(Turn("" if name in ALONE and fewer else content, fewer, "" if name in THOUGHTLESS else reasoning))
    return found
