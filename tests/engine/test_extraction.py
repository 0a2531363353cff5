"""Extraction: answers with their places, several of them, and the place that was meant."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from trellm import LanguageError, OptionError, Sample, Span, Vocabulary, generate, models

# The report of "Extractive generation" (a blog, 2023), with its question.
REPORT = """
CT scan of the chest revealed the presence of multiple pulmonary nodules in the
upper and middle lobes of both lungs. Nodules are of varying sizes,
with the largest measuring approximately 4 mm.
Further evaluation and follow-up recommended to assess for any potential changes over
time.
"""
QUESTION = f"{REPORT}\nwhat is the location of the lung nodules\n"


def wants(*answers: str) -> Any:
    """A model over bytes that goes on with whichever answer it has most of, and then wants to end."""
    wanted = [[*answer.encode(), 256] for answer in answers]

    def logits(ids: Sequence[int]) -> Any:
        values = np.cos(np.arange(257.0) * (1 + len(ids)))
        for answer in wanted:
            begun = max(n for n in range(len(answer)) if list(ids[len(ids) - n :]) == answer[:n])
            values[answer[begun]] += 6 + begun
        return values

    return models.from_function(logits, Vocabulary.from_bytes())


def test_the_report() -> None:
    answer = generate.extract(wants("upper and middle lobes of both lungs"), REPORT)(QUESTION)
    assert answer == Span("upper and middle lobes of both lungs", 81, 117, 0, ((0, 81, 117),))
    assert REPORT[answer.start : answer.end] == answer.text


def test_what_the_model_would_rather_say_is_not_said() -> None:
    model = wants("The nodules are located in the upper lobes")
    result = generate.extract(model, REPORT).run(QUESTION, max_tokens=40)
    assert result.value is not None and result.text == result.value.text and result.text in REPORT


def test_a_line_break_as_a_space() -> None:
    model = wants("in the upper and middle lobes")
    answer = generate.extract(model, REPORT, whitespace="collapsed").run(QUESTION)
    assert answer.text.startswith("in the upper and middle lobes") and "in the\nupper" in answer.value.text
    assert REPORT[answer.value.start : answer.value.end] == answer.value.text


@pytest.mark.parametrize("options", [{}, {"boundary": "character"}, {"min_chars": 9, "max_chars": 30}])
def test_samples_are_distinct_spans(options: dict[str, Any]) -> None:
    documents = ["ab ab 4 mm", REPORT, "upper lobe"]
    generator = generate.extract(wants("lobes", "4 mm"), documents, **options)
    for spans in generator(["of ", "the lungs "], search=Sample(temperature=3.0, n=4), seed=1, max_tokens=60):
        assert 2 <= len(spans) <= 4 and len({span.text for span in spans}) == len(spans)
        for span in spans:
            assert documents[span.document][span.start : span.end] == span.text
            for number, start, end in span.occurrences:
                assert documents[number][start:end] == span.text
    again = generator(["of ", "the lungs "], search=Sample(temperature=3.0, n=4), seed=1, max_tokens=60)
    assert again == generator(["of ", "the lungs "], search=Sample(temperature=3.0, n=4), seed=1, max_tokens=60)


def test_few_possible_samples_are_all_there_are() -> None:
    generator = generate.extract(wants("cd"), "ab cd", none_text="no", max_chars=2)
    values = generator("x", search=Sample(temperature=5.0, n=6), seed=3)
    assert {value and value.text for value in values} == {"ab", "cd", None} and len(values) == 3


def test_several_spans() -> None:
    model = wants("upper and middle lobes of both lungs")
    options: dict[str, Any] = {"min_chars": 4, "max_chars": 40}
    spans = generate.extract(model, REPORT, spans=3, **options)(QUESTION, max_tokens=60)
    assert len(spans) == 3 and spans[0].start < spans[1].start < spans[2].start
    assert all(one.end <= other.start for one, other in pairwise(spans))
    assert all(REPORT[span.start : span.end] == span.text for span in spans)
    results = generate.extract(model, REPORT, spans=3, order="score", **options).run([QUESTION, "The "], logprobs=True)
    for found in results:
        scores = [sum(result.raw_logprobs) for result in found]
        assert len(found) == 3 and scores == sorted(scores, reverse=True)
    plain = generate.extract(model, REPORT, spans=3, order="score", **options).run(QUESTION)
    assert [result.value for result in plain] == [result.value for result in results[0]]
    assert all(result.logprobs is None and result.score is None for result in plain)


def test_spans_end_where_nothing_is_left() -> None:
    spans = generate.extract(wants("cd"), "ab cd ab", spans=9, max_chars=2)("x")
    assert [(span.text, span.start) for span in spans] == [("ab", 0), ("cd", 3)]
    assert spans[0].occurrences == ((0, 0, 2), (0, 6, 8))


def test_spans_end_with_the_refusal() -> None:
    model = wants("none of it")
    assert generate.extract(model, "4 mm", none_text="none of it", spans=3)("what? ") == []
    assert generate.extract(model, "4 mm", none_text="none of it")("what? ") is None
    assert generate.extract(model, "4 mm, none of it", none_text="none of it")("what? ") is None


def test_the_place_that_the_question_speaks_of() -> None:
    document = "The nodule in the lung is 4 mm wide." + " Nothing else is seen." * 9 + " A cyst of 4 mm lies below."
    first, second = document.find("4 mm"), document.rfind("4 mm")
    generator = generate.extract(wants("4 mm"), ["none", document], min_chars=4, max_chars=4)
    for question, start in [
        ("How wide is the nodule?", first),
        ("How large is the cyst?", second),
        (f"{document}\nHow large is the cyst?", second),
        ("How much?", first),
    ]:
        span = generator(question)
        assert (span.document, span.start) == (1, start)
        assert span.occurrences == ((1, first, first + 4), (1, second, second + 4))


def test_extraction_runs_with_other_generators() -> None:
    model = wants("upper and middle lobes of both lungs")
    quoting, free = generate.extract(model, REPORT), generate.regex(model, "[0-9]{2}")
    first, second = generate.batch([(quoting, QUESTION), (free, "It is ")], max_tokens=50)
    assert first.text in REPORT and len(second) == 2
    assert "".join(quoting.stream(QUESTION)) == quoting(QUESTION).text


def test_mistakes() -> None:
    model = wants("lobes", "4 mm")
    with pytest.raises(OptionError, match="spans=0: a whole number of at least 1"):
        generate.extract(model, REPORT, spans=0)
    with pytest.raises(OptionError, match="order='page': one of 'document', 'score'"):
        generate.extract(model, REPORT, order="page")  # type: ignore[arg-type]
    with pytest.raises(LanguageError, match="the context is empty"):
        generate.extract(model, "")
    several = generate.extract(model, REPORT, spans=2)
    with pytest.raises(OptionError, match="both ask for several texts"):
        several("x", search=Sample(n=2))
    with pytest.raises(OptionError, match="spans=2 needs several runs"):
        several.stream("x")
    with pytest.raises(OptionError, match="spans=2 needs several runs"):
        generate.batch([(several, "x")])
