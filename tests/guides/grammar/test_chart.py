"""The automaton of a grammar against the reference recogniser: the same texts, the same prefixes."""

from random import Random

import pytest
from hypothesis import assume, given, settings
from trellm.errors import LanguageError
from trellm.guides.grammar import Grammar, parse_lark

from ..chart.naive_grammar import accepts, viable
from ..support import automaton_of
from .documentation import NAMES, load
from .sampling import sample
from .test_lark_language import TEXTS, grammars


def assert_agree(grammar: Grammar, texts: list[bytes]) -> None:
    automaton = automaton_of(grammar)
    for text in texts:
        state = automaton.start
        for byte in text:
            state = automaton.step(state, byte) if state >= 0 else state
        assert (state >= 0) == viable(grammar, text), text
        assert (state >= 0 and automaton.is_accepting(state)) == accepts(grammar, text), text


@settings(max_examples=30, derandomize=True, deadline=None)
@given(grammars())
def test_generated_grammars(text: str) -> None:
    try:
        grammar = parse_lark(text)
    except LanguageError:
        assume(False)
    assert_agree(grammar, [text.encode() for text in TEXTS])


@pytest.mark.parametrize("name", NAMES)
def test_documented_grammars(name: str) -> None:
    grammar = parse_lark(load(name))
    random = Random(name)
    texts: list[bytes] = []
    for budget in range(3, 60, 6):
        text = bytearray(sample(grammar, random, budget)[:150])
        texts.append(bytes(text))
        if text:
            text[random.randrange(len(text))] = random.choice(text)
            texts.append(bytes(text))
    assert_agree(grammar, texts)
