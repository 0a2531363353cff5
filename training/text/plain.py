"""Tasks on plain English: a sentence about a person with a real name, and a record or a quotation of it."""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from . import names
from .forms import expand, fill, is_held_out, side, slots_of
from .schemas import closed, described, styled
from .tasks import Task

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("plain.toml").read_text(encoding="utf-8"))
_NAMES: dict[str, list[str]] = _TABLES["names"]
_ASKED: dict[str, str] = _TABLES["asked"]
_EVENTS: list[dict[str, Any]] = _TABLES["events"]
_NUMBERS = ("year", "age", "count")
_LEADS = ("\n", "Answer:\n", "Answer: ", "A: ", "Output: ")
_RECORD_LEADS = ("\n", "JSON:\n", "JSON: ", "Answer:\n", "Output: ")


@dataclass(frozen=True, slots=True)
class Plain:
    """A sentence, or a few, and what it tells. event: the table of fields and questions; values: of slots, as texts"""

    text: str
    event: dict[str, Any]
    values: dict[str, str]


def drawn(random: Random, held_out: bool) -> Plain:
    """A sentence of one side of the split, its form and all its names."""
    while True:
        event = random.choice(_EVENTS)
        forms = [text for form in event["forms"] for text in expand(form) if is_held_out(text) == held_out]
        if forms:
            break
    form = random.choice(forms)
    filled = {slot: _value(random, slot, held_out) for slot in sorted(slots_of(form))}
    text = fill(form, filled)
    text = text[0].upper() + text[1:]
    if random.random() < 0.3:
        beside = random.choice(side(_ASKED["beside"], held_out))
        text = f"{beside} {text}" if random.random() < 0.3 else f"{text} {beside}"
    # An answer has no article: "the Red Cross" is named "Red Cross".
    return Plain(text, event, {slot: value.removeprefix("the ") for slot, value in filled.items()})


def plain_record_task(random: Random, held_out: bool) -> Task:
    """A record of a plain sentence as JSON."""
    plain = drawn(random, held_out)
    told = [slot for slot in plain.values if slot in plain.event["fields"]]
    slots = random.sample(told, random.randrange(min(2, len(told)), len(told) + 1))
    joint = random.choice(("_", "_", " ", ""))
    properties: dict[str, Any] = {}
    value: dict[str, Any] = {}
    for slot in slots:
        name = styled(random.choice(side(plain.event["fields"][slot], held_out)), joint)
        if name in properties:
            continue
        is_number = slot in _NUMBERS and random.random() < 0.85
        properties[name] = {"type": "integer" if is_number else "string"}
        value[name] = int(plain.values[slot]) if is_number else plain.values[slot]
    schema = closed(properties)
    request = _record_request(random, plain.text, schema, held_out)
    written = json.dumps(value)
    return Task("plain record", "", request, written, ("json", schema), value, leads=_RECORD_LEADS)


def plain_quotation_task(random: Random, held_out: bool) -> Task:
    """A quotation from a plain sentence."""
    plain = drawn(random, held_out)
    slot = random.choice([slot for slot in plain.values if slot in plain.event["questions"]])
    several = [text for text in side(plain.event["questions"][slot], held_out) if slots_of(text) <= plain.values.keys()]
    if random.random() < 0.2 or not several:
        name = random.choice(side(plain.event["fields"][slot], held_out))
        asked = random.choice(side(_ASKED["part"], held_out)).replace("{name}", name)
    else:
        asked = fill(random.choice(several), plain.values)
    asked = random.choice(side(_ASKED["quote"], held_out)).replace("{question}", asked)
    request = _laid_out(random, plain.text, asked)
    answer = plain.values[slot]
    return Task("plain quotation", "", request, answer, ("extract", plain.text), answer, leads=_LEADS)


def _value(random: Random, slot: str, held_out: bool) -> str:
    """A text for a slot, of one side of the split where there are many."""
    kind = slot.rstrip("2")
    if kind == "person":
        given = _name(random, "given", held_out)
        return given + "".join(f" {_name(random, 'family', held_out)}" for _ in range(1 + (random.random() < 0.08)))
    if kind == "year":
        return str(random.randrange(1900, 2025) if random.random() < 0.8 else random.randrange(1500, 1900))
    if kind == "age":
        return str(random.randrange(16, 95))
    if kind == "count":
        return str(random.randrange(2, 10 ** random.randrange(2, 6)))
    if kind == "title":
        return names.fresh(names.title, random, held_out)
    if kind == "organisation":
        form = random.choice(_NAMES[kind])
        return fill(form, {slot: _value(random, slot, held_out) for slot in sorted(slots_of(form))})
    return _name(random, kind, held_out)


def _name(random: Random, kind: str, held_out: bool) -> str:
    # Invented names as well, so that more than a few hundred are met.
    if kind in ("given", "family") and not held_out and random.random() < 0.25:
        return names.fresh(names.person, random, held_out).split()[kind == "family"]
    if kind == "city" and not held_out and random.random() < 0.2:
        return names.fresh(names.city, random, held_out)
    several = _NAMES[kind]
    return random.choice([name for name in several if is_held_out(name) == held_out] or several)


def _record_request(random: Random, text: str, schema: dict[str, Any], held_out: bool) -> str:
    """The sentence and what is asked of it: by names of fields, by a form of the record, or by nothing."""
    fields = list(schema["properties"])
    listed = ", ".join(fields[:-1]) + random.choice((" and ", ", ")) + fields[-1] if fields[1:] else fields[0]
    listed = listed.replace("_", " ") if random.random() < 0.4 else listed
    way = random.random()
    if way < 0.45:
        return _laid_out(random, text, _asked(random, "fields", held_out).replace("{names}", listed))
    if way < 0.55:
        return f"{_asked(random, 'front', held_out).replace('{names}', listed)}{random.choice(chr(10) + ' ')}{text}"
    asked = _asked(random, "nothing", held_out)
    if way < 0.7:
        return _laid_out(random, text, asked)
    if way < 0.9:
        return _laid_out(random, text, f"{asked}\n{_asked(random, 'skeleton', held_out)}\n{_skeleton(schema)}")
    return _laid_out(random, text, f"{asked}\n{described(random, schema)[0]}")


def _skeleton(schema: dict[str, Any]) -> str:
    """The record with types in place of values: {"name": string, "year": integer}."""
    return "{" + ", ".join(f"{json.dumps(name)}: {each['type']}" for name, each in schema["properties"].items()) + "}"


def _asked(random: Random, kind: str, held_out: bool) -> str:
    return random.choice(side(_ASKED[kind].replace("\n", ""), held_out))


def _laid_out(random: Random, text: str, asked: str) -> str:
    """A text and a request, in one of the orders and with one of the breaks that people put between."""
    between = random.choice(("\n", "\n", "\n\n", " "))
    way = random.random()
    if way < 0.15:
        return f"{asked}{between}{text}"
    if way < 0.25:
        return f"{random.choice(('Text', 'Sentence', 'Context'))}: {text}{between}{asked}"
    return f"{text}{between}{asked}"


PLAIN_TASKS = (plain_record_task, plain_quotation_task)
