"""`include=`: goals under every search, with and without guides, within the budget, against brute force."""

from __future__ import annotations

import re
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import (
    AllOf,
    AnyOf,
    Beam,
    BudgetError,
    Gap,
    Generator,
    Greedy,
    LanguageError,
    OptionError,
    Ordered,
    Phrase,
    Sample,
    Template,
    TrellmError,
    Vocabulary,
    generate,
    models,
)
from trellm.guides import FreeGuide, GoalGuide, RegexGuide

from ...watching import watched

PIECES = ["a", "b", "c", " ", "ab", "bc", "ca ", " b"]
END = len(PIECES)
VOCABULARY = Vocabulary.from_characters(PIECES)
PATTERNS = ["[abc ]*", "(?:ab|bc|c)+", "[abc]{2,4} [abc]{2,5}", "(?:a[abc ]{0,6})?b", "a*b*c*"]
GOALS: list[Any] = [
    "ab", "bca", "c b", Phrase("ab", word=True), AnyOf("bb", "cab"), Ordered("c", "a"), Phrase([4, 2]), "cc",
    Template("b", Gap(max_chars=2), "c"),
]  # fmt: skip


def toy(seed: int) -> Any:
    """A model whose logits depend on the last token."""
    logits = np.random.default_rng(seed).normal(scale=2.0, size=(END + 1, END + 1))
    return models.from_function(lambda ids: logits[ids[-1]], VOCABULARY), logits


def contains(text: str, goal: Any) -> bool:
    """Whether a text meets one of GOALS, said in another way."""
    if goal == Phrase("ab", word=True):
        return "ab" in text.split(" ")
    if isinstance(goal, AnyOf):
        return "bb" in text or "cab" in text
    if isinstance(goal, Ordered):
        return 0 <= text.find("c") < text.rfind("a")
    if isinstance(goal, Template):
        return any(a == "b" and "c" in text[i + 1 : i + 4] for i, a in enumerate(text))
    return ("abc" if isinstance(goal, Phrase) else goal) in text


def shortest(guide: Any, goals: list[Any], most: int) -> int | None:
    """The fewest tokens of a text of the guide with all goals, by trying all sequences; None above `most`."""
    layer = {(guide.start, "")}
    for count in range(most + 1):
        if any(guide.is_accepting(state) and all(contains(text, goal) for goal in goals) for state, text in layer):
            return count
        steps = ((guide.advance(s, token), text + piece) for s, text in layer for token, piece in enumerate(PIECES))
        layer = {(state, text) for state, text in steps if state >= 0}
    return None


def test_goals_are_met_in_every_instance_that_has_a_solution() -> None:
    """300 random models, guides, goals, prompts, budgets, searches and seeds; never a goal met that is not."""
    random = Random(11)
    guides = [None, *(RegexGuide(pattern, VOCABULARY) for pattern in PATTERNS)]
    searches = [Greedy(), Sample(1.5), Sample(0.7, top_k=3), Beam(1), Beam(3)]
    met = refused = 0
    while met < 300:
        guide = random.choice(guides)
        generator = Generator(toy(met)[0], guide)
        goals = random.sample(GOALS, random.choice([1, 1, 2]))
        least = shortest(guide or FreeGuide(VOCABULARY), goals, 4)
        for budget in random.choices(range(1, 8), k=16):
            options: dict[str, Any] = {"include": goals, "max_tokens": budget, "seed": met}
            try:
                found = generator.run(random.choice("abc"), search=random.choice(searches), **options)
            except (BudgetError, LanguageError):
                assert least is None or least > budget, (goals, guide, budget)
                refused += 1
                continue
            assert least is None or least <= budget
            assert all(contains(found.text, goal) for goal in goals), (found.text, goals)
            assert found.unmet == () and len(found.token_ids) <= budget
            assert guide is None or guide.is_accepting(guide.read(guide.start, found.text.encode()))
            met += 1
    assert refused > 30, "some instances had no solution"


def ranked(guide: Any, goals: list[Any], budget: int, logits: Any, first: int) -> list[tuple[float, str]]:
    """Every text with all goals within a budget, best spelling only, by the mean log-probability of its tokens."""
    scores = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    best: dict[str, float] = {}

    def go(state: int, tokens: list[int]) -> None:
        text = "".join(PIECES[token] for token in tokens)
        if guide.is_accepting(state) and all(contains(text, goal) for goal in goals):
            path = [first, *tokens] if len(tokens) == budget else [first, *tokens, END]
            mean = sum(scores[pair] for pair in pairwise(path)) / (len(path) - 1)
            best[text] = max(best.get(text, -np.inf), mean)
        if len(tokens) < budget:
            for token in range(END):
                if (after := guide.advance(state, token)) >= 0:
                    go(after, [*tokens, token])

    go(guide.start, [])
    return sorted(((score, text) for text, score in best.items()), reverse=True)


@pytest.mark.parametrize("pattern", [None, "[ab ]*c[abc ]*", "(?:ab|bc|c)+"])
@pytest.mark.parametrize("goals", [["abc"], ["ab", "c b"], [Ordered("c", "a")], [AnyOf("bb", "cab"), "bc"]])
def test_wide_beams_find_the_best_text_with_all_goals(pattern: str | None, goals: list[Any]) -> None:
    guide = None if pattern is None else RegexGuide(pattern, VOCABULARY)
    for seed in (1, 2):
        model, logits = toy(seed)
        expected = ranked(FreeGuide(VOCABULARY) if guide is None else guide, goals, 4, logits, first=1)
        generator = Generator(model, guide)
        if not expected:
            with pytest.raises((LanguageError, BudgetError)):
                generator("b", include=goals, max_tokens=4)
            continue
        search = Beam(5000, n=3, early_stopping="never")
        found = generator.run("b", include=goals, max_tokens=4, search=search)
        assert [one.text for one in found] == [text for _, text in expected[:3]]
        assert [one.score for one in found] == pytest.approx([score for score, _ in expected[:3]], abs=1e-5)


def test_every_generator_takes_include(subtests: Any) -> None:
    model = models.ziplm("The quick brown fox jumps over the lazy dog. Answer: yes, no.\n" * 3)
    grammar = 'start: word (" " word)*\nword: /[a-z]{1,6}/'
    cases = {
        "text": generate.text(model),
        "regex": generate.regex(model, "[a-z ]{4,30}"),
        "choice": generate.choice(model, ["a red fox", "a blue dog", "a dog and a fox"]),
        "cfg": generate.cfg(model, grammar),
        "extract": generate.extract(model, "A lazy dog saw the quick brown fox, and the fox saw the dog."),
        "json": generate.json(model, {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}),
    }
    for name, generator in cases.items():
        with subtests.test(name):
            found = generator.run(["Say: ", "The quick"], include=["dog", AnyOf("fox", "cat")], max_tokens=40)
            for one in found:
                assert "dog" in one.text and ("fox" in one.text or "cat" in one.text)
                assert one.unmet == () and len(one.token_ids) <= 40
    assert cases["choice"]("Say: ", include=["dog", "fox"]) == "a dog and a fox"


def test_distinct_spans_go_without_goals() -> None:
    generator = generate.extract(models.ziplm("Where? "), "A lazy dog saw the quick brown fox.", spans=2)
    with pytest.raises(OptionError, match="several distinct spans"):
        generator("Where? ", include="dog")


def test_goals_in_a_stream_and_in_a_batch_of_generators() -> None:
    model = models.ziplm("one two three four " * 5)
    assert "three" in "".join(generate.text(model).stream("one ", include="three", max_tokens=12))
    pairs = [(generate.text(model), "one "), (generate.regex(model, "[a-z ]+"), "two ")]
    assert all("four" in text for text in generate.batch(pairs, include="four", max_tokens=12))


def test_the_budgets_last_tokens_are_for_what_is_missing() -> None:
    model = models.from_function(lambda ids: [0.0] * 3 + [9.0, -5.0], Vocabulary.from_characters(["x", "y", "z", "w"]))
    found = generate.text(model).run("x", include=["xyz"], max_tokens=7)
    assert (found.text, found.finish_reason) == ("wwwwxyz", "length")
    assert generate.text(model).run("x", include=[AllOf("xyz", "zx")], max_tokens=7).text == "wwwxyzx"
    with pytest.raises(BudgetError, match="max_tokens=2 is too small") as caught:
        generate.text(model)("x", include=["xyz"], max_tokens=2)
    assert caught.value.needed == 3


def test_stops_and_goals() -> None:
    logits = np.full((5, 5), -9.0)
    for before, after in [(0, 1), (1, 2), (2, 3), (3, 0)]:
        logits[before, after] = 0.0
    model = models.from_function(lambda ids: logits[ids[-1]], Vocabulary.from_characters(["x", "y", "z", "\n"]))
    generator = generate.text(model)
    cut = generator.run("z", include=["xyz"], stop="\n", max_tokens=9)
    assert (cut.text, cut.finish_reason, cut.unmet) == ("", "stop", ("Phrase('xyz')",))
    whole = generator.run("\n", include=["xyz"], stop="\n", max_tokens=9)
    assert (whole.text, whole.finish_reason, whole.unmet) == ("xyz", "stop", ())
    inside = generator.run("\n", include=["yz\n"], stop="z", max_tokens=9)
    assert (inside.text, inside.unmet) == ("xy", ("Phrase('yz\\n')",)), "what is cut off does not count"
    for search in (Greedy(), Beam(2)):
        waits = generator.run("z", include=["xyz"], stop_ids=[3], max_tokens=9, search=search)
        assert "xyz" in waits.text and waits.unmet == () and waits.finish_reason == "stop", (
            "a stop id waits as EOS does"
        )


@pytest.mark.parametrize(
    ("include", "error", "message"),
    [
        ([""], OptionError, "empty phrase"),
        ([["a", "b"]], OptionError, "one of several is AnyOf"),
        ([7], OptionError, r"token ids is Phrase\(\[7\]\)"),
        (7, OptionError, r"token ids is Phrase\(\[7\]\)"),
        (["x"], LanguageError, r"no tokens that spell a text with Phrase\('x'\)"),
        ([Phrase([END])], LanguageError, "token 8 spells no text"),
        (["abc" * 4], BudgetError, "max_tokens=4 is too small"),
    ],
)
def test_what_cannot_be_included(include: Any, error: type[TrellmError], message: str) -> None:
    with pytest.raises(error, match=message):
        generate.text(toy(1)[0])("a", include=include, max_tokens=4)


def test_goals_that_contradict_the_constraint_are_refused_up_front() -> None:
    with pytest.raises(LanguageError, match=r"no text of the constraint contains Phrase\('ba'\)"):
        generate.regex(toy(1)[0], "a*b*")("a", include=["ab", "ba"], max_tokens=4)


def test_a_generator_keeps_what_it_knows_of_goals(monkeypatch: pytest.MonkeyPatch) -> None:
    generator, made = generate.text(toy(1)[0]), watched(monkeypatch, GoalGuide, "__init__")
    generator("a", include=["ab"], max_tokens=9)
    generator("b", include="ab", max_tokens=9)
    assert len(made) == 1
    generator("a", max_tokens=9)
    assert len(made) == 1


@pytest.mark.parametrize("search", [Greedy(), Sample(1.0), Beam(3)])
def test_goals_behind_prompts_that_are_healed(search: Any) -> None:
    model = models.ziplm("The dog is fast and the fox is fast. " * 4)
    for prompt in ("The dog i", "The do", "The"):
        found = generate.text(model).run(
            prompt, include=["fox is", "dog"], search=search, seed=3, max_tokens=24, heal=True
        )
        assert "fox is" in found.text and "dog" in found.text and found.unmet == ()
    found = generate.regex(model, " ?[a-z]+(?: [a-z]+)*").run(
        "The do", include=["ox"], search=search, max_tokens=9, heal=True
    )
    assert "ox" in found.text and found.unmet == () and len(found.token_ids) <= 9


def test_the_soldiers_and_the_child() -> None:
    """The blog's second example, and its wish for an order."""
    model = models.ziplm("The soldiers were scared and screaming. The child screamed and was scared. " * 3)
    screams = AnyOf(" scream", " screams", " screaming", " screamed")
    prompts = ["The soldiers", "The child"]
    for search in (Greedy(), Beam(4)):
        for text in generate.text(model)(prompts, include=[" scared", screams], search=search, max_tokens=40):
            assert " scared" in text and " scream" in text
        for text in generate.text(model)(prompts, include=Ordered(" scared", screams), search=search, max_tokens=40):
            assert 0 <= text.find(" scared") < text.rfind(" scream")


def test_the_blogs_templates() -> None:
    """A gap is one word there, or two: "the Harvard University in" has only one."""
    model = models.ziplm(
        "The woman attended the Ross School of Business in Michigan, the Harvard University in MA. " * 2
    )
    school = Template("the", Gap(1, 1), "School of", Gap(1, 1), "in")
    text = generate.text(model)("The woman", include=school, max_tokens=90)
    assert re.search(r"the *\S+ *School of *\S+ *in", text, re.S)
    university = Template("the ", Gap(2, 2), " University ", Gap(max_words=0), "in")
    guide = GoalGuide(FreeGuide(model.vocabulary), university)
    assert guide.missing(b"attended the Harvard University in MA") == (repr(university),)
    assert guide.missing(b"attended the Carnegie Mellon University in Pittsburgh") == ()
    text = generate.text(model)("The woman", include=university, search=Beam(3), max_tokens=60)
    assert re.search(r"the \s*\S+\s+\S+\s* University \s*in", text)
