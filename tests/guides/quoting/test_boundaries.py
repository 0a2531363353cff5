"""Where quotations begin and end, by rule."""

import re
import unicodedata

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm.errors import OptionError

from ..support import boundaries


def pieces(text: str, rule: str) -> list[str]:
    first, last = boundaries((text,), rule)  # type: ignore[arg-type]
    return [text[begin:end] for begin, end in zip(first, last, strict=True)]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("character", "aé🙂", ["a", "é", "🙂"]),
        (
            "word",
            "the size, of Ahab's 4.5mm (x_y); 1,000.",
            ["the", "size", ",", "of", "Ahab's", "4.5mm", "(", "x_y", ")", ";", "1,000", "."],
        ),
        ("word", "'tis a.b 1.a 'a' --", ["'", "tis", "a", ".", "b", "1", ".", "a", "'", "a", "'", "-", "-"]),
        ("word", "e\u0301te\u0301 世界 カナ ひら don’t", ["e\u0301te\u0301", "世", "界", "カナ", "ひ", "ら", "don’t"]),
        ("word", "❤\ufe0f 👩\u200d🔬 👍🏽x", ["❤\ufe0f", "👩\u200d🔬", "👍🏽", "x"]),
        ("word", " \n", []),
        ("sentence", 'No. Yes! "Is it?" Dr. no.', ["No.", "Yes!", '"Is it?"', "Dr. no."]),
        ("sentence", "One 4.5 mm… Two (2.)\n\nthree\n \nfour", ["One 4.5 mm…", "Two (2.)", "three", "four"]),
        ("sentence", "世界。次！」 x", ["世界。", "次！」", "x"]),
        ("line", "  a b \r\n\n c", ["a b", "c"]),
    ],
)
def test_examples(rule: str, text: str, expected: list[str]) -> None:
    assert pieces(text, rule) == expected


WORD_PARTS = st.sampled_from([*"ab1_2'’.,-! \n", "世", "界", "é", "e\u0301", "\u0301", "ひ", "カ", "٣"])


@given(st.lists(WORD_PARTS, max_size=14).map("".join))
@settings(max_examples=300, deadline=None)
def test_words_as_a_regular_expression_would_find_them(text: str) -> None:
    marks = "".join({c for c in text if unicodedata.category(c).startswith("M")})
    letter = rf"(?:(?![世界ひ])\w[{marks}]*)" if marks else r"(?:(?![世界ひ])\w)"
    joined = rf"{letter}+(?:(?:['’]|(?<=\d)[.,](?=\d)){letter}+)*"
    assume_marks = re.sub(r"\s", " ", text)
    if marks and re.search(rf"(?:^|[^\w{marks}])[{marks}]|[世界ひ'’.,][{marks}]", assume_marks):
        return  # marks on something other than letters have an example above
    assert pieces(text, "word") == re.findall(rf"{joined}|[世界ひ][{marks}]*|\S" if marks else rf"{joined}|\S", text)


@given(st.text("ab. !?\n。\"'…)é", max_size=30))
@settings(max_examples=200, deadline=None)
def test_sentences_and_lines_leave_nothing_out(text: str) -> None:
    for rule in ("sentence", "line"):
        found = pieces(text, rule)
        assert all(piece == piece.strip() and piece for piece in found)
        assert "".join("".join(found).split()) == "".join(text.split())


@pytest.mark.parametrize("run", [" ", "\n", " \n", ".", ". ", "'", "。"])
def test_long_runs_take_no_time(run: str) -> None:
    """What is not linear in the text takes minutes here."""
    for rule in ("word", "sentence", "line"):
        first, last = boundaries((run * 100_000,), rule)
        assert np.all(first < last)


def test_an_unknown_rule() -> None:
    with pytest.raises(OptionError, match="boundary='paragraph': one of 'word', 'character', 'sentence', 'line'"):
        boundaries(("a",), "paragraph")  # type: ignore[arg-type]
