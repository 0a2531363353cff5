"""Answers out of free text, by the best parser that one can write, and how much of an answer is right."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any, cast

from trellm.engine.formats import format_of

from .tasks import Task

_NUMBER = re.compile(r"(?<![\w.])-?\d{1,3}(?:,\d{3})+|-?\d+")
_WORDS = re.compile(r"\w+")
_MARKS = " .,;:!?\"'`*()[]"
_ARTICLES = ("the ", "a ", "an ")
_BEFORE = ("in ", "on ", "at ", "by ", "from ", "to ", "for ", "since ")


def plain(value: Any) -> Any:
    """A value for comparing: texts in small letters, without blanks, marks and an article around them."""
    if isinstance(value, str):
        text = " ".join(value.casefold().split()).strip(_MARKS)
        return next((text.removeprefix(article) for article in _ARTICLES if text.startswith(article)), text).strip(
            _MARKS
        )
    if isinstance(value, list):
        return [plain(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in cast("dict[str, Any]", value).items()}
    return value


def score(task: Task, answer: Any) -> float:
    """How much is right: of records the part of the fields, of everything else all or nothing."""
    if task.kind == "quotations":
        return float(_said(answer) in {_said(gold) for gold in task.gold})
    if task.kind != "records":
        return float(plain(answer) == plain(task.gold))
    given = cast("dict[str, Any]", answer) if isinstance(answer, dict) else {}
    return sum(plain(given.get(name)) == plain(value) for name, value in task.gold.items()) / len(task.gold)


def _said(text: Any) -> str:
    """A quotation without what may stand before it as well: "in 1932" says what "1932" does."""
    said = str(plain(text or ""))
    return str(plain(next((said.removeprefix(word) for word in _BEFORE if said.startswith(word)), said)))


def parsed(task: Task, text: str) -> Any:
    """The answer that a free text gives, None for none."""
    return _PARSERS[task.kind](task, text)


def _record(task: Task, text: str) -> Any:
    """The first JSON object, names of fields compared loosely; or lines of `name: value`."""
    found = _json(text, "{")
    if not isinstance(found, dict):
        pairs = re.findall(r"^\W*([A-Za-z_ ]+?)\W*:\s*(.+?)\s*$", text, re.M)
        found = {name: value.strip(' "*,') for name, value in pairs}
    named = {_name(name): value for name, value in cast("dict[str, Any]", found).items()}
    answer = {name: named.get(_name(name)) for name in task.gold}
    return {
        name: int(value) if isinstance(task.gold[name], int) and re.fullmatch(r"\d+", str(value)) else value
        for name, value in answer.items()
    }


def _name(name: str) -> str:
    """A name of a field as whatever spelling of it."""
    return re.sub(r"[\W_]", "", name).casefold()


def _call(task: Task, text: str) -> Any:
    found = _json(text, "{")
    if not isinstance(found, dict):
        return None
    call = cast("dict[str, Any]", found)
    given: Any = call.get("arguments")
    if isinstance(given, dict):
        arguments = cast("dict[str, Any]", given)
        amount = arguments.get("amount", arguments.get("people"))
        if isinstance(amount, str) and amount.isdecimal():
            arguments |= {name: int(amount) for name in ("amount", "people") if name in arguments}
    return call


def _json(text: str, opening: str) -> Any:
    """The first value of JSON that begins with a bracket."""
    decoder = json.JSONDecoder()
    for place in (match.start() for match in re.finditer(re.escape(opening), text)):
        try:
            return decoder.raw_decode(text, place)[0]
        except ValueError:
            continue
    return None


def _quotation(task: Task, text: str) -> Any:
    """What stands in quotation marks and in the document, or the most words of it that the question does not have."""
    document: str = task.argument
    for marked in re.findall(r'"([^"]+)"|\*\*(.+?)\*\*', text):
        inner = "".join(marked).strip(" .,")
        if inner and inner in document and inner != document.strip(" ."):
            return inner
    if text.strip() in document:
        return text.strip()
    question = task.prompt.replace(document, " ").casefold()
    best = ""
    words = list(_WORDS.finditer(text))
    for first in range(len(words)):
        for last in range(len(words) - 1, first - 1, -1):
            span = text[words[first].start() : words[last].end()]
            if len(span) <= len(best):
                break
            if span in document and span.casefold() not in question and not _is_asked(span, question):
                best = span
                break
    return best or None


def _is_asked(span: str, question: str) -> bool:
    return all(word.casefold() in question for word in _WORDS.findall(span))


def _choice(task: Task, text: str) -> Any:
    """The option that is named first, in whatever case; a letter only where it stands alone."""
    options: list[str] = task.argument
    flags = 0 if all(len(option) == 1 for option in options) else re.I
    places = {option: re.search(rf"(?<!\w){re.escape(option)}(?!\w)", text, flags) for option in options}
    named = [(match.start(), -len(option), option) for option, match in places.items() if match]
    return min(named)[2] if named else None


def _number(task: Task, text: str) -> Any:
    """The first number that the question does not have; of dates the first in ISO 8601 or in words."""
    if task.constraint == "date":
        return _date(text)
    asked = set(_NUMBER.findall(task.prompt.partition("?")[0].rpartition(".")[2]))
    found = [number for number in _NUMBER.findall(text) if number not in asked]
    return int(found[0].replace(",", "")) if found else None


def _date(text: str) -> Any:
    natural = format_of(datetime.date).natural
    assert natural is not None
    match = re.search(natural.pattern, text)
    return None if match is None else natural.written(match[0])


def _last_number(task: Task, text: str) -> Any:
    found = _NUMBER.findall(text)
    return int(found[-1].replace(",", "")) if found else None


def _ordering(task: Task, text: str) -> Any:
    """A JSON list; or the items in the order in which they are named first."""
    found = _json(text, "[")
    if isinstance(found, list):
        return [str(each) for each in cast("list[Any]", found)]
    items: list[str] = task.argument["items"]["enum"]
    places = {item: re.search(rf"(?<!\w){re.escape(item)}(?!\w)", text, re.I) for item in items}
    if not all(places.values()):
        return None
    return sorted(items, key=lambda item: match.start() if (match := places[item]) else 0)


_PARSERS: dict[str, Any] = {
    "records": _record,
    "quotations": _quotation,
    "choices": _choice,
    "numbers": _number,
    "tools": _call,
    "labels": _choice,
    "ordering": _ordering,
    "problems": _last_number,
}
