"""`frame="sentence"`: the model answers in a sentence, and the value is what that names."""

from __future__ import annotations

import datetime
import pickle
import re
from typing import Any

import pytest
from trellm import Beam, Engine, OptionError, Sample, Vocabulary, generate, models
from trellm.engine.formats import format_of

from .test_frames import CHAT, VOCABULARY, answering


@pytest.mark.parametrize(
    "said, choices, value",
    [
        ("So the answer is yes, it is.", ["yes", "no"], "yes"),
        ("So the answer is: No.", ["yes", "no"], "no"),
        ("So the answer is surely Very Good", {"good": 1, "very good": 2}, 1),
        ("So the answer is very good.", {"good": 1, "very good": 2}, 2),
        ("So the answer is that it is new york", ["York", "New York"], "New York"),
        ("So the answer is in Yorkshire, no, in York", ["York", "Oslo"], "York"),
        ("So the answer is US, not us.", ["us", "US"], "US"),
    ],
)
def test_choices(said: str, choices: Any, value: Any) -> None:
    model = answering(said)
    make = generate.choice(model, choices)
    result = make.run(CHAT)
    assert result.value == value
    assert result.text in choices
    assert result.finish_reason == "complete"
    assert said.lower().startswith(f"So the answer is{result.thought}{result.text}".lower())
    assert VOCABULARY.decode(result.token_ids).decode() in said.removeprefix("So the answer is")
    assert "".join(make.stream(CHAT)) == result.text
    assert pickle.loads(pickle.dumps(result)).thought == result.thought


@pytest.mark.parametrize(
    "kind, said, value",
    [
        (int, "So the answer is about 1,250 people.", 1250),
        (int, "So the answer is -5.", -5),
        (float, "So the answer is 1,250.5 m", 1250.5),
        (bool, "So the answer is Yes, it is", True),
        (datetime.date, "So the answer is March 5, 2011.", datetime.date(2011, 3, 5)),
        (datetime.date, "So the answer is the 29th of February 2012.", datetime.date(2012, 2, 29)),
        (datetime.date, "So the answer is 2011-03-05.", datetime.date(2011, 3, 5)),
        (datetime.time, "So the answer is 2:30 PM.", datetime.time(14, 30)),
        (datetime.time, "So the answer is at 14:30 or so", datetime.time(14, 30)),
    ],
)
def test_formats_are_written_as_people_do(kind: Any, said: str, value: Any) -> None:
    result = generate.format(answering(said), kind).run(CHAT)
    assert result.value == value
    assert result.text == (value.isoformat() if hasattr(value, "isoformat") else str(value))


@pytest.mark.parametrize("kind", [int, float, bool, datetime.date, datetime.time])
def test_each_natural_text_is_one_of_the_format(kind: Any) -> None:
    """Texts of the pattern, drawn at random: each is written as one that the format has, and a value."""
    written = format_of(kind)
    assert written.natural is not None
    model = models.from_function(lambda ids: [0.0] * 257, Vocabulary.from_bytes())
    texts = generate.regex(model, written.natural.pattern, frame=None)("a", search=Sample(n=200), seed=5)
    assert len(set(texts)) > 1
    for text in texts:
        plain = written.natural.written(text)
        assert re.fullmatch(written.pattern or "True|False", plain), text
        written.convert(plain)


def test_patterns() -> None:
    """By default those of one word with a digit stand in a sentence, others of one line in quotation marks."""
    year = generate.regex(answering("So the answer is that it was in 1931."), "[0-9]{4}").run(CHAT)
    assert (year.value, year.thought) == ("1931", " that it was in ")
    name = generate.regex(answering('The answer is "Ann Lee". Who'), "[A-Z][a-z]+ [A-Z][a-z]+").run(CHAT)
    assert (name.value, name.thought) == ("Ann Lee", None)
    bold = generate.regex(answering("The answer is **say** it"), '"?say"?').run(CHAT)
    assert bold.value == "say"
    for pattern, said in {
        ".*": "anything",
        "- [a-z]+\n- [a-z]+": "- a\n- b",
        "The answer is [0-9]+": "The answer is 7",
        "[0-9]*": "12",
    }.items():
        result = generate.regex(answering(said), pattern).run(CHAT)
        assert (result.text, result.thought) == (said, None)


def test_where_answers_stand_alone() -> None:
    model = answering("no")
    make = generate.choice(model, ["yes", "no"])
    assert make.run("Is it?").thought is None, "a text that goes on is no chat"
    assert make.run([1, 2, 3]).thought is None
    assert generate.choice(model, ["yes", "no"], frame=None).run(CHAT).thought is None
    assert generate.choice(answering("no", bare=True), ["yes", "no"]).run(CHAT).thought is None
    assert generate.choice(answering("B"), ["A", "B"]).run(CHAT).thought is None, "A is an article as well"
    assert generate.choice(answering(" no"), [" yes", " no"]).run(CHAT).thought is None
    assert generate.choice(answering("?"), ["?", "!"]).run(CHAT).thought is None
    assert generate.choice(model, ["yes", "no"]).run(CHAT, include="n").thought is None
    assert generate.json(answering("false"), {"type": "boolean"}).run(CHAT).text == "false"
    assert generate.choice(answering("Hm.</t>no"), ["yes", "no"], after="</t>").run(CHAT).thought == "Hm."


def test_when_it_is_asked_for() -> None:
    make = generate.choice(answering("So the answer is really no."), ["yes", "no"], frame="sentence")
    result = make.run("Is it? ")
    assert (result.text, result.thought) == ("no", " really ")
    thinking = generate.choice(
        answering("Hm.</t>So it is no, I think"), ["yes", "no"], after="</t>", frame="sentence"
    ).run(CHAT)
    assert (thinking.value, thinking.thought) == ("no", "Hm.")
    for wrong in (
        lambda: generate.json(answering("1"), True, frame="sentence"),
        lambda: generate.text(answering("1"), frame="sentence"),
    ):
        with pytest.raises(OptionError, match='frame="sentence" is for choices'):
            wrong()
    with pytest.raises(OptionError, match="the empty text"):
        generate.regex(answering("1"), "[0-9]*", frame="sentence")
    with pytest.raises(OptionError, match='"sentence", "reasoning", "auto" or None'):
        generate.choice(answering("1"), ["a", "b"], frame="sentences")  # type: ignore[arg-type]


def test_reasoning() -> None:
    """The last answer of a free text, which may have several lines, counts."""
    said = "There are 3 boxes with 1,250 pens.\n3 x 1,250 = 3,750 pens.\n\nThat is all."
    result = generate.format(answering(said), int, frame="reasoning").run(CHAT)
    assert (result.value, result.text, result.finish_reason) == (3750, "3750", "complete")
    assert result.thought == said.partition("3,750")[0]
    assert generate.choice(answering("No... or yes? No"), ["yes", "no"], frame="reasoning").run(CHAT).text == "no"
    assert generate.choice(answering("yes, not no. Notes"), ["yes", "no"], frame="reasoning")("Is it? ") == "no"
    endless = answering("well\n" * 400)
    result = generate.choice(endless, ["yes", "no"], frame="reasoning").run(CHAT)
    assert result.value in ("yes", "no") and 250 < len(result.token_ids) < 265
    assert generate.choice(endless, ["yes", "no"], frame="reasoning")(CHAT, max_tokens=3) in ("yes", "no")
    talkative = generate.choice(answering("yes " + "well\n" * 400), ["yes", "no"], frame="reasoning")
    assert talkative.run(CHAT).value == "yes", "what is cut off at its budget has its answer"
    with pytest.raises(OptionError, match='frame="reasoning" is for choices'):
        generate.json(answering("1"), True, frame="reasoning")


def test_budgets() -> None:
    """A sentence that does not come to its point is led there in time."""
    model = answering("So the answer is " + "well, " * 100)
    make = generate.choice(model, ["yes", "no"])
    assert make(CHAT) in ("yes", "no")
    assert len(make.run(CHAT).token_ids) < 60
    for most in (2, 3, 7, 20):
        result = make.run(CHAT, max_tokens=most)
        assert result.value in ("yes", "no") and len(result.token_ids) <= most


def test_searches_and_batches() -> None:
    model = answering("So the answer is maybe no, but who knows")
    make = generate.choice(model, ["yes", "no"])
    assert make(CHAT, search=Beam(3)) == "no"
    assert make(CHAT, search=Sample(0.1, n=2), seed=1) == ["no", "no"]
    assert generate.batch([(make, CHAT), (generate.choice(model, ["yes", "no"], frame=None), "Is it?")])[0] == "no"
    assert [each.value for _, each in make.iter([CHAT, CHAT])] == ["no", "no"]
    with Engine(model) as engine:
        assert engine.submit(make, CHAT).result().value == "no"
    logged = make.run(CHAT, logprobs=2)
    assert logged.logprobs is not None and len(logged.logprobs) == len(logged.token_ids)
