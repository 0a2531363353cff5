"""Long texts: random walks of 10,000 tokens, deep nesting, large instances, and files of the JSON test suite."""

import json
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import lark
import pytest
from trellm.guides import DEAD, CFGGuide, mask_within, tokens_of

from .documentation import NAMES, load
from .test_documented import REFERENCES
from .tokens import EOS, VOCABULARY

LENGTH = 10_000
# Within how many tokens every text can be completed: Python reads no more than 200 open brackets.
DEEPEST = 90
# Most tokens only stay in a comment or a quotation; these may lead out of it.
LEAVING = [token for token, text in enumerate(VOCABULARY.tokens) if text and text in b"\n\"')]},;"]
MOVE = r"(?:[KQRBN][a-h]?[1-8]?x?[a-h][1-8]|(?:[a-h]x)?(?:[a-h][2-7]|[a-h][18]=[QRBN])|O-O(?:-O)?)[+#]?"
TURN = rf"[1-9]\d{{0,2}}\. {MOVE}(?: \{{[^{{}}]+\}})? {MOVE}(?: \{{[^{{}}]+\}})?"
PGN = rf"(?:{TURN} )*(?:{TURN}|[1-9]\d{{0,2}}\. {MOVE}) (?:1-0|0-1|1/2-1/2|\*)"


READERS: dict[str, Callable[[str], bool]] = REFERENCES | {
    "arithmetic": lambda text: bool(lark.Lark(load("arithmetic"), parser="lalr").parse(text)),
    "functions": lambda text: bool(lark.Lark(load("functions"), parser="earley", lexer="dynamic").parse(text)),
    "pgn": lambda text: re.fullmatch(PGN, text) is not None,
}


def closing_token(guide: CFGGuide, state: int, random: Random) -> int:
    """One of the tokens that bring the end nearer."""
    return random.choice([t for t in tokens_of(mask_within(guide, state, guide.distance(state))) if t != EOS])


def next_token(guide: CFGGuide, state: int, random: Random) -> int:
    """A token after which the text is not complete, if a few tries find one; EOS only where nothing else may follow."""
    allowed = tokens_of(guide.mask(state))
    assert allowed, "a dead end"
    if random.random() < 0.3:
        leaving = set(allowed).intersection(LEAVING)
        allowed = sorted(t for t in leaving if guide.advance(state, t) != state) or allowed
    tries = random.sample(allowed, min(6, len(allowed)))
    going_on = [t for t in tries if t != EOS and not guide.is_accepting(guide.advance(state, t))]
    return (going_on or [t for t in allowed if t != EOS] or [EOS])[0]


def walk(guide: CFGGuide, random: Random) -> Iterator[str]:
    """Complete texts of `LENGTH` tokens in all."""
    state, tokens, count = guide.start, [], 0
    while count < LENGTH or tokens:
        nested = count % 50 == 0 and not guide.fits(state, DEEPEST)
        while nested and not guide.fits(state, DEEPEST // 2):
            tokens.append(closing_token(guide, state, random))
            state = guide.advance(state, tokens[-1])
        count += 1
        over = guide.is_accepting(state) and random.random() < 0.02
        if count >= LENGTH:
            token = EOS if guide.is_accepting(state) else closing_token(guide, state, random)
        else:
            token = EOS if over else next_token(guide, state, random)
        if token != EOS:
            tokens.append(token)
            state = guide.advance(state, token)
            assert state != DEAD
        else:
            yield b"".join(VOCABULARY.tokens[token] or b"" for token in tokens).decode()
            state, tokens = guide.start, []


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow if name in ("functions", "python") else []) for name in NAMES],
)
def test_random_walks_never_end_dead_and_are_read_by_the_reference(name: str) -> None:
    texts = list(walk(CFGGuide(load(name), VOCABULARY), Random(name)))
    assert sum(map(len, texts)) > LENGTH
    for text in texts:
        assert READERS[name](text), text


def spell(text: bytes, random: Random) -> Iterator[int]:
    """Tokens that spell a text, at every place a random one of those that fit."""
    at = 0
    while at < len(text):
        pieces = [text[at : at + size] for size in (1, 2, 3, 5)]
        token = random.choice([TOKEN_OF[piece] for piece in pieces if piece in TOKEN_OF])
        at += len(VOCABULARY.tokens[token] or b"")
        yield token


TOKEN_OF = {text: token for token, text in enumerate(VOCABULARY.tokens) if text}


def states(guide: CFGGuide, text: bytes) -> list[int]:
    """The states along a text, the start included; a dead one is the last."""
    found = [guide.start]
    for token in spell(text, Random(0)):
        found.append(guide.advance(found[-1], token))
        if found[-1] == DEAD:
            break
    return found


def accepted(guide: CFGGuide, text: bytes) -> bool:
    last = states(guide, text)[-1]
    return last != DEAD and guide.is_accepting(last)


def test_nesting_of_depth_1000() -> None:
    guide = CFGGuide(load("json"), VOCABULARY)
    state = states(guide, b'[{"a":' * 500 + b"[" * 9)[-1]
    needed = guide.distance(state)
    assert 500 < needed <= 1010, "every bracket is closed, several with one token"
    random, left = Random(0), needed
    while not guide.is_accepting(state):
        state, left = guide.advance(state, closing_token(guide, state, random)), left - 1
    assert left >= 0
    assert states(guide, b"[" * 1000 + b"}")[-1] == DEAD


def test_an_instance_of_100_kilobytes_meets_few_states() -> None:
    """What was written before is no part of a state, so the second half needs no more states than the first."""
    random = Random(0)
    rows = [{"id": i, "name": "x" * random.randrange(40), "tags": ["é", None, -1.5e3]} for i in range(1400)]
    half, whole = (json.dumps(some, ensure_ascii=False).encode() for some in (rows[:700], rows))
    assert len(whole) > 100_000
    guide = CFGGuide(load("json"), VOCABULARY)
    assert accepted(guide, half)
    count = guide.automaton.state_count
    assert accepted(guide, whole)
    assert guide.automaton.state_count == count


@pytest.mark.parametrize(
    "grammar",
    [
        'start: "x" "," start | "x"',
        'start: item rest\nrest: "," item rest |\nitem: "x" | "(" start ")"',
        'start: start "," "x" | "x"',
        'start: "x" ("," "x")*',
    ],
    ids=["right", "right in a rule of its own", "left", "repeat"],
)
def test_a_list_of_10_000_elements_comes_back_to_its_states(grammar: str) -> None:
    assert len(set(states(CFGGuide(grammar, VOCABULARY), b"x" + b",x" * 9_999))) < 12


# What the suite leaves open and the grammar accepts: numbers of any size, escapes of surrogates in any order.
OPEN = """
number_double_huge_neg_exp number_huge_exp number_neg_int_huge_exp number_pos_double_huge_exp
number_real_neg_overflow number_real_pos_overflow number_real_underflow number_too_big_neg_int number_too_big_pos_int
number_very_big_negative_int object_key_lone_2nd_surrogate string_1st_surrogate_but_2nd_missing
string_1st_valid_surrogate_2nd_invalid string_incomplete_surrogate_and_escape_valid
string_incomplete_surrogate_pair string_incomplete_surrogates_escape_valid string_invalid_lonely_surrogate
string_invalid_surrogate string_inverted_surrogates_U+1D11E string_lone_second_surrogate
structure_500_nested_arrays
"""


def test_files_of_the_json_test_suite(shared_data: Path) -> None:
    guide = CFGGuide(load("json"), VOCABULARY)
    files = sorted((shared_data / "json-test-suite" / "test_parsing").iterdir())
    assert len(files) == 318
    # Two files of 100 kB and more are all opening brackets.
    taken = {file.name for file in files if accepted(guide, file.read_bytes()[:30_000])}
    assert taken == {f.name for f in files if f.name.startswith("y_")} | {f"i_{name}.json" for name in OPEN.split()}


def test_threads_that_share_a_guide_write_what_they_would_alone() -> None:
    """In this grammar so many states are met that the guide makes room while the others are at work."""
    guide = CFGGuide(load("python"), VOCABULARY)
    texts: dict[int, list[int]] = {}
    threads = [threading.Thread(target=lambda i=i: texts.update({i: follow(guide, i)})) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {i: follow(CFGGuide(load("python"), VOCABULARY), i) for i in range(4)}


def follow(guide: CFGGuide, seed: int) -> list[int]:
    """The tokens of a random walk."""
    random, state, tokens = Random(seed), guide.start, []
    for _ in range(150):
        tokens.append(next_token(guide, state, random))
        state = guide.advance(state, tokens[-1])
    return tokens
