"""Rules with `[capture]`: what they have read, against all readings of a text, Lark's trees and XGrammar's captures."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from lark import Lark, Token, Tree
from trellm import Beam, Capture, LimitError, Limits, Sample, Vocabulary, generate, models
from trellm.errors import GrammarError
from trellm.guides import CFGGuide
from trellm.guides.grammar import Grammar, Literal

from ..support import work_of

BYTES = Vocabulary.from_bytes()
OPEN, READ, CLOSE = 0, 1, 2
Event = tuple[int, ...]
Rules = dict[str, list[list[str]]]


def _random_rules(random: Random) -> Rules:
    """Rules r0 ... r2 by alternatives of letters and later rules, the last item of which may be any rule."""
    rules: Rules = {}
    for number in range(3):
        later = [f"r{other}" for other in range(number + 1, 3)]
        alternatives: list[list[str]] = []
        for _ in range(random.randrange(1, 3)):
            items = [random.choice(["a", "b", "", *later, *later]) for _ in range(random.randrange(1, 3))]
            if random.random() < 0.3:
                items = [random.choice("ab"), *items, f"r{random.randrange(3)}"]
            alternatives.append(items)
        rules[f"r{number}"] = [*alternatives, ["a"]]
    return rules


def _readings(rules: Rules, captured: dict[str, int], items: tuple[str, ...], text: str) -> Iterator[tuple[Event, ...]]:
    """The events of all ways to read a text as these items: captures that begin, letters, captures that end."""
    if not items:
        if not text:
            yield ()
        return
    first, rest = items[0], items[1:]
    if first not in rules:
        if text.startswith(first):
            for events in _readings(rules, captured, rest, text.removeprefix(first)):
                yield (*[(READ,)] * len(first), *events)
        return
    for alternative in rules[first]:
        for end in range(len(text) + 1):
            behind = list(_readings(rules, captured, rest, text[end:]))
            for events in _readings(rules, captured, tuple(alternative), text[:end]) if behind else ():
                around = ((OPEN, captured[first]), *events, (CLOSE,)) if first in captured else events
                for others in behind:
                    yield (*around, *others)


def _captures(events: tuple[Event, ...], names: list[str], text: str) -> dict[str, tuple[Capture, ...]]:
    found: list[list[int]] = []
    stack: list[list[int]] = []
    place = 0
    for event in events:
        if event[0] == OPEN:
            stack.append([event[1], place, place])
            found.append(stack[-1])
        elif event[0] == CLOSE:
            stack.pop()[2] = place
        else:
            place += 1
    captures = [(names[number], Capture(text[begin:end], begin, end)) for number, begin, end in found]
    return {name: tuple(each for other, each in captures if other == name) for name, _ in captures}


def test_captures_begin_early_and_are_long() -> None:
    random, compared, ambiguous = Random(4), 0, 0
    texts = ["".join(random.choice("ab") for _ in range(size)) for size in range(5)]
    while compared < 150:
        rules = _random_rules(random)
        captured = sorted(random.sample(sorted(rules), random.randrange(1, 3)))
        lines = [
            f"{name}{f'[capture=c{name}]' if name in captured else ''}: ".replace("=", '="').replace("]", '"]')
            + " | ".join(" ".join(item if item in rules else f'"{item}"' for item in items) for items in alternatives)
            for name, alternatives in rules.items()
        ]
        guide = CFGGuide("\n".join(lines), BYTES, start="r0")
        for text in texts:
            readings = {*_readings(rules, {name: at for at, name in enumerate(captured)}, ("r0",), text)}
            expected = _captures(min(readings), [f"c{name}" for name in captured], text) if readings else {}
            assert guide.captures(text) == expected, (lines, text)
            compared += bool(readings)
            ambiguous += len(readings) > 1
    assert ambiguous > 10


ITEMS = """
start: item ("," item)*
item: NAME "=" value | "[" start "]"
value: NUMBER | "<" item ">"
NAME: /[a-z]+/
NUMBER: /[0-9]+/
"""


def _item(random: Random, depth: int) -> str:
    if depth and random.random() < 0.3:
        return "[" + ",".join(_item(random, depth - 1) for _ in range(random.randrange(1, 3))) + "]"
    value = f"<{_item(random, depth - 1)}>" if depth and random.random() < 0.4 else str(random.randrange(1000))
    return f"{random.choice(['a', 'bc', 'def'])}={value}"


def test_captures_are_nodes_of_the_only_tree() -> None:
    lark = Lark(ITEMS, parser="earley", lexer="dynamic_complete", propagate_positions=True, keep_all_tokens=True)
    guide = CFGGuide(ITEMS.replace("item:", "item[capture]:").replace("value:", 'value[capture="v"]:'), BYTES)
    random = Random(8)
    for _ in range(25):
        text = ",".join(_item(random, 3) for _ in range(random.randrange(1, 4)))
        expected: dict[str, list[tuple[int, int]]] = {"item": [], "value": []}
        for tree in lark.parse(text).iter_subtrees_topdown():
            assert isinstance(tree, Tree)
            leaves = list(tree.scan_values(lambda leaf: isinstance(leaf, Token)))
            expected.setdefault(str(tree.data), []).append((leaves[0].start_pos, leaves[-1].end_pos))
        captures = guide.captures(text)
        for name, found in {"item": captures["item"], "value": captures.get("v", ())}.items():
            assert [(each.start, each.end) for each in found] == sorted(expected[name], key=lambda at: (at[0], -at[1]))
            assert all(each.text == text[each.start : each.end] for each in found)


def test_captures_of_xgrammars_notation_are_its_own() -> None:
    xgrammar = pytest.importorskip("xgrammar")
    grammar = 'root ::= "(" word ("," word | pair)* ")"\nword[capture="w"] ::= [a-zé]+\npair[capture] ::= "<" word ">"'
    guide = CFGGuide(grammar, BYTES)
    info = xgrammar.TokenizerInfo([chr(code) for code in range(32, 127)])
    compiled = xgrammar.GrammarCompiler(info).compile_grammar(xgrammar.Grammar.from_ebnf(grammar))
    for text in ["(a)", "(é,bc<é>,d)", "(ab<c><d>,e)"]:
        matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
        assert matcher.accept_string(text)
        # It tells every beginning of a word that might have been all of it; the longest one from each place is it.
        theirs = [(name, said.decode()) for name, said in matcher.get_captures()]
        ours = {(name, each.text) for name, several in guide.captures(text).items() for each in several}
        assert ours <= set(theirs)
        assert {said for name, said in ours if name == "pair"} == {said for name, said in theirs if name == "pair"}


def test_ignored_text_is_not_captured() -> None:
    grammar = 'start: "by" name+ "."\nname[capture]: WORD+ | "a b "\nWORD: /[a-z]+/ | "(" / *x/ ")"\n%ignore " "'
    guide = CFGGuide(grammar, BYTES)
    assert guide.captures("by ann ( x)  .") == {"name": (Capture("ann ( x)", 3, 11),)}
    assert guide.captures("by a b  .") == {"name": (Capture("a b", 3, 6),)}
    assert guide.captures("by ann") == {}, "this is the beginning of a text only"


def test_rules_that_end_as_soon_as_they_can_and_templates() -> None:
    rules = 'said[capture, suffix=". "]: /.*/\nlist{x}[capture]: x ("," x)*\nnum[capture="n"]: /[0-9]/'
    found = CFGGuide(f"start: said list{{num}}\n{rules}", BYTES).captures("Né. 1,2")
    assert found["said"] == (Capture("Né", 0, 2),) and found["list"] == (Capture("1,2", 4, 7),)
    assert found["n"] == (Capture("1", 4, 5), Capture("2", 6, 7))


def test_quotations_and_captures_are_of_one_reading() -> None:
    grammar = "start: all /[^.]*/ quote(doc)\nall[capture]: /[ab]*/ quote(doc)"
    guide = CFGGuide(grammar, BYTES, contexts={"doc": "ab cd"})
    (captured,) = guide.captures("ab ab cd, ab")["all"]
    assert captured.text == "ab" and guide.spans("ab ab cd, ab").keys() == {"/doc/0", "/doc/1"}


def test_the_work_of_reading_a_text_is_bounded() -> None:
    guide = CFGGuide("start: a*\na[capture]: /[ab]*b/", BYTES, limits=Limits(work=200_000))
    assert guide.captures("ab" * 20) == {"a": (Capture("ab" * 20, 0, 40),)}
    with pytest.raises(LimitError, match="200,000 steps"):
        guide.captures("ab" * 20_000)


def test_marks_that_cannot_begin_are_not_tried() -> None:
    """A rule within a rule, and so on: each begins at the first character alone."""
    rules = "".join(f"r{number}[capture]: r{number + 1}\n" for number in range(100))
    guide = CFGGuide(f"start: r0\n{rules}r100: /x*/", BYTES, limits=Limits(work=5_000_000))
    found = guide.captures("x" * 1000)
    assert len(found) == 100 and {each[0].end for each in found.values()} == {1000}


def test_quotations_and_captures_are_found_by_one_reading() -> None:
    guide = CFGGuide("start: (all /,? /)+\nall[capture]: quote(doc)", BYTES, contexts={"doc": "ab cd"})
    text = "ab, cd ab "
    once = guide.findings(text)
    assert (guide.spans(text), guide.captures(text)) == once and len(once.spans) == len(once.captures["all"]) == 3
    works = [work_of(lambda ask=ask: ask(text)) for ask in (guide.findings, guide.spans, guide.captures)]
    assert works[0] == works[1] == works[2] > 0


def test_a_grammar_of_a_program() -> None:
    grammar = Grammar({"start": Literal(b"ab")}, "start", captures={"start": "all"})
    assert CFGGuide(grammar, BYTES).captures("ab") == {"all": (Capture("ab", 0, 2),)}
    with pytest.raises(GrammarError, match="no rule 'b' to be captured"):
        CFGGuide(Grammar({"start": Literal(b"ab")}, "start", captures={"b": "all"}), BYTES)


NUMBERS = 'start: "sizes " number (", " number)*\nnumber[capture]: /[0-9]{1,2}/'


@pytest.mark.parametrize("options", [{}, {"search": Beam(4)}, {"search": Sample(n=3)}, {"heal": False}])
def test_results_have_the_captures_of_their_texts(options: dict[str, object]) -> None:
    model = models.ziplm("The sizes are: sizes 4, 12, 7. The sizes are: sizes 5, 13.")
    generator = generate.cfg(model, NUMBERS)
    found = generator.run("The sizes are: si", max_tokens=24, **options)  # type: ignore[call-overload]
    for result in found if isinstance(found, list) else [found]:
        places = [(each.start, each.end) for each in result.captures["number"]]
        assert [each.text for each in result.captures["number"]] == result.text[6:].split(", ")
        assert [result.text[begin:end] for begin, end in places] == result.text[6:].split(", ")


def test_a_limit_of_captures_leaves_the_text() -> None:
    model = models.ziplm("So: aaaaaaaa. " * 3)
    generator = generate.cfg(model, 'start: s\ns[capture]: "a" s "a" | "a"?', limits=Limits(work=300_000))
    found = generator.run("So: ", max_tokens=100, min_tokens=90)
    assert generator("So: ", max_tokens=100, min_tokens=90) == found.value == found.text
    assert set(found.text) == {"a"} and found.error is None and found.captures == {}
    assert isinstance(found.lookup_error, LimitError) and "lookup_error=" in repr(found)


def test_streams_end_with_captures_and_thoughts_have_none() -> None:
    model = models.ziplm("So: hm</t>sizes 4, 12. So: hm</t>sizes 4, 12.")
    generator = generate.cfg(model, NUMBERS, after="</t>", thinking=4)
    *_, last = generator.stream(["So: "], max_tokens=40)
    assert last.result is not None and last.result.thought is not None
    answer = last.result.value
    assert [answer[each.start : each.end] for each in last.result.captures["number"]] == answer[6:].split(", ")
