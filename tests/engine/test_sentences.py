"""`frame="sentence"`: the model answers in a sentence, and the value is what that names."""

from __future__ import annotations

import datetime
import pickle
import re
from typing import Any

import pytest
from trellm import Beam, Engine, OptionError, Sample, Vocabulary, generate, models
from trellm.guides import ChoiceGuide, RegexGuide

from .support import Sentence, format_of
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
        "The answer is [0-9]{1,4}": "The answer is 7",
        "[A-Za-z ]{1,65}": "The answer is short",
        "[0-9]*": "12",
    }.items():
        result = generate.regex(answering(said), pattern).run(CHAT)
        assert (result.text, result.thought) == (said, None)
    short = generate.regex(answering('The answer is "Tokyo". It is'), "[A-Za-z ]{1,64}").run(CHAT)
    assert short.text == "Tokyo", "a fragment, though a sentence would match"


@pytest.mark.parametrize(
    ("kind", "said", "value"),
    [
        (int, "So the answer is 18 euros.", 18),
        (float, "So the answer is $1.5 million.", 1.5e6),
        (datetime.date, "So the answer is 2 February 1871.", datetime.date(1871, 2, 2)),
        ({"type": "integer", "title": "Count"}, "So the answer is 7.", 7),
        ({"type": "string", "format": "date"}, "So the answer is 2 May 1871.", "1871-05-02"),
    ],
    ids=str,
)
def test_single_values_as_json(kind: Any, said: str, value: Any) -> None:
    result = generate.json(answering(said), kind).run(CHAT)
    assert result.value == value and result.thought is not None
    alone = generate.json(answering(result.text), kind, frame=None).run(CHAT)
    assert (alone.value, alone.text, alone.thought) == (value, result.text, None)
    bounded = generate.json(answering("7"), {"type": "integer", "minimum": 7}).run(CHAT)
    assert (bounded.value, bounded.thought) == (7, None), "a schema that asks for more has its answer alone"


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (int, {"\u22129": "-9", "minus 18": "-18", "-$3,200": "-3200", "1.5 million": "1500000", "x-5": "5",
               "2 thousand": "2000", "negative 4": "-4"}),
        (float, {".5 km": "0.5", "\u22120.5": "-0.5", "-$4.50": "-4.50", "$300 million": "300000000",
                 "12,345.67": "12345.67", "1.32e5": "1.32e5"}),
        (bool, {"YES": "True", "no": "False"}),
        (datetime.date, {"14.03.2015": "2015-03-14", "23 Oct 2001": "2001-10-23", "Mar. 8, 1954": "1954-03-08",
                         "8-Mar-1954": "1954-03-08", "2015/03/14": "2015-03-14", "MARCH 8, 1954": "1954-03-08",
                         "29 February 2021": "", "31.04.2021": "", "12/11/2023": "", "Sept. 3, 1988": "1988-09-03"}),
        (datetime.time, {"3 pm": "15:00:00", "3PM": "15:00:00", "noon": "12:00:00", "12 a.m.": "00:00:00",
                         "8:30 in the evening": "20:30:00", "12:05 in the morning": "00:05:00", "18:15": "18:15:00"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)  # fmt: skip
def test_what_people_write_is_named_and_what_could_be_two_things_is_not(kind: Any, texts: dict[str, str]) -> None:
    """12/11/2023 is a day in November or in December."""
    format, vocabulary = format_of(kind), Vocabulary.from_bytes()
    answers: Any = RegexGuide(format.pattern, vocabulary) if format.pattern else ChoiceGuide(format.choices, vocabulary)
    sentence = Sentence(answers, format.natural)
    assert {text: sentence.split(f" it is {text}.")[1] for text in texts} == texts


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
    assert (
        generate.json(answering("[false]"), {"items": {"type": "boolean"}, "type": "array"}).run(CHAT).text == "[false]"
    )
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
        with pytest.raises(OptionError, match='frame="sentence" needs a choice'):
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
    with pytest.raises(OptionError, match='frame="reasoning" needs a choice'):
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
