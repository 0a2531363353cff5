"""Tasks of eight kinds, drawn from the tables of tasks.toml: the same in every process and on every machine."""

from __future__ import annotations

import datetime
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, Literal

from trellm.training.text.forms import expand, fill, slots_of

TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("tasks.toml").read_text(encoding="utf-8"))
NAMES: dict[str, list[str]] = TABLES["names"]
PER_KIND = 200
Half = Literal["choose", "judge", "all"]
Constraint = Literal["json", "extract", "choice", "integer", "date"]


@dataclass(frozen=True, slots=True)
class Task:
    """What a user asks, and what is right.

    constraint: how an answer is constrained; argument: the schema, the document or the choices, None for numbers
    gold: a record, a text, a number, an ISO date or a list, as `kind` has it; of quotations the texts that are right
    """

    kind: str
    number: int
    prompt: str
    constraint: Constraint
    argument: Any
    gold: Any

    @property
    def half(self) -> Half:
        """That of even numbers is for choosing defaults, the other one for judging them."""
        return "judge" if self.number % 2 else "choose"


def tasks(kind: str, half: Half = "all", most: int = PER_KIND) -> list[Task]:
    """Tasks of a kind, no two with one prompt. most: of the half"""
    found: dict[str, Task] = {}
    turn = 0
    while len(found) < PER_KIND:
        task = MAKERS[kind](Random(f"{kind} {turn}"), len(found))
        found.setdefault(task.prompt, task)
        turn += 1
    return [task for task in found.values() if half in ("all", task.half)][:most]


def forms_of(family: str) -> list[int]:
    """How many forms each table of a family has, alternatives counted."""
    if family in ("numbers", "problems"):
        return [sum(len(expand(form[0])) for form in TABLES[family]["forms"])]
    if family == "dates":
        return [sum(len(expand(form[0])) for form in TABLES["numbers"]["dates"])]
    forms = [table["forms"] for table in TABLES[family]]
    return [sum(len(expand(form)) for form in several) for several in forms]


def _record(random: Random, number: int) -> Task:
    table, text, values = _told(random)
    properties: dict[str, Any] = {}
    gold: dict[str, Any] = {}
    for name, (slot, kind) in table["fields"].items():
        properties[name], gold[name] = _typed(kind, slot, values)
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    names = [name.replace("_", " ") if random.random() < 0.5 else name for name in properties]
    asked = _asked(random, "record").replace("{fields}", f"{', '.join(names[:-1])} and {names[-1]}")
    return Task("records", number, _laid_out(random, text, asked), "json", schema, gold)


def _quotation(random: Random, number: int) -> Task:
    if random.random() < 0.06:
        passage = random.choice(TABLES["passages"])
        question, *gold = random.choice(passage["questions"])
        text = passage["text"]
    else:
        table, text, values = _told(random)
        slot = random.choice([slot for slot in table["questions"] if slot in values])
        question = fill(random.choice(expand(table["questions"][slot])), values)
        gold = [form.format(**values, it=values[slot]) for form in _SAID.get(slot, ("{it}",))]
        for _ in range(random.choice((0, 0, 1, 2))):
            beside = random.choice(TABLES["beside"]["texts"])
            text = f"{text} {beside}" if random.random() < 0.7 else f"{beside} {text}"
    asked = _asked(random, "quote").replace("{question}", question)
    return Task("quotations", number, _laid_out(random, text, asked), "extract", text, gold)


_SAID = {
    "price": ("{it}", "{it} euros"),
    "item": ("{it}", "{it}s", "{count} {it}s"),
    "count": ("{it}", "{it} {item}s"),
    "hour": ("{it}", "{weekday} at {it}"),
}
"""What answers a question as well as what stands in the place."""


def _choice(random: Random, number: int) -> Task:
    table = random.choice(TABLES["choices"])
    key, gold = random.choice(sorted(table["answers"].items()))
    options = list(table["options"])
    if not options:
        options = [name.removeprefix("a ").removeprefix("an ") for name in key.split(", ")[1].split(" or ")]
        options = [name.removeprefix("the ") for name in options]
    random.shuffle(options)
    options = [gold, *[option for option in options if option != gold][: random.randrange(1, 6)]]
    random.shuffle(options)
    question = fill(random.choice(expand(table["question"])), {"key": key})
    if random.random() < 0.12:
        letters = "ABCDEFG"[: len(options)]
        listed = "\n".join(f"{letter}. {option}" for letter, option in zip(letters, options, strict=True))
        prompt = f"{question}\n{listed}\nAnswer with the letter."
        return Task("choices", number, prompt, "choice", list(letters), letters[options.index(gold)])
    either = f"{', '.join(options[:-1])} or {options[-1]}"
    asked = _asked(random, "choose").replace("{options}", ", ".join(options)).replace("{either}", either)
    return Task("choices", number, asked.replace("{question}", question), "choice", options, gold)


def _number(random: Random, number: int) -> Task:
    if random.random() < 0.3:
        day = datetime.date.fromordinal(random.randrange(701_000, 739_000))
        month = NAMES["month"][day.month - 1]
        written = random.choice((f"{day.day} {month} {day.year}", f"{month} {day.day}, {day.year}"))
        values = _values(random) | {"date": written}
        form, question = random.choice(TABLES["numbers"]["dates"])
        return _asked_of(random, number, form, question, values, "date", day.isoformat())
    values = _values(random) | {
        "n": str(random.randrange(100, 2000)),
        "m": str(random.randrange(20, 100)),
        "y": str(random.randrange(1850, 2020)),
        "a": str(random.randrange(20, 90)),
        "s": str(random.randrange(3, 20)),
    }
    form, question, slot = random.choice(TABLES["numbers"]["forms"])
    return _asked_of(random, number, form, question, values, "integer", int(values[slot]))


def _asked_of(
    random: Random, number: int, form: str, question: str, values: dict[str, str], kind: Constraint, gold: Any
) -> Task:
    text, asked = (fill(random.choice(expand(each)), values) for each in (form, question))
    return Task("numbers", number, _laid_out(random, text, asked), kind, None, gold)


def _tool(random: Random, number: int) -> Task:
    table = random.choice(TABLES["tools"])
    values = _values(random)
    request = fill(random.choice(expand(random.choice(table["forms"]))), values)
    several = [table, *random.sample([each for each in TABLES["tools"] if each is not table], random.randrange(1, 3))]
    random.shuffle(several)
    gold = {"name": table["name"], "arguments": {}}
    for name, (slot, kind) in table["arguments"].items():
        gold["arguments"][name] = int(values[slot]) if kind == "integer" else values[slot]
    schema = {"anyOf": [_call(each) for each in several]}
    signatures = "\n".join(
        f"{each['name']}({', '.join(f'{name}: {kind}' for name, (_, kind) in each['arguments'].items())})"
        for each in several
    )
    asked = _asked(random, "tool").replace("{request}", request)
    prompt = (
        f"You can call these tools:\n{signatures}\n\n{asked}\n"
        'Answer with JSON: {"name": the tool, "arguments": {its arguments}}'
    )
    return Task("tools", number, prompt, "json", schema, gold)


def _call(table: dict[str, Any]) -> dict[str, Any]:
    arguments = {name: {"type": kind} for name, (_, kind) in table["arguments"].items()}
    inner = {"type": "object", "properties": arguments, "required": list(arguments), "additionalProperties": False}
    outer = {"name": {"const": table["name"]}, "arguments": inner}
    return {"type": "object", "properties": outer, "required": list(outer), "additionalProperties": False}


def _label(random: Random, number: int) -> Task:
    table = random.choice(TABLES["labels"])
    gold = random.choice(sorted(table["texts"]))
    text = random.choice(table["texts"][gold])
    options = list(table["options"])
    random.shuffle(options)
    asked = _asked(random, "label").replace("{options}", ", ".join(options))
    return Task("labels", number, _laid_out(random, f'"{text}"', asked), "choice", options, gold)


def _ordering(random: Random, number: int) -> Task:
    table = random.choice(TABLES["orders"])
    gold = random.choice(table["rows"])
    items = list(gold)
    while items == gold:
        random.shuffle(items)
    listed = ", ".join(items[:-1]) + random.choice((", ", " and ")) + items[-1]
    asked = _asked(random, "order").replace("{rule}", table["rule"]).replace("{items}", listed)
    schema = {"type": "array", "items": {"enum": items}, "minItems": len(items), "maxItems": len(items)}
    return Task("ordering", number, f"{asked} Answer with a JSON list.", "json", schema | {"uniqueItems": True}, gold)


def _problem(random: Random, number: int) -> Task:
    form, rule = random.choice(TABLES["problems"]["forms"])
    a, b, c = (random.randrange(2, 13) for _ in range(3))
    numbers = {"a": a, "b": b, "c": c, "d": b + random.randrange(2, 30), "p": a * random.randrange(2, 10)}
    values = {name: str(value) for name, value in numbers.items()} | {
        "name": random.choice(TABLES["problems"]["names"])
    }
    parts = rule.split()
    gold = _number_of(parts[0], numbers)
    for sign, part in zip(parts[1::2], parts[2::2], strict=True):
        gold = _SIGNS[sign](gold, _number_of(part, numbers))
    asked = random.choice(("{it}", "{it} Think step by step.", "Solve this: {it}", "{it} Give the number."))
    return Task("problems", number, asked.replace("{it}", fill(form, values)), "integer", None, gold)


def _number_of(part: str, numbers: dict[str, int]) -> int:
    return numbers[part] if part in numbers else int(part)


_SIGNS: dict[str, Callable[[int, int], int]] = {
    "+": int.__add__,
    "-": int.__sub__,
    "*": int.__mul__,
    "//": int.__floordiv__,
}


def _told(random: Random) -> tuple[dict[str, Any], str, dict[str, str]]:
    """A table of records, a sentence of it, and what stands in the places."""
    table = random.choice(TABLES["records"])
    form = random.choice(expand(random.choice(table["forms"])))
    values = _values(random)
    told = {slot: values[slot] for slot in slots_of(form)}
    return table, fill(form, values), told


def _values(random: Random) -> dict[str, str]:
    """A text for every place."""
    values = {name: random.choice(several) for name, several in NAMES.items()}
    for name in ("person", "city", "currency"):
        values[name], values[f"{name}2"] = random.sample(NAMES[name], 2)
    hour = f"{random.randrange(8, 20)}:{random.choice(('00', '15', '30', '45'))}"
    values |= {
        "year": str(random.randrange(1870, 2024)),
        "hour": hour,
        "message": random.choice(TABLES["messages"]["texts"]),
    }
    return values | {"count": str(random.randrange(2, 13)), "price": str(random.randrange(15, 900))}


def _typed(kind: str, slot: str, values: dict[str, str]) -> tuple[dict[str, Any], Any]:
    """The schema of a field, and its value."""
    if kind == "integer":
        return {"type": "integer"}, int(values[slot])
    if kind == "people":
        return {"type": "array", "items": {"type": "string"}}, [values["person"], values["person2"]]
    if kind in ("weekday", "mode"):
        return {"enum": NAMES[kind]}, values[slot]
    return {"type": "string"}, values[slot]


def _asked(random: Random, kind: str) -> str:
    return random.choice(expand(TABLES["asked"][kind].replace("\n", "")))


def _laid_out(random: Random, text: str, asked: str) -> str:
    """A text and a request, in one of the orders that people write them in."""
    way = random.random()
    if way < 0.15:
        return f"{asked}\n\n{text}"
    return f"Text: {text}\n{asked}" if way < 0.3 else f"{text}\n{asked}" if way < 0.7 else f"{text}\n\n{asked}"


Maker = Callable[[Random, int], Task]
MAKERS: dict[str, Maker] = {
    "records": _record,
    "quotations": _quotation,
    "choices": _choice,
    "numbers": _number,
    "tools": _tool,
    "labels": _label,
    "ordering": _ordering,
    "problems": _problem,
}
KINDS: Sequence[str] = tuple(MAKERS)
