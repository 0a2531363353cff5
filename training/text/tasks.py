"""Tasks on scenes: what is asked, the answer, and the constraint under which it may be given."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from . import tools
from .forms import is_held_out, side, slots_of
from .scenes import DOMAINS, MOODS, Scene, distractor, draw, questions
from .schemas import described, field_name, record
from .values import Value, make
from .words import ASKED

DATE, TIME, NUMBER = r"\d{4}-\d{2}-\d{2}", r"\d{2}:\d{2}", r"\d{1,6}(\.\d{2})?"


@dataclass(slots=True)
class Task:
    """A request about a passage (or about nothing, where that is empty), and its answer.

    constraint: how `generate` is called, a name with its argument: json, extract, sentence, choice, regex, words, text
    value: the answer as that gives it
    """

    kind: str
    passage: str
    request: str
    answer: str
    constraint: tuple[str, Any]
    value: Any
    thought: str = ""
    tools: list[dict[str, Any]] | None = None
    leads: tuple[str, ...] = ("Answer:\n", "Answer: ", "\n", "Result:\n", "Output: ")


def record_task(random: Random, scene: Scene, held_out: bool, unseen: bool = False) -> Task:
    """A record of the passage as JSON."""
    schema, value = record(random, scene, unseen)
    shown, is_compact = described(random, schema)
    request = _asked(random, "record", held_out)
    if scene.second is not None and not any(isinstance(inner, list) for inner in value.values()):
        request += f" It is about {scene.key.text}."
    written = json.dumps(value, separators=(",", ":") if is_compact else None)
    text = f"{request}\n{shown}" if random.random() < 0.7 else f"{shown}\n{request}"
    kind = "record, unseen fields" if unseen else "record"
    return Task(
        kind, scene.passage, text, written, ("json", schema), value, leads=("JSON:\n", "\n", "JSON: ", "Answer:\n")
    )


def quotation_task(random: Random, scene: Scene, held_out: bool) -> Task:
    """A quotation that answers a question: a few words, or a sentence."""
    slot = _slot(random, scene, ("flag",))
    question = _question(random, scene, slot, held_out)
    if random.random() < 0.2:
        request = f"{_asked(random, 'sentence', held_out)} {question}"
        return Task(
            "quotation", scene.passage, request, scene.places[slot], ("sentence", scene.passage), scene.places[slot]
        )
    text = scene.values[slot].text
    request = f"{question}{_asked(random, 'quotation', held_out)}"
    return Task("quotation", scene.passage, request, text, ("extract", scene.passage), text)


def choice_task(random: Random, scene: Scene, held_out: bool) -> Task:
    """One of several: a mood, a topic, yes or no, a name."""
    if scene.mood is not None and random.random() < 0.4:
        return _mood(random, scene, held_out)
    # To compare a name with all that a passage says takes the most practice.
    return random.choice((_yes_or_no, _yes_or_no, _yes_or_no, _topic, _name))(random, scene, held_out)


def normal_task(random: Random, scene: Scene | None, held_out: bool) -> Task:
    """A date, time or number in its normal form, alone or out of a passage."""
    if scene is not None:
        fitting = [slot for slot, value in scene.values.items() if value.kind in _NORMAL]
        if fitting:
            slot = random.choice(fitting)
            value = scene.values[slot]
            request = (
                f"{_question(random, scene, slot, held_out)} {_asked(random, 'as_' + _NORMAL[value.kind], held_out)}"
            )
            return _normal(value, scene.passage, request)
    value = make(random.choice(("date", "date", "date", "time", "time", "number", "amount", "count")), random, held_out)
    request = _asked(random, "write_" + _NORMAL[value.kind], held_out).replace("{it}", value.text)
    return _normal(value, "", request)


def tool_task(random: Random, held_out: bool) -> Task:
    """A call of one of several tools."""
    several, request, call = tools.drawn(random, held_out)
    schema = tools.call_schema(several)
    return Task("tool call", "", request, json.dumps(call), ("json", schema), call, tools=several, leads=("Call:\n",))


def words_task(random: Random, held_out: bool) -> Task:
    """A sentence that contains given words."""
    scene = draw(random, held_out)
    sentence = random.choice([*scene.sentences, distractor(random, held_out)])
    several = [word.strip(".,?") for word in sentence.split()]
    fitting = [word for word in dict.fromkeys(several) if len(word) > 3 and word.isalpha()]
    words = random.sample(fitting, min(len(fitting), random.randrange(1, 4)))
    request = f"{_asked(random, 'words', held_out)} {', '.join(words)}"
    return Task("given words", "", request, sentence, ("words", words), words)


def sum_task(random: Random, held_out: bool) -> Task:
    """Arithmetic of two small numbers, after a thought."""
    while True:
        first, second, sign = random.randrange(100), random.randrange(100), random.choice("++--*")
        if sign == "*":
            first, second = first % 13, second % 13
        if sign == "-" and first < second:
            first, second = second, first
        if is_held_out(f"{first}{sign}{second}") == held_out:
            break
    result = {"+": first + second, "-": first - second, "*": first * second}[sign]
    shown = f"{first} {sign} {second}"
    words = {"+": ("plus", "and"), "-": ("minus", "less"), "*": ("times", "times")}[sign]
    way = random.random()
    asked = f"{first} {random.choice(words)} {second}" if way < 0.4 else shown
    request = _asked(random, "sum", held_out).replace("{it}", asked)
    return Task(
        "arithmetic",
        "",
        request,
        str(result),
        ("regex", r"\d{1,4}"),
        str(result),
        _thought(first, second, sign, result),
    )


def next_task(random: Random, scene: Scene, held_out: bool) -> Task:
    """The sentence that comes next, among sentences of other passages."""
    if len(scene.sentences) < 2:
        return quotation_task(random, scene, held_out)
    cut = random.randrange(1, len(scene.sentences))
    right = scene.sentences[cut]
    others = [random.choice(draw(random, held_out).sentences) for _ in range(3)]
    options = list(dict.fromkeys([right, *others]))
    random.shuffle(options)
    passage = " ".join(scene.sentences[:cut])
    return Task("next sentence", passage, _asked(random, "next", held_out), right, ("choice", options), right)


_NORMAL = {"date": "date", "time": "time", "number": "number", "count": "number", "year": "number", "amount": "number"}


def _asked(random: Random, kind: str, held_out: bool) -> str:
    return random.choice(side(ASKED[kind], held_out))


def _slot(random: Random, scene: Scene, but: tuple[str, ...]) -> str:
    """A slot that the passage tells of, not of these kinds."""
    return random.choice([slot for slot, value in scene.values.items() if value.kind not in but])


def _question(random: Random, scene: Scene, slot: str, held_out: bool) -> str:
    """A question for a slot; with the key where the passage tells of two."""
    domain = scene.domain
    fitting = [text for text in questions(domain.name, slot, held_out) if _is_answerable(text, scene, slot)]
    if fitting and random.random() < 0.75:
        text = random.choice(fitting)
        for name, value in scene.texts.items():
            text = text.replace(f"{{{name}}}", value)
    else:
        name = field_name(random, domain, slot, held_out)
        text = random.choice(("What is the {}?", "The {}?", "Give the {}.", "Tell me the {}.", "Which {}?")).format(
            name
        )
    if scene.second is not None and scene.key.text not in text:
        text = f"About {scene.key.text}: {text}" if slot != domain.key else text
    return text


def _is_answerable(text: str, scene: Scene, slot: str) -> bool:
    """Whether a question has only what the passage tells, and not its own answer."""
    return slots_of(text) <= scene.values.keys() - {slot}


def _chosen(
    random: Random,
    scene: Scene,
    question: str,
    options: list[str],
    right: str,
    held_out: bool,
    passage: str | None = None,
) -> Task:
    options = list(dict.fromkeys([right, *options]))
    random.shuffle(options)
    request = f"{question} {_asked(random, 'choose', held_out)} {', '.join(options)}."
    return Task("choice", scene.passage if passage is None else passage, request, right, ("choice", options), right)


def _mood(random: Random, scene: Scene, held_out: bool) -> Task:
    right = scene.mood or random.choice(MOODS)
    others = random.sample(MOODS, random.randrange(2, 6))
    return _chosen(random, scene, _asked(random, "mood", held_out), others, right, held_out)


def _topic(random: Random, scene: Scene, held_out: bool) -> Task:
    several = [domain.topic for domain in DOMAINS.values()]
    others = random.sample(several, random.randrange(2, 6))
    return _chosen(random, scene, _asked(random, "topic", held_out), others, scene.domain.topic, held_out)


def _name(random: Random, scene: Scene, held_out: bool) -> Task:
    """Which of several values it is; the others are of the same kind, from the passage or made up."""
    slot = _slot(random, scene, ("flag", "people"))
    value = scene.values[slot]
    others = [make(value.kind, random, held_out).text for _ in range(random.randrange(1, 4))]
    others += [other.text for name, other in scene.values.items() if name != slot and other.kind == value.kind]
    if scene.second is not None and slot in scene.second.values:
        others.append(scene.second.values[slot].text)
    # Two spellings of one value would both be right.
    others = [text for text in others if text.lower() != value.text.lower() and "," not in text]
    return _chosen(random, scene, _question(random, scene, slot, held_out), others, value.text, held_out)


def checks_task(random: Random, scene: Scene, held_out: bool) -> Task:
    """Several statements, each to be answered with yes or no. It is practice for `_yes_or_no`, and not evaluated."""
    lines: list[str] = []
    answers: list[str] = []
    for number in range(1, random.randrange(3, 7)):
        said, is_true = _statement(random, scene, held_out)
        lines.append(f"{number}. {said[0].upper()}{said[1:]}.")
        answers.append(f"{number}. {'yes' if is_true else 'no'}")
    request = f"{_asked(random, 'checks', held_out)}\n" + "\n".join(lines)
    answer = "\n".join(answers)
    return Task(
        "checks", scene.passage, request, answer, ("regex", r"(\d\. (yes|no)\n?)+"), answer, leads=("Answer:\n",)
    )


SCENE_TASKS: tuple[tuple[Callable[[Random, Scene, bool], Task], float], ...] = (
    (record_task, 0.26),
    (quotation_task, 0.18),
    (choice_task, 0.3),
    (checks_task, 0.12),
    (normal_task, 0.08),
    (next_task, 0.06),
)


def _yes_or_no(random: Random, scene: Scene, held_out: bool) -> Task:
    said, is_true = _statement(random, scene, held_out)
    question = _asked(random, "true", held_out).replace("{it}", said + "?")
    right, wrong = random.choice((("yes", "no"), ("yes", "no"), ("true", "false")))[:: 1 if is_true else -1]
    return _chosen(random, scene, question, [wrong], right, held_out)


def _statement(random: Random, scene: Scene, held_out: bool) -> tuple[str, bool]:
    """Something that may be said of a scene, and whether it is true."""
    # Of two scenes the key alone cannot be said to be wrong: it might be the other's.
    fitting = [
        slot
        for slot, value in scene.values.items()
        if value.kind != "people" and (scene.second is None or slot != scene.domain.key)
    ]
    if not fitting:
        return f"the topic is {scene.domain.topic}", True
    slot = random.choice(fitting)
    value, is_true = scene.values[slot], random.random() < 0.5
    name = field_name(random, scene.domain, slot, held_out)
    if value.kind == "flag":
        said, is_true = f"the answer to {name} is yes", bool(value.json)
    else:
        other = value
        while not is_true and other.json == value.json:
            other = make(value.kind, random, held_out)
        said = f"the {name} is {other.text}"
    return (said if scene.second is None else f"for {scene.key.text}, {said}"), is_true


def _normal(value: Value, passage: str, request: str) -> Task:
    kind = _NORMAL[value.kind]
    answer = str(value.json)
    if value.kind == "amount" and "." in answer:
        answer = f"{value.json:.2f}"
    pattern = {"date": DATE, "time": TIME, "number": NUMBER}[kind]
    return Task("normal form", passage, request, answer, ("regex", pattern), answer)


def _thought(first: int, second: int, sign: str, result: int) -> str:
    """The sum worked out: units, then tens; a product by adding."""
    if sign == "*":
        return (
            f"{first} times {second}: " + " ".join(str(first * turn) for turn in range(1, second + 1)) + f" so {result}"
        )
    tens, units = (first // 10, second // 10), (first % 10, second % 10)
    if sign == "+":
        low = sum(units)
        carry = low // 10
        high = sum(tens) + carry
        return f"{units[0]} + {units[1]} = {low}, carry {carry}, {tens[0]} + {tens[1]} + {carry} = {high} so {result}"
    borrow = int(units[0] < units[1])
    low = units[0] + 10 * borrow - units[1]
    return (
        f"{units[0] + 10 * borrow} - {units[1]} = {low}, borrow {borrow}, "
        f"{tens[0]} - {tens[1]} - {borrow} = {tens[0] - tens[1] - borrow} so {result}"
    )
