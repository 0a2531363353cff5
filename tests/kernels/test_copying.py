"""Kernels that write a graph's arrays, against the same said of lists."""

import numpy as np
import pytest
from numpy.random import Generator, default_rng
from numpy.typing import NDArray
from trellm.kernels.chart.copying import (
    FragmentArrays,
    copy_bytes,
    copy_piece,
    lay_names,
    lay_trie,
    look_ahead,
    measure_trie,
)
from trellm.kernels.chart.layout import CALL, EPSILON, GUARD, INCREMENT, LAZY, LEAVE, LOOKED

Ints = NDArray[np.int32]


def room(generator: Generator, *shape: int) -> Ints:
    """An array with numbers in it that nothing may rest on."""
    return generator.integers(-50, 50, shape).astype(np.int32)


def random_piece(generator: Generator, holes: int) -> FragmentArrays:
    """A fragment with no meaning, and holes wherever one may be."""
    size, edges, links = (int(generator.integers(1, 9)) for _ in range(3))
    of_nodes = [*range(size), *range(-holes, 0)]
    rows: list[list[int]] = []
    for _ in range(size):
        ranges = [*sorted(generator.integers(0, edges + 1, 2)), *sorted(generator.integers(0, links + 1, 2))]
        flags, rule, counter = generator.integers(8), generator.integers(size), generator.integers(-holes, 3)
        rows.append([*map(int, (*ranges, flags, rule, counter)), 7])
    kinds = [int(generator.choice((EPSILON, CALL, INCREMENT, LEAVE, GUARD))) for _ in range(links)]
    arguments = {CALL: of_nodes, GUARD: range(-holes, 0)}
    listed = [
        [kind, generator.choice(of_nodes), generator.choice(arguments.get(kind, range(-holes, 3)))] for kind in kinds
    ]
    reads = [[*sorted(generator.integers(0, 256, 2)), generator.choice(of_nodes)] for _ in range(edges)]
    return FragmentArrays(np.array(rows, np.int32), np.array(reads, np.int32), np.array(listed, np.int32))


@pytest.mark.parametrize("seed", range(30))
def test_a_copy_has_its_own_numbers(seed: int) -> None:
    generator = default_rng(seed)
    piece = random_piece(generator, 4)
    nodes, edges, links = room(generator, 40, 8), room(generator, 30, 3), room(generator, 30, 3)
    given = np.array([100, 101, 102, 103], np.int32)
    shift, edge, link, counters = 20, 5, 6, 50
    before = nodes.copy(), edges.copy(), links.copy()

    def node(number: int) -> int:
        return int(given[-1 - number]) if number < 0 else number + shift

    def counter(number: int) -> int:
        return int(given[-1 - number]) if number < 0 else number and number + counters

    expected_nodes, expected_edges, expected_links = (array.tolist() for array in before)
    for at, (edge_lo, edge_hi, link_lo, link_hi, flags, rule, count, _) in enumerate(piece.nodes.tolist()):
        rows = [edge_lo + edge, edge_hi + edge, link_lo + link, link_hi + link, flags, node(rule), counter(count), 0]
        expected_nodes[node(at)] = rows
    for at, (first, last, target) in enumerate(piece.edges.tolist()):
        expected_edges[edge + at] = [first, last, node(target)]
    for at, (kind, target, argument) in enumerate(piece.links.tolist()):
        expected_links[link + at] = [kind, node(target), (node if kind == CALL else counter)(argument)]
    copy_piece(nodes, edges, links, piece, given, shift, edge, link, counters)
    assert nodes.tolist() == expected_nodes
    assert edges.tolist() == expected_edges
    assert links.tolist() == expected_links


@pytest.mark.parametrize("seed", range(20))
def test_fragments_of_bytes_are_copied_whole_or_in_parts(seed: int) -> None:
    generator = default_rng(seed)
    counts = generator.integers(0, 4, int(generator.integers(1, 9)))
    size, ends = len(counts), np.cumsum(counts).astype(np.int32)
    written = [[*sorted(generator.integers(0, 256, 2)), generator.integers(-1, size)] for _ in range(ends[-1])]
    fragment = np.array(written, np.int32).reshape(-1, 3)
    exits = np.flatnonzero(generator.integers(0, 2, size)).astype(np.int32)
    nodes, edges, links = np.zeros((40, 8), np.int32), room(generator, 40, 3), room(generator, 30, 3)
    first, target, rule, counter, edge, link = 20, 33, 7, 2, 5, 6
    expected_nodes, expected_edges, expected_links = (array.tolist() for array in (nodes, edges, links))
    begin = 0
    for node, end in enumerate(ends.tolist()):
        number = exits.tolist().index(node) + link if node in exits else 0
        expected_nodes[first + node] = [edge + begin, edge + end, number, number + (node in exits), 0, rule, counter, 0]
        begin = end
    for at, (low, high, after) in enumerate(fragment.tolist()):
        expected_edges[edge + at] = [low, high, target if after < 0 else first + after]
    for at in range(len(exits)):
        expected_links[link + at] = [EPSILON, target, 0]
    cut = int(generator.integers(size + 1))
    arrays, numbers = (nodes, edges, links, ends, fragment), (first, target, rule, counter, edge, link)
    copy_bytes(*arrays, exits[:0], 0, cut, *numbers)
    copy_bytes(*arrays, exits, cut, size, *numbers)
    assert nodes.tolist() == expected_nodes
    assert edges.tolist() == expected_edges
    assert links.tolist() == expected_links


@pytest.mark.parametrize("texts", [[b'a"'], [b'a"', b'bcd"', b'"'], [bytes([0xC3, 0xA4]), b"x" * 9]], ids=len)
def test_names_are_read_between_a_guard_and_a_call(texts: list[bytes]) -> None:
    generator, count, data = default_rng(0), len(texts), b"".join(texts)
    nodes, edges, links = (np.zeros((60, width), np.int32) for width in (8, 3, 3))
    node, after, first, edge, link, guard, rule, counter = 2, 4, 10, 7, 9, 20, 1, 3
    nodes[node] = (0, 0, 0, 0, LAZY, rule, counter, 0)
    rules = room(generator, count) + np.int32(200)
    ends = np.cumsum([len(text) for text in texts]).astype(np.int32)
    numbers = (node, after, first, edge, link, guard)
    lay_names(nodes, edges, links, 0x22, np.frombuffer(data, np.uint8), ends, rules, *numbers, 2)
    end = link + 3 * count + 2
    assert nodes[node].tolist() == [edge, edge + 1, end, end, 0, rule, counter, 0]
    assert edges[edge].tolist() == [0x22, 0x22, first]
    assert nodes[first].tolist() == [0, 0, link + 2 * count, end, 0, rule, counter, 0]
    reached: list[int] = []
    for number, text in enumerate(texts):
        kind, place, argument = links[link + 2 * count + number].tolist()
        assert (kind, argument) == (GUARD, guard + number)
        for byte in text:
            edge_lo, edge_hi, link_lo, link_hi, *rest = nodes[place].tolist()
            assert (edge_hi - edge_lo, link_lo, link_hi, rest) == (1, 0, 0, [0, rule, counter, 0])
            low, high, target = edges[edge_lo].tolist()
            assert low == high == byte
            reached.append(place)
            place = target
        for expected in ([CALL, int(rules[number]), place + 1], [EPSILON, after, 0]):
            edge_lo, edge_hi, link_lo, link_hi, *rest = nodes[place].tolist()
            assert (edge_lo, edge_hi, link_hi - link_lo, rest) == (0, 0, 1, [0, rule, counter, 0])
            assert links[link_lo].tolist() == expected
            reached.append(place)
            place += 1
    assert reached == list(range(first + 1, first + 1 + len(data) + 2 * count))


@pytest.mark.parametrize("seed", range(20))
def test_a_trie_leads_to_the_texts_whose_bits_are_missing(seed: int) -> None:
    """Whatever is there already: from no node are there ways to none, and the end adds the text's bit."""
    generator = default_rng(seed)
    length, bit, node, after, rule = int(generator.integers(1, 5)), 40, 2, 4, 9
    texts = sorted({bytes(generator.integers(97, 100, length).astype(np.uint8)) for _ in range(12)})
    array, sizes = np.frombuffer(b"".join(texts), np.uint8).reshape(len(texts), length), np.zeros(2, np.int32)
    measure_trie(array, sizes)
    size, ways = sizes.tolist()
    begins = {text[:end] for text in texts for end in range(length)}
    after_each = [{text[len(begin)] for text in texts if text.startswith(begin)} for begin in begins]
    assert size == sum(map(len, after_each))
    assert ways == sum(len(each) for each in after_each if len(each) > 1)
    first, edge, link, guard = 10, 7, 9, 3
    rows = (first + 1 + size + ways + 2 * len(texts), edge + size, link + ways + 3 * len(texts))
    nodes, edges, links = (np.zeros((count, width), np.int32) for count, width in zip(rows, (8, 3, 3), strict=True))
    guards = np.full((guard + ways + len(texts), 4), -99, np.int32)
    nodes[node] = (0, 0, 0, 0, LAZY, 1, 3, 0)
    lay_trie(nodes, edges, links, guards, array, rule, node, after, bit, first, edge, link, guard)
    assert (nodes[first:, 5:7] == (1, 3)).all() and (guards[guard:] != -99).all()

    def behind(place: int, there: frozenset[int]) -> list[tuple[int, frozenset[int], list[int] | None]]:
        """The nodes behind guards, the bits there, and the call that comes then."""
        found: list[tuple[int, frozenset[int], list[int] | None]] = [(place, there, None)]
        for kind, target, argument in links[nodes[place, 2] : nodes[place, 3]].tolist():
            if kind == CALL:
                found.append((argument, there, [target]))
            if kind == GUARD:
                needed, refused, kept, added = guards[argument].tolist()
                assert not needed and kept
                if not refused or not there.issuperset(range(refused - 1, refused - 1 + max(1, -kept))):
                    found += behind(target, there | {added - 1} if added else there)
        return found

    for share in (0.0, 0.3, 0.7, 0.95):
        there = frozenset((bit + np.flatnonzero(generator.random(len(texts)) < share)).tolist())
        missing = [text for number, text in enumerate(texts) if bit + number not in there]
        places = {b"": [first]} if missing else {}
        for depth in range(length):
            further: dict[bytes, list[int]] = {}
            for begin, heads in places.items():
                for place in (place for head in heads for place, _, _ in behind(head, there)):
                    for low, _, target in edges[nodes[place, 0] : nodes[place, 1]].tolist():
                        further.setdefault(begin + bytes([low]), []).append(target)
            places = further
            assert set(places) == {text[: depth + 1] for text in missing}
        for text, heads in places.items():
            (head,) = heads
            ((back, bits, called),) = [each for each in behind(head, there) if each[2]]
            assert called == [rule] and bits == there | {bit + texts.index(text)}
            assert links[nodes[back, 2] : nodes[back, 3]].tolist() == [[EPSILON, after, 0]]


@pytest.mark.parametrize("seed", range(30))
def test_what_is_lazy_ahead(seed: int) -> None:
    generator = default_rng(seed)
    size = 25
    kinds = np.array([EPSILON, CALL, INCREMENT, LEAVE, GUARD])
    ends = np.sort(generator.integers(0, 40, size))
    nodes = np.zeros((size, 8), np.int32)
    nodes[1:, 2], nodes[:, 3] = ends[:-1], ends
    nodes[:, 4] = generator.choice([0, LAZY, LOOKED, LAZY | LOOKED], size, p=[0.5, 0.3, 0.1, 0.1])
    argument = generator.integers(0, 2, 40)
    links = np.stack([generator.choice(kinds, 40), generator.integers(0, size, 40), argument], axis=1).astype(np.int32)
    before = nodes.copy()
    begin = [0, 7, 12]
    expected: set[int] = set()
    looked: set[int] = set()
    waiting = list(begin)
    while waiting:
        lo, hi = before[waiting.pop(), 2:4].tolist()
        for kind, target, counted in links[lo:hi].tolist():
            if kind in (LEAVE, GUARD) or (kind == EPSILON and counted):
                continue
            if target not in looked and not before[target, 4] & LOOKED:
                looked.add(target)
                if before[target, 4] & LAZY:
                    expected.add(target)
                else:
                    waiting.append(target)
    found = np.empty(size, np.int32)
    count = look_ahead(nodes, links, np.array(begin, np.int32), found)
    assert sorted(found[:count].tolist()) == sorted(expected)
    before[list(looked), 4] |= LOOKED
    assert nodes.tolist() == before.tolist()
