"""Pictures: whole, well-formed, with everything in them, and laid out so that one can look at them."""

import re
from itertools import product
from xml.etree import ElementTree

import interegular
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from trellm import Vocabulary, guides
from trellm.errors import LimitError, OptionError, StateError
from trellm.guides import (
    AlignedGuide,
    CFGGuide,
    ChoiceGuide,
    FreeGuide,
    FSMGuide,
    GoalGuide,
    JSONGuide,
    RegexGuide,
    SubstringGuide,
    TaggedGuide,
)
from trellm.guides.pictures import Arrow, Drawable, Picture, PictureNode
from trellm.guides.pictures.automata import MinimalAutomaton, graph_in_words, state_in_words

from ..tagged.support import AfterGuide

VOCABULARY = Vocabulary([b"1", b"23", b".", b"<b>", b'"', b"#", b"&amp;", None], eos_ids=[7])
GRAMMAR = """
start: expr
expr: term (("+" | "-") term)*
term: NUMBER | "(" expr ")" | NAME
NUMBER: /[0-9]+/
NAME: /[a-z]+/
unused: "x"
%ignore " "
"""
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 9},
        "kids": {"type": "array", "items": {"$ref": "#"}},
        "home": {"type": "object", "properties": {"city": {"enum": ["a", "b"]}}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
SVG = "{http://www.w3.org/2000/svg}"


def texts_in(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_an_automaton_in_three_languages() -> None:
    guide = RegexGuide(r"([0-9]+)?\.[0-9]+", VOCABULARY)
    svg, mermaid, dot = guide.to_svg(tokens=True), guide.to_mermaid(tokens=True), guide.to_dot(tokens=True)
    assert sorted(texts_in(svg)) == sorted(["0", "1", "2", ".", "0-9", "0-9", "0-9", "1, 23, .", "1, 23", "1, 23, EOS"])
    assert svg.count("<circle") == 4  # one of the three is double
    assert svg.count("<path") == 1 + 4 + 1  # the tip, the arrows, and the one to the start
    assert len(re.findall(r"^  n\d -->", mermaid, re.M)) == len(re.findall(r"^  \d -> \d ", dot, re.M)) == 4
    assert '  n2((("2<br/>1, 23, EOS")))' in mermaid


def test_whatever_the_labels_are_the_files_are_well_formed() -> None:
    guide = RegexGuide(r'[<&"#\\`\n\x00é]|<b>|&amp;', VOCABULARY)
    shown = texts_in(guide.to_svg(tokens=True))
    assert any("<b>" in text and "&amp;" in text for text in shown)
    for line in guide.to_mermaid(tokens=True).splitlines()[2:]:
        assert len(re.findall('"', line)) == 2, line
        assert not re.search(r"[<`](?!br/>)|&", line), line


def test_a_grammar_shows_the_rules_that_were_written_and_used() -> None:
    guide = CFGGuide(GRAMMAR, Vocabulary.from_bytes())
    picture = guide.picture()
    names = [node.label for node in picture.nodes]
    assert sorted(names) == ["NAME", "NUMBER", "expr", "start", "term"]
    used = {(names[arrow.source], names[arrow.target]) for arrow in picture.arrows}
    assert used == {("start", "expr"), ("expr", "term"), ("term", "NUMBER"), ("term", "expr"), ("term", "NAME")}
    assert names[picture.start] == "start"
    assert "[0-9]+" in texts_in(guide.to_svg())
    assert "shape=box" in guide.to_dot()


def every_guide() -> list[Drawable]:
    vocabulary = Vocabulary.from_bytes()
    digits, record = RegexGuide("[0-9]{2}", vocabulary), JSONGuide(SCHEMA, vocabulary)
    return [
        AfterGuide(digits, "</think>"),
        AlignedGuide(digits, b'a"<'),
        CFGGuide('start: "a" quote(doc) | start "b"', vocabulary, contexts={"doc": "some text"}),
        ChoiceGuide(["yes", "no"], vocabulary),
        FSMGuide(interegular.parse_pattern("(ab)*").to_fsm(), vocabulary),
        FreeGuide(vocabulary),
        GoalGuide(FreeGuide(vocabulary), ["lamp", "<sold>"]),
        record,
        JSONGuide({"type": "array", "uniqueItems": True}, vocabulary),
        digits,
        SubstringGuide("abcbc", vocabulary, boundary="character"),
        TaggedGuide([("<n>", digits, "</n>"), ("<o>", record, "")], vocabulary, least=1, most=3),
    ]


def test_every_public_guide_has_a_picture() -> None:
    drawn = every_guide()
    public = {name for name in guides.__all__ if isinstance(getattr(guides, name), type)}
    protocols = {"ByteGuide", "Guide", "RowGuide"}
    assert public - protocols <= {type(guide).__name__ for guide in drawn}
    for guide in drawn:
        picture = guide.picture()
        svg = guide._repr_svg_()
        assert svg == picture.to_svg() and {node.label for node in picture.nodes} <= set(texts_in(svg)), guide
        assert len(re.findall(r"^  n\d+ -->", guide.to_mermaid(), re.M)) == len(picture.arrows)
        assert guide.to_dot().startswith("digraph {")
        with pytest.raises(OptionError, match="max_states"):
            guide.picture(max_states=0)


def test_a_schema_shows_its_parts_and_what_they_refer_to() -> None:
    picture = JSONGuide(SCHEMA, VOCABULARY.from_bytes()).picture()
    names = [node.label for node in picture.nodes]
    assert names == ["#", "#/properties/kids", "#/properties/home"]
    used = [(names[arrow.source], names[arrow.target]) for arrow in picture.arrows]
    assert used == [("#", names[1]), ("#", names[2]), (names[1], "#")]
    assert '"name" (required): a string of at most 9 characters' in picture.nodes[0].note.split("\n")


def test_guides_of_guides_show_them() -> None:
    vocabulary = Vocabulary.from_bytes()
    digits = RegexGuide("[0-9]{2}", vocabulary)
    tagged = TaggedGuide([("<n>", digits, "</n>"), ("<m>", digits, "")], vocabulary, most=3).picture()
    assert [node.kind for node in tagged.nodes] == ["rule", *["state"] * 6]
    assert tagged.nodes[0] == PictureNode("free text", "rule", "parts: at most 3")
    assert {Arrow(0, 1, '"<n>"'), Arrow(3, 0, '"</n>"'), Arrow(0, 4, '"<m>"'), Arrow(6, 0)} <= set(tagged.arrows)
    healed = AlignedGuide(digits, b"ab").picture()
    assert [node.label for node in healed.nodes] == ['"ab"', "0", "1", "2"] and healed.nodes[3].kind == "final"
    goals = GoalGuide(FreeGuide(vocabulary), ["ab"]).picture()
    assert [arrow.label for arrow in goals.arrows] == ["contains", "any byte", "is one of"]
    behind = AfterGuide(digits, "</t>", most=20).picture()
    assert behind.nodes[0].note == "tokens: at most 20" and Arrow(0, 1, '"</t>"') in behind.arrows


def test_pictures_have_a_greatest_size() -> None:
    vocabulary = Vocabulary.from_bytes()
    many = {f"{'n' * 200}{i}": {"type": "object", "title": str(i), "minProperties": i} for i in range(150)}
    wide = JSONGuide({"type": "object", "properties": many}, vocabulary)
    assert max(map(len, wide.to_svg().splitlines())) < 400 and len(wide.to_svg()) < 500_000
    with pytest.raises(LimitError, match="more than 150 parts, too many for a picture; raise max_states"):
        wide.to_svg(max_states=150)
    names = [f"r{chr(97 + i // 26)}{chr(97 + i % 26)}" for i in range(80)]
    dense = CFGGuide("\n".join(f'{name}: "a" | {" ".join(names)}' for name in names), vocabulary, start="raa")
    assert len(dense.to_svg()) > 1 << 19 and dense._repr_svg_() is None
    healed = AlignedGuide(wide, b"x" * 500)
    assert len(healed.picture().nodes) == 152
    assert [node.label[-9:] for node in healed.picture(max_states=100).nodes] == ["x" * 8 + "…", "JSONGuide"]
    letters = RegexGuide("[" + "".join(map(chr, range(33, 127, 2))).replace("]", "") + "]", vocabulary)
    assert max(len(arrow.label) for arrow in letters.picture().arrows) == 60


def test_limits_and_options() -> None:
    with pytest.raises(LimitError, match="too many for a picture of 5; raise max_states"):
        RegexGuide("a{9}", VOCABULARY.from_bytes()).to_svg(max_states=5)
    with pytest.raises(LimitError, match="has 5 rules"):
        CFGGuide(GRAMMAR, Vocabulary.from_bytes()).to_mermaid(max_states=4)
    for guide in every_guide():
        if all(node.kind == "rule" for node in guide.picture().nodes) or hasattr(guide, "child"):
            with pytest.raises(OptionError, match="leave out tokens"):
                guide.to_svg(tokens=True)


class Substrings:
    """A tree of all substrings of a text: another state for each of them."""

    start = 0

    def __init__(self, text: str) -> None:
        parts = {text[i:j] for i in range(len(text) + 1) for j in range(i, len(text) + 1)}
        self.states = sorted(parts, key=lambda part: (len(part), part))

    def step(self, state: int, byte: int) -> int:
        after = self.states[state] + chr(byte)
        return self.states.index(after) if after in self.states else -1

    def is_accepting(self, state: int) -> bool:
        return True


def test_any_finite_automaton_can_be_made_small_and_drawn() -> None:
    tree = Substrings("abbb")
    small = MinimalAutomaton.of(tree, 50)
    assert (len(tree.states), len(small.dfa)) == (8, 5)
    assert tree.states[small.states[0]] == ""
    for part in ("", "a", "abbb", "bb", "aa", "ba"):
        state = 0
        for byte in part.encode():
            state = -1 if state < 0 else small.dfa.step(state, byte)
        assert (state >= 0) == (part in tree.states), part
    assert small.picture(lambda state: tree.states[state]).nodes[0] == PictureNode("0", "final", "")
    with pytest.raises(LimitError, match="raise max_states"):
        MinimalAutomaton.of(Substrings("abbb"), 4)


def test_the_quotations_of_a_short_context() -> None:
    guide = SubstringGuide("abcbc", VOCABULARY.from_bytes(), boundary="character")
    picture = guide.picture()
    assert [node.kind for node in picture.nodes] == ["state", *["final"] * 5]  # the factor automaton, the start apart
    ways = {(arrow.source, letter): arrow.target for arrow in picture.arrows for letter in arrow.label.split(" ")}
    for part in map("".join, product("abc", repeat=3)):
        state: int | None = picture.start
        for letter in part:
            state = ways.get((state, letter)) if state is not None else None
        assert (state is not None) == (part in "abcbc"), part
    assert "<svg" in guide.to_svg(tokens=True)


def test_each_state_has_a_state_of_the_whole_automaton_with_its_mask() -> None:
    guide = ChoiceGuide(["1.1", "23.1", "23"], VOCABULARY)
    minimal = guide.minimal()
    for state in range(len(minimal.dfa)):
        assert minimal.dfa.is_accepting(state) == guide.is_accepting(minimal.states[state])
        live = [byte for byte in range(256) if minimal.dfa.step(state, byte) >= 0]
        assert live == [byte for byte in range(256) if guide.automaton.step(minimal.states[state], byte) >= 0]


@settings(max_examples=80, derandomize=True, deadline=None)
@given(
    st.integers(1, 12).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=25))
    )
)
def test_layouts(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, pairs = graph
    picture = Picture(tuple(PictureNode(str(i), "state") for i in range(count)), tuple(Arrow(*pair) for pair in pairs))
    found = picture.columns()
    layer = {node: at for at, nodes in enumerate(found) for node in nodes}
    assert sorted(node for nodes in found for node in nodes) == list(range(count))
    assert 0 in found[0]
    assert all(layer[target] <= layer[source] + 1 for source, target in pairs if layer[source] or source == 0)
    root = ElementTree.fromstring(picture.to_svg())
    circles = [(float(c.get("cx", 0)), float(c.get("cy", 0))) for c in root.iter(f"{SVG}circle")]
    assert all((x - a) ** 2 + (y - b) ** 2 > 44**2 for i, (x, y) in enumerate(circles) for a, b in circles[:i])
    left, top, width, height = map(float, root.get("viewBox", "").split())
    assert all(left < x - 22 and x + 22 < left + width and top < y - 22 and y + 22 < top + height for x, y in circles)


def test_charts_in_words() -> None:
    """docs/charts.md shows more of them."""
    guide = JSONGuide({"type": "array", "items": {"const": 1}, "maxItems": 3}, Vocabulary.from_bytes())
    automaton = guide.automaton
    drawn = graph_in_words(automaton).splitlines()
    assert len(drawn) == automaton.graph.node_count
    assert any("LAZY" in line for line in drawn)
    state = automaton.read(automaton.start, b"[1,1")
    words = state_in_words(automaton, state)
    assert words.startswith(f"state {state}: ")
    assert f", -> {automaton.step(state, ord(','))}" in words
    assert words.count("  item: ") == (automaton.chart.states[state, 1] - automaton.chart.states[state, 0] - 2) // 3
    assert state_in_words(automaton, automaton.read(state, b"]")).endswith("row: DEAD everywhere")
    assert state_in_words(automaton, -1) == "DEAD"
    with pytest.raises(StateError):
        state_in_words(automaton, 10_000)
