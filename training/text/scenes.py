"""Scenes: what a passage tells of, with its values, and the passage that tells it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

from .forms import expand, fill, is_held_out, side, slots_of
from .values import Value, make

_TABLES: dict[str, Any] = tomllib.loads(Path(__file__).with_name("domains.toml").read_text(encoding="utf-8"))
_OTHERS: dict[str, list[str]] = _TABLES.pop("others")
PHRASES: dict[str, tuple[str, ...]] = {mood: expand(form) for mood, form in _TABLES.pop("phrases").items()}
MOODS = sorted(PHRASES)
MAX_SENTENCES = 8

Groups = dict[frozenset[str], tuple[str, ...]]


class Domain:
    """What there is to tell of one topic: slots, forms of sentences, names of fields, questions, a tool."""

    def __init__(self, name: str, table: dict[str, Any]) -> None:
        self.name = name
        self.topic: str = table["topic"]
        self.kinds: dict[str, str] = table["slots"]
        self.key = next(iter(self.kinds))
        self.fields: dict[str, str] = table["fields"]
        self.questions: dict[str, str] = table["questions"]
        self.tool: str = table["tool"]
        self.requests: list[str] = table["requests"]
        self._forms: list[str] = table["forms"]
        self._forms_by_slots = {held_out: self._grouped(held_out) for held_out in (False, True)}
        self._possible: dict[tuple[bool, bool, frozenset[str]], list[tuple[frozenset[str], tuple[str, ...]]]] = {}

    def _grouped(self, held_out: bool) -> Groups:
        """The forms of one side of the split by the slots that they tell of."""
        groups: dict[frozenset[str], list[str]] = {}
        for form in self._forms:
            for text in expand(form):
                if is_held_out(text) == held_out:
                    groups.setdefault(slots_of(text), []).append(text)
        return {slots: tuple(texts) for slots, texts in groups.items()}

    def groups(self, held_out: bool) -> Groups:
        """The forms of a side of the split, by the slots that they tell of."""
        return self._forms_by_slots[held_out]

    def told(self, held_out: bool) -> frozenset[str]:
        """The slots, flags with + or -, that this side's forms can tell of."""
        return frozenset[str]().union(*self._forms_by_slots[held_out])

    def sentence(self, random: Random, left: frozenset[str], with_key: bool, held_out: bool) -> str | None:
        """A form that tells of some of what is left, and of nothing else but the key; None if there is none."""
        case = (held_out, with_key, left)
        if case not in self._possible:
            key = {self.key}
            self._possible[case] = [
                (slots, forms)
                for slots, forms in self._forms_by_slots[held_out].items()
                if slots & left and slots <= left | key and (self.key in slots or not with_key)
            ]
        possible = self._possible[case]
        return random.choice(random.choice(possible)[1]) if possible else None


DOMAINS = {name: Domain(name, table) for name, table in _TABLES.items()}


@dataclass(slots=True)
class Scene:
    """One thing that happened, and its sentences. Values are only of slots that are told."""

    domain: Domain
    values: dict[str, Value]
    texts: dict[str, str]
    sentences: list[str]
    mood: str | None = None
    second: Scene | None = None
    places: dict[str, str] = field(default_factory=dict[str, str])
    """The sentence that tells of a slot."""

    @property
    def passage(self) -> str:
        """The sentences as one text."""
        return " ".join(self.sentences)

    @property
    def key(self) -> Value:
        """What sets this apart from another of its domain."""
        return self.values[self.domain.key]


def draw(random: Random, held_out: bool) -> Scene:
    """A scene with a passage of 1 to 8 sentences; distractors among them, at times a second scene of its kind."""
    domain = random.choice(tuple(DOMAINS.values()))
    two = random.random() < 0.18
    scene = _tell(random, domain, random.randrange(1, 4) if two else random.randrange(1, 8), two, held_out)
    if two:
        scene.second = _tell(random, domain, random.randrange(1, 4), two, held_out)
        scene.sentences = _merged(random, scene.sentences, scene.second.sentences)
    if random.random() < 0.4:
        scene.mood = random.choice(MOODS)
        who = scene.texts[domain.key] if domain.kinds[domain.key] == "person" else make("person", random, held_out).text
        _insert(random, scene, mood_sentence(random, scene.mood, who, held_out))
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        if len(scene.sentences) < MAX_SENTENCES:
            _insert(random, scene, distractor(random, held_out))
    return scene


def mood_sentence(random: Random, mood: str, who: str, held_out: bool) -> str:
    """A sentence that shows somebody's mood without its name."""
    while True:
        form = random.choice(expand(random.choice(_OTHERS["moods"])))
        text = form.replace("{phrase}", random.choice(PHRASES[mood]))
        if is_held_out(text) == held_out:
            return text.replace("{who}", who).replace(" ,", ",")


def distractor(random: Random, held_out: bool) -> str:
    """A sentence that has nothing to do with the scene, half of the time with a name, a date or an amount."""
    kind = "distractors" if random.random() < 0.5 else "fillers"
    form = random.choice(side(random.choice(_OTHERS[kind]), held_out))
    return fill(form, {slot: make(slot[2:], random, held_out).text for slot in sorted(slots_of(form))})


def _tell(random: Random, domain: Domain, size: int, with_key: bool, held_out: bool) -> Scene:
    """A scene with `size` slots beside the key, which its first sentence has; more where no form tells of so few."""
    for more in range(1000):
        scene = _told(random, domain, size + more // 4, with_key, held_out)
        if scene.sentences:
            return scene
    raise ValueError(f"no form of the domain {domain.name!r} begins a passage")


def _told(random: Random, domain: Domain, size: int, with_key: bool, held_out: bool) -> Scene:
    several = list(domain.kinds)[1:]
    chosen = [domain.key, *random.sample(several, min(size, len(several)))]
    values = {slot: make(domain.kinds[slot], random, held_out) for slot in chosen}
    texts = {slot: value.text for slot, value in values.items()}
    told = domain.told(held_out)
    named = {
        slot: slot + ("+" if value.json else "-") if value.kind == "flag" else slot for slot, value in values.items()
    }
    left = frozenset(named.values()) & told
    scene = Scene(domain, values, texts, [])
    while left and len(scene.sentences) < MAX_SENTENCES:
        form = domain.sentence(random, left, with_key or not scene.sentences, held_out)
        if form is None:
            break
        text = fill(form, texts)
        scene.sentences.append(text[0].upper() + text[1:])
        for slot in slots_of(form):
            scene.places.setdefault(slot.rstrip("+-"), scene.sentences[-1])
        left -= slots_of(form)
    scene.values = {slot: value for slot, value in values.items() if slot in scene.places}
    return scene


def _insert(random: Random, scene: Scene, sentence: str) -> None:
    scene.sentences.insert(random.randrange(1, len(scene.sentences) + 1), sentence)


def _merged(random: Random, first: list[str], second: list[str]) -> list[str]:
    """Two lists of sentences in one, one after the other or mixed, each in its order; the first begins."""
    if random.random() < 0.6:
        return first + second
    turns = [True] * (len(first) - 1) + [False] * len(second)
    random.shuffle(turns)
    turns.insert(0, True)
    ones, others = iter(first), iter(second)
    return [next(ones) if turn else next(others) for turn in turns]


@cache
def questions(domain: str, slot: str, held_out: bool) -> tuple[str, ...]:
    """The questions for a slot on one side of the split."""
    return side(DOMAINS[domain].questions[slot], held_out)
