"""What finite guides add: choices, machines of interegular, tables, precompilation and pictures."""

import re
import subprocess
import sys

import interegular
import numpy as np
import pytest
from interegular.fsm import FSM, anything_else
from trellm.errors import LanguageError, LimitError, OptionError
from trellm.guides import ChoiceGuide, FSMGuide, RegexGuide, laws, tokens_of

from .naive_masks import naive_mask
from .support import Dfa, byte_runs
from .vocabularies import SMALL


def reads(guide: ChoiceGuide | FSMGuide | RegexGuide, text: str | bytes) -> bool:
    end = guide.automaton.read(guide.start, text.encode() if isinstance(text, str) else text)
    return end >= 0 and guide.is_accepting(end)


@pytest.mark.parametrize(
    "choices",
    [["a"], [""], ["", "a", "ab"], ["ab", "aba", "abc", "ab"], ["世", "世界", "é"], [*"abcde", "aaa", "aa"]],
)
def test_choices(choices: list[str]) -> None:
    guide = ChoiceGuide(choices, SMALL)
    expected = RegexGuide("|".join(map(re.escape, choices)), SMALL)
    for text in (*choices, *(choice + "a" for choice in choices), *(choice[:-1] for choice in choices)):
        assert reads(guide, text) == (text in choices) == reads(expected, text)
    laws.check(guide, texts=2, tokens=5)


def test_choices_from_any_iterable() -> None:
    assert ChoiceGuide({"b": 1, "a": 2}, SMALL).choices == ("b", "a")
    assert reads(ChoiceGuide((word for word in ("x", "y")), SMALL), "y")


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ([], "choices is empty"),
        ("abc", "not the one text 'abc'"),
        (b"abc", "not the one text"),
        ([1, "a"], r"choice 0 must be a text, not 1"),
        ([b"a"], "choice 0 must be a text"),
        (["a\ud800"], "lone surrogate at character 1"),
    ],
)
def test_bad_choices(choices: object, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        ChoiceGuide(choices, SMALL)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", ["a*b", "[^a]{2}", "(ab|é)+", ".*世", "[^é]*"])
def test_machines_of_interegular(pattern: str) -> None:
    guide = FSMGuide(interegular.parse_pattern(pattern).to_fsm(), SMALL)
    for text in ("", "b", "aab", "ab", "éab", "世", "x世", "🙂🙂", "é", "\x7f\uffff", "ba"):
        assert reads(guide, text) == (re.fullmatch(pattern, text) is not None), text
    laws.check(guide, texts=2, tokens=5)


def test_a_machine_with_a_dead_state_and_one_without_other_characters() -> None:
    machine = FSM(
        alphabet=interegular.fsm.Alphabet({"a": 0, "b": 1, anything_else: 2}),
        states={0, 1, 2},
        initial=0,
        finals={1},
        map={0: {0: 1, 1: 2, 2: 0}, 1: {0: 2}, 2: {0: 2, 1: 2, 2: 2}},
    )
    guide = FSMGuide(machine, SMALL)
    assert reads(guide, "世xa") and not reads(guide, "xb")
    allowed = {SMALL.tokens[token] for token in tokens_of(guide.mask(guide.start))}
    assert b"a" in allowed and b"b" not in allowed and "世".encode() in allowed
    narrow = FSM(alphabet=interegular.fsm.Alphabet({"a": 0}), states={0}, initial=0, finals={0}, map={0: {0: 0}})
    guide = FSMGuide(narrow, SMALL)
    assert reads(guide, "aaa") and not reads(guide, "ab")


def test_bad_machines() -> None:
    with pytest.raises(OptionError, match="not str"):
        FSMGuide("a*", SMALL)  # type: ignore[arg-type]
    empty = FSM(alphabet=interegular.fsm.Alphabet({"a": 0}), states={0}, initial=0, finals=set(), map={0: {0: 0}})
    with pytest.raises(LanguageError, match="empty"):
        FSMGuide(empty, SMALL)
    numbers = FSM(alphabet=interegular.fsm.Alphabet({1: 0}), states={0}, initial=0, finals={0}, map={0: {0: 0}})
    with pytest.raises(OptionError, match="single characters"):
        FSMGuide(numbers, SMALL)


@pytest.mark.parametrize("pattern", [r"([0-9]+)?\.[0-9]+", "(?:a|ab){2,5}", "[^\n]{0,30}é", r"\d{4}-\d\d"])
def test_precompiled_masks_are_those_of_lazy_ones(pattern: str) -> None:
    guide, lazy = RegexGuide(pattern, SMALL).precompile(), RegexGuide(pattern, SMALL)
    dfa = guide.dfa()
    assert len(dfa) == guide.automaton.state_count
    for state in range(0, len(dfa), 1 + len(dfa) // 20):
        assert set(tokens_of(guide.mask(state))) == naive_mask(guide, state)
    assert np.array_equal(guide.mask(guide.start), lazy.mask(lazy.start))


def test_tables_walk_like_the_automaton() -> None:
    guide = RegexGuide("(?:a|bc){2,4}é?", SMALL)
    dfa = guide.dfa()
    order, numbered = dfa.breadth_first()
    small = dfa.minimised()
    assert numbered.start == 0 and len(numbered) == len(order) == len(dfa) >= len(small)
    for text in (b"aa", b"abcbc", b"bcbca\xc3\xa9", b"a", b"aaaaa", b"bcc"):
        ends = []
        for table in (dfa, numbered, small):
            state = table.start
            for byte in text:
                state = table.step(state, byte) if state >= 0 else state
            ends.append(state >= 0 and table.is_accepting(state))
        assert ends == [reads(guide, text)] * 3


def test_minimised_tables_have_no_two_states_alike() -> None:
    small = RegexGuide("(?:aa|ab|ba|bb){1,3}c|[ab]{7}c", SMALL).dfa().minimised()
    alike = small.accepting[:, None] == small.accepting[None]
    while True:
        after = np.where(small.transitions < 0, len(small), small.transitions)
        wide = np.pad(alike, ((0, 1), (0, 1)))
        wide[-1, -1] = True
        refined = alike & wide[after[:, None], after[None]].all(axis=2)
        if (refined == alike).all():
            break
        alike = refined
    assert alike.sum() == len(small)


def test_byte_runs() -> None:
    row = np.full(256, -1, np.int32)
    row[3:7], row[7:9], row[255] = 1, 2, 1
    assert byte_runs(row) == [(3, 6, 1), (7, 8, 2), (255, 255, 1)]
    assert byte_runs(np.full(256, -1, np.int32)) == []


def test_size_limits() -> None:
    guide = RegexGuide("a{0,300}", SMALL)
    with pytest.raises(LimitError, match="more than 100 states"):
        guide.precompile(max_states=100)
    with pytest.raises(LimitError, match="more than 100 states"):
        guide.dfa(max_states=100)
    with pytest.raises(LimitError, match="raise max_states"):
        guide.to_dot(max_states=100)


def test_pictures() -> None:
    guide = RegexGuide(r"([0-9]+)?\.[0-9]+", SMALL)
    text = guide.to_dot()
    assert text.startswith("digraph {") and text.endswith("}\n")
    assert len(re.findall(r"shape=doublecircle", text)) == 1
    arrows = [(0, 1, "."), (0, 0, "0-9"), (1, 2, "0-9"), (2, 2, "0-9")]
    for source, target, label in arrows:
        assert f'  {source} -> {target} [label="{label}"];' in text
    assert text.count("->") == len(arrows) + 1
    with_tokens = guide.to_dot(tokens=True)
    assert "2024" in with_tokens and "EOS" in with_tokens and "2024" not in text


def test_pictures_of_awkward_characters() -> None:
    text = RegexGuide('["\\\\\\n é]', SMALL).to_dot(tokens=True)
    for line in text.splitlines():
        body = re.sub(r"\\.", "", line)
        assert body.count('"') % 2 == 0, line
    assert "xC3" in text and "␣" in text


def test_a_table_keeps_its_parts() -> None:
    guide = RegexGuide("ab?", SMALL)
    dfa = Dfa.of(guide.automaton)
    assert dfa.transitions.dtype == np.int32 and dfa.transitions.shape == (len(dfa), 256)
    assert dfa.accepting.dtype == np.bool_ and dfa.start == guide.start


def test_interegular_is_imported_only_for_its_machines() -> None:
    code = (
        "import sys; from trellm.guides import RegexGuide; from trellm.tokenizers_adapter import Vocabulary;"
        "RegexGuide('a', Vocabulary([b'a', None], [1])); sys.exit('interegular' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_guides_say_what_they_are() -> None:
    machine = interegular.parse_pattern("(ab)*").to_fsm()
    assert repr(ChoiceGuide(["yes", "no"], SMALL)) == "ChoiceGuide(['yes', 'no'], 2 choices)"
    assert repr(FSMGuide(machine, SMALL)) == f"FSMGuide(<a machine of {len(machine.map)} states>)"
