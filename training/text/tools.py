"""Tools, and requests that one of several is to be called for."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from .forms import expand, fill, side, slots_of
from .scenes import DOMAINS, Domain
from .schemas import closed, field_name, styled, typed
from .values import make
from .words import ARGUMENTS, TOOLS


def drawn(random: Random, held_out: bool) -> tuple[list[dict[str, Any]], str, dict[str, Any]]:
    """Two to five tools, a request, and the call that it asks for: {"name": ..., "arguments": {...}}."""
    tools: list[dict[str, Any]] = []
    request, call = "", {}
    wanted = random.randrange(random.randrange(2, 6))
    sources = random.sample([*DOMAINS.values(), *TOOLS], 5)[: max(2, wanted + 1 + random.randrange(2))]
    for number, source in enumerate(sources):
        text, slots, name, names = _request(random, source, held_out)
        values = {slot: make(kind, random, held_out) for slot, kind in slots.items()}
        name = random.choice([name for name in expand(name) if name not in [tool["name"] for tool in tools]])
        joint = random.choice(("_", "_", ""))
        pairs = {styled(names[slot], joint): typed(random, value) for slot, value in values.items()}
        tools.append({"name": name, "parameters": closed({field: pair[0] for field, pair in pairs.items()})})
        if number == wanted:
            request = fill(text, {slot: value.text for slot, value in values.items()})
            call = {"name": name, "arguments": {field: pair[1] for field, pair in pairs.items()}}
    return tools, request[0].upper() + request[1:], call


def call_schema(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The schema of a call of one of these tools."""
    calls = [closed({"name": {"const": tool["name"]}, "arguments": tool["parameters"]}) for tool in tools]
    return {"anyOf": calls}


def listed(tools: list[dict[str, Any]]) -> str:
    """The tools as a system message has them, one a line."""
    return "\n".join(json.dumps(tool) for tool in tools)


def outcome(random: Random, call: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """What a tool may answer, and the sentence that passes it on."""
    done, code = random.random() < 0.8, make("code", random, False)
    if not done:
        return {"ok": False}, random.choice(("I am sorry, that did not work.", "That could not be done."))
    return {"ok": True, "id": code.json}, random.choice(
        (f"Done. The number is {code.text}.", f"That is done, under the number {code.text}.", f"All set: {code.text}.")
    )


def _request(
    random: Random, source: Domain | tuple[str, dict[str, str], str], held_out: bool
) -> tuple[str, dict[str, str], str, dict[str, str]]:
    """A request, the kinds of its slots in order, the tool's name as a form, and the names of the arguments."""
    if isinstance(source, Domain):
        text = random.choice(side(random.choice(source.requests), held_out))
        slots = {slot: kind for slot, kind in source.kinds.items() if slot in slots_of(text)}
        return text, slots, source.tool, {slot: field_name(random, source, slot, False) for slot in slots}
    name, kinds, form = source
    text = random.choice(side(form, held_out))
    slots = {slot: kind for slot, kind in kinds.items() if slot in slots_of(text)}
    return text, slots, name, {slot: random.choice(expand(ARGUMENTS[slot])) for slot in slots}
