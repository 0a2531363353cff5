"""Invented names of people, places, companies, streets, products and books, from syllables and lists."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from .forms import is_held_out
from .words import NAMES


def person(random: Random) -> str:
    """A first name and a surname, such as Brela Stonkard."""
    return f"{random.choice(NAMES['given']) if random.random() < 0.3 else _word(random)} {_word(random)}"


def city(random: Random) -> str:
    """A town."""
    return _stem(random) + random.choice(NAMES["towns"])


def company(random: Random) -> str:
    """A firm."""
    return f"{_word(random)} {random.choice(NAMES['firms'])}"


def street(random: Random) -> str:
    """A house in a street."""
    return f"{random.randrange(1, 200)} {_word(random)} {random.choice(NAMES['streets'])}"


def product(random: Random) -> str:
    """What can be bought, described by a word or two or by an invented brand."""
    kind = random.random()
    if kind < 0.25:
        return f"{_word(random)} {random.choice(NAMES['nouns'])}"
    if kind < 0.4:
        return (
            f"{random.choice(NAMES['adjectives'])} {random.choice(NAMES['adjectives'])} {random.choice(NAMES['nouns'])}"
        )
    return f"{random.choice(NAMES['adjectives'])} {random.choice(NAMES['nouns'])}"


def title(random: Random) -> str:
    """The title of a book or a piece of music."""
    kind = random.random()
    thing = random.choice(NAMES["things"]).title()
    if kind < 0.4:
        return f"The {random.choice(NAMES['tones']).title()} {thing}"
    if kind < 0.7:
        return f"{thing} of {_word(random)}"
    return f"The {thing} and the {random.choice(NAMES['things']).title()}"


def code(random: Random) -> str:
    """A number of an order, a shipment or a case, such as KX-4821."""
    letters = "".join(random.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(random.randrange(1, 4)))
    return f"{letters}-{random.randrange(10, 99999)}"


def team(random: Random) -> str:
    """A sports club."""
    return f"{city(random)} {random.choice(NAMES['clubs'])}"


def fresh(make: Callable[[Random], str], random: Random, held_out: bool) -> str:
    """A name on one side of the split."""
    while True:
        name = make(random)
        if is_held_out(name) == held_out:
            return name


def _word(random: Random) -> str:
    return (
        _stem(random) + random.choice(NAMES["ends"])
        if random.random() < 0.6
        else _stem(random) + random.choice(NAMES["vowels"])
    )


def _stem(random: Random) -> str:
    choice = random.choice
    text = choice(NAMES["starts"]) + choice(NAMES["vowels"]) + choice(NAMES["codas"])
    if random.random() < 0.3:
        text += choice(NAMES["onsets"]) + choice(NAMES["vowels"]) + choice(NAMES["codas"])
    return text.capitalize()
