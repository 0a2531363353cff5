"""What is remembered: the values used last, within a number and a weight that is taken again while they grow."""

from trellm.guides.chart.remembered import Remembered


def test_the_values_used_last_are_kept() -> None:
    kept: Remembered[list[int]] = Remembered(len, 2, 100)
    kept.add("a", [1])
    kept.add("b", [2])
    assert kept.get("a") == [1]
    kept.add("c", [3])
    assert (kept.get("a"), kept.get("b"), kept.get("c")) == ([1], None, [3])
    kept.add("a", [4, 5])
    assert kept.get("a") == [4, 5] and len(kept) == 2


def test_what_grows_is_forgotten_when_it_is_weighed_again() -> None:
    kept: Remembered[list[int]] = Remembered(len, 100, 50)
    grown: list[int] = []
    kept.add("grown", grown)
    kept.add(0, [0])
    grown.extend(range(60))
    for number in range(1, 3):
        kept.add(number, [number])
    assert kept.get("grown") is None and kept.get(0) == [0]


def test_the_last_is_kept_whatever_it_weighs() -> None:
    kept: Remembered[list[int]] = Remembered(len, 3, 1)
    for number in range(5):
        kept.add(number, [0, 0])
        assert kept.get(number) == [0, 0] and len(kept) == 1
