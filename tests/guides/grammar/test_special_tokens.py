"""Special tokens in grammars: token by token what llguidance takes, and what is refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from itertools import chain
from random import Random
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE
from trellm import Capture, Sample, Vocabulary, generate, models
from trellm.errors import GrammarError
from trellm.guides import CFGGuide, TaggedGuide, laws, tokens_of

LETTERS = "abc"
EOS, START, END, CALL, THINK = 256, 257, 258, 259, 260
NAMES = {"<eos>": EOS, "<|im_start|>": START, "<|im_end|>": END, "<call>": CALL, "<think>": THINK}


def byte_tokenizer() -> Any:
    """A tokenizer of bytes, the last token of which is no special one, and has its text."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer: Any = Tokenizer(BPE(vocab={letter: number for number, letter in enumerate(letters)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in list(NAMES)[:-1]])
    tokenizer.add_tokens([AddedToken("<think>", special=False)])
    return tokenizer


TOKENIZER = byte_tokenizer()
VOCABULARY = Vocabulary.from_tokenizer(TOKENIZER, eos_ids=EOS)
IDS = {letter: TOKENIZER.token_to_id(letter) for letter in LETTERS}


def takes(guide: CFGGuide, tokens: Sequence[int]) -> bool:
    """Tell whether these tokens are a text of a guide, each of them allowed."""
    state = guide.start
    for token in tokens:
        if token not in tokens_of(guide.mask(state)):
            return False
        state = guide.advance(state, token)
    return guide.is_accepting(state)


@pytest.fixture(scope="module")
def peer() -> Callable[[str, Sequence[int]], bool]:
    """Tells whether llguidance takes tokens for a text of a grammar."""
    llguidance = pytest.importorskip("llguidance")
    tokenizer = llguidance.LLTokenizer(TOKENIZER.to_str(), eos_token=EOS)

    def found(grammar: str, tokens: Sequence[int]) -> bool:
        matcher = llguidance.LLMatcher(tokenizer, llguidance.LLMatcher.grammar_from_lark(grammar), log_level=0)
        assert not matcher.is_error(), (grammar, matcher.get_error())
        return matcher.try_consume_tokens(list(tokens)) == len(tokens) and matcher.is_accepting()

    return found


# Of two terminals that match the same token llguidance follows one; here each token has one terminal.
ATOMS = ['"a"', '"b"', '"c"', "<|im_end|>", "<call>", "<[257,260]>"]


def _expression(random: Random, depth: int) -> str:
    kind = random.randrange(8) if depth else 0
    if kind < 2:
        return random.choice(ATOMS)
    inner = [_expression(random, depth - 1) for _ in range(2)]
    if kind < 4:
        return " ".join(inner)
    if kind < 6:
        return f"({' | '.join(inner)})"
    return f"({inner[0]}){random.choice('?*+')}"


def test_random_grammars_take_the_tokens_that_llguidance_takes(peer: Callable[[str, Sequence[int]], bool]) -> None:
    random, taken = Random(6), 0
    tokens = [*IDS.values(), START, END, CALL, THINK]
    for _ in range(36):
        grammar = f'start: "a" {random.choice(ATOMS)} | r "c"\nr: {_expression(random, 3)}'
        guide = CFGGuide(grammar, VOCABULARY)
        for _ in range(25):
            walked = [token for _, token in laws.walk(guide, random, 5)][:-1]
            for each in (random.choices(tokens, k=random.randrange(5)), walked):
                assert takes(guide, each) == peer(grammar, each), (grammar, each)
                taken += takes(guide, each)
    assert taken > 200


GRAMMAR = """
start: said (<|im_end|> call)* <[258]>
said[capture]: /[ab]*/
call: <[259-260]> name
name[capture]: "c" <|im_start|>? /[ab]+/
%ignore " "
"""


def test_captures_are_of_the_text_without_special_tokens() -> None:
    """A token with a text of its own counts with that."""
    guide = CFGGuide(GRAMMAR, VOCABULARY)
    laws.check(guide, texts=2, tokens=8, sample=60)
    parts: list[Any] = ["ab ", END, THINK, " c", START, "ba  ", END, CALL, "cb", END]
    tokens = [token for part in parts for token in ([part] if isinstance(part, int) else TOKENIZER.encode(part).ids)]
    assert takes(guide, tokens)
    text = VOCABULARY.decode(tokens).decode()
    assert text == "ab <think> cba  cb"
    found = guide.captures(guide.vocabulary.decode(tokens))
    assert found == {"said": (Capture("ab", 0, 2),), "name": (Capture("cba", 11, 14), Capture("cb", 16, 18))}
    assert all(each.text == text[each.start : each.end] for several in found.values() for each in several)
    assert guide.captures(text) == {}, "a text does not show which tokens are special"


def test_tokens_that_are_named_are_no_text() -> None:
    """Letters spell no special token, and such a token spells no letters."""
    guide = CFGGuide('start: behind{<think>} "<call>"\nbehind{token}: /.*/ token', VOCABULARY)
    spelt = TOKENIZER.encode("<", add_special_tokens=False).ids
    assert takes(guide, [*spelt, THINK, *[token for letter in "<call>" for token in TOKENIZER.encode(letter).ids]])
    assert not takes(guide, [*spelt, THINK, CALL])
    assert guide.advance(guide.advance(guide.start, THINK), THINK) < 0


def test_gbnf_and_xgrammars_macros() -> None:
    """TokenTagDispatch is text in which tokens begin rules."""
    a, b, c = (IDS[letter] for letter in LETTERS)
    names = CFGGuide('root ::= "a" <|im_end|> <[257,259]>+ Token(258, 260)?', VOCABULARY)
    assert takes(names, [a, END, START, CALL, THINK]) and takes(names, [a, END, CALL])
    assert not takes(names, [a, END]) and not takes(names, [a, CALL, CALL])
    pairs = "(259, tool), (260, other), excludes=(258)"
    often = CFGGuide(f'root ::= TokenTagDispatch({pairs})\ntool ::= "b"\nother ::= "c"', VOCABULARY)
    once = CFGGuide(
        f'root ::= TokenTagDispatch({pairs}, loop_after_dispatch=false)\ntool ::= "b"\nother ::= "c"', VOCABULARY
    )
    for tokens, is_text in [([], True), ([a, CALL, b], True), ([CALL, c], False), ([THINK, c, END], False)]:
        assert takes(often, tokens) == takes(once, tokens) == is_text
    assert takes(often, [a, CALL, b, c, THINK, c, a]) and not takes(once, [a, CALL, b, c])


def test_excluded_tokens_are_in_no_text() -> None:
    """One with a text of its own would be, as a piece of that."""
    for excluded, is_text in (("", True), (", excludes=(258)", True), (", excludes=(258, 260)", False)):
        guide = CFGGuide(f'root ::= TokenTagDispatch((259, tool){excluded})\ntool ::= "b"', VOCABULARY)
        assert takes(guide, [IDS["a"], THINK, CALL, IDS["b"]]) == is_text and not takes(guide, [END])
    spelt = [token for letter in "<think>" for token in TOKENIZER.encode(letter, add_special_tokens=False).ids]
    assert takes(guide, spelt)


def test_descriptions_have_special_tokens() -> None:
    guide = CFGGuide('start: "a" <|im_end|> x\nx: <[257,259]> | "bc"', VOCABULARY)
    before = guide.advance(guide.start, IDS["a"])
    assert guide.describe(before) == "<|im_end|>"
    assert guide.describe(guide.advance(before, END)) == '"b" or <|im_start|> or <call> in x'


def test_it_is_sent_and_is_a_part_of_others() -> None:
    guide = CFGGuide(GRAMMAR, VOCABULARY)
    again = pickle.loads(pickle.dumps(guide))
    assert again == guide and again.vocabulary.markers == {START, END, CALL, THINK}
    tagged = TaggedGuide([("c", CFGGuide('start: <call> "a"', VOCABULARY), END)], VOCABULARY, least=1)
    tokens = [IDS["b"], IDS["c"], CALL, IDS["a"], END]
    state = tagged.start
    for token in tokens:
        state = tagged.advance(state, token)
    assert tagged.is_accepting(state)
    assert [tuple(part) for part in tagged.parts(tokens)] == [(None, "b"), (0, "a")]


SAID = """
start: word (<|im_end|> | <think>) number{1,2}
word[capture]: /[ab]{1,3}/
number[capture]: /[ab0-9]{1,2}/ <call>
"""


def scores(ids: Sequence[int]) -> list[float]:
    """A function of the tokens so far."""
    seed = sum((place + 1) * token for place, token in enumerate(ids)) % 1009
    return [((token * 7919 + seed * 104729) % 1000) / 250 for token in range(VOCABULARY.size)]


@pytest.mark.parametrize(
    "options",
    [{}, {"after": "<|im_start|>"}, {"after": "</t>"}, {"frame": ("", ")")}, {"after": "</t>", "frame": ("(", ")")}],
    ids=str,
)
def test_results_have_captures_by_their_tokens(options: dict[str, Any]) -> None:
    """Letters on both sides of a special token: the text alone does not say where one part ends."""
    around = {"thinking": 4, **options} if "after" in options else options
    generator = generate.cfg(models.from_function(scores, VOCABULARY), SAID, **around)
    guide = CFGGuide(SAID, VOCABULARY)
    for result in chain(*generator.run(["x", "yz", "a"], search=Sample(n=3), seed=2, max_tokens=40)):
        behind = len(options.get("frame", ("", ""))[1])
        answer = list(result.token_ids[: len(result.token_ids) - behind])
        while not takes(guide, answer):
            answer.pop(0)
        spelt = "".join(TOKENIZER.id_to_token(token) if token < EOS else "|" for token in answer)
        word, *numbers = spelt.removesuffix("|").split("|")
        found = {name: [each.text for each in several] for name, several in result.captures.items()}
        assert found == {"word": [word], "number": numbers} and result.lookup_error is None
        for several in result.captures.values():
            assert all(each.text == result.value[each.start : each.end] for each in several)


ERRORS = [
    ('start: "a" <nope>', 1, 12, "the vocabulary has no special token <nope>; there are <eos>, <|im_start|>,"),
    ('start: "a"\nx: <[261]>', 2, 4, "there is no token 261; ids are 0 to 260"),
    ("start: <[99999999999]>", 1, 8, "ids of special tokens must be numbers and ranges without blanks"),
    ("start: <[5-4]>", 1, 8, "5-4 is no range of tokens"),
    ("start: <[]>", 1, 8, "ids of special tokens must be numbers and ranges"),
    ("start: <[*]>", 1, 8, "any token, or any but some, is not supported"),
    ("start: <[^257]>", 1, 8, "any token, or any but some, is not supported"),
    ("start: <[64]>", 1, 8, "the token 64 has the text 'a'; write that, whatever tokens spell it"),
    ("start: <eos>", 1, 8, "the token 256 is an end-of-sequence token"),
    ("start: <[256-258]>", 1, 8, "the token 256 is an end-of-sequence token"),
    ("start: < call>", 1, 8, "a special token is written without blanks"),
    ("start: A\nA: <call>", 2, 4, "a special token cannot be part of a terminal"),
    ('start: "a"\n%ignore <call>', 2, 9, "a special token cannot be part of a terminal"),
    ("start: x\nx[suffix=<call>]: /a*/", 2, 10, "a special token cannot be part of a terminal"),
    ("root ::= < call>", 1, 10, "a special token is written without blanks"),
    ("root ::= !<call>", 1, 10, "any token but some is not supported"),
    ("root ::= ExcludeToken(257)", 1, 10, "any token but some is not supported"),
    ("root ::= Token(x)", 1, 10, "the arguments of Token must be ids of tokens"),
    ("root ::= Token()", 1, 10, "the arguments of Token must be ids of tokens"),
    ("root ::= TokenTagDispatch(257)", 1, 10, "each argument of TokenTagDispatch must be a token with its rule"),
    ('root ::= TokenTagDispatch(("a", root))', 1, 10, "triggers must be ids of tokens"),
    ("root ::= TokenTagDispatch((257, root), excludes=(64))", 1, 10, "the token 64 has the text 'a'"),
    ("root ::= TokenTagDispatch((257, root), excludes=(999))", 1, 10, "there is no token 999"),
    (
        "root ::= TokenTagDispatch((257, root), excludes=(a))",
        1,
        10,
        "the excluded tokens of TokenTagDispatch must be ids of tokens",
    ),
]


@pytest.mark.parametrize(("text", "line", "column", "reason"), ERRORS)
def test_errors_have_a_place_and_a_reason(text: str, line: int, column: int, reason: str) -> None:
    with pytest.raises(GrammarError) as error:
        CFGGuide(text, VOCABULARY)
    assert reason in error.value.reason
    assert (error.value.line, error.value.column) == (line, column)
