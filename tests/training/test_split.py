"""What is held out: training draws none of it, evaluation nothing else."""

from random import Random

import pytest

from .support import DOMAINS, draw, expand, fill, has_held_out_name, is_held_out, make, names, record, slots_of, styled

NAMED = ("person", "city", "company", "street", "product", "title", "code", "team")


def test_forms_stand_for_all_their_texts() -> None:
    assert expand("[a|b][|c]") == ("a", "ac", "b", "bc")
    assert expand("x[a[1|2]|]|y") == ("xa1", "xa2", "x", "y")
    with pytest.raises(ValueError, match="not closed"):
        expand("a[b")
    with pytest.raises(ValueError, match="too many"):
        expand("a]b")
    assert fill("{who} paid {price}.{paid+}", {"who": "Ann", "price": "$3"}) == "Ann paid $3."


@pytest.mark.parametrize("held_out", [False, True])
def test_names_are_on_their_side(held_out: bool) -> None:
    random = Random(1)
    for kind in NAMED:
        for _ in range(50):
            assert is_held_out(make(kind, random, held_out).text) == held_out
    for _ in range(50):
        people = make("people", random, held_out).json
        assert all(is_held_out(name) == held_out for name in people)
        assert is_held_out(make("date", random, held_out).json) == held_out


@pytest.mark.parametrize("held_out", [False, True])
def test_sentences_are_of_forms_on_their_side(held_out: bool) -> None:
    """A passage's sentences, with slots put back in place of what was filled in, are forms of that side."""
    random, found = Random(2), 0
    for _ in range(60):
        scene = draw(random, held_out)
        forms = {fill(form, scene.texts) for form in _forms(scene.domain.name, held_out) if _is_told(form, scene.texts)}
        for sentence in scene.places.values():
            assert sentence[0].lower() + sentence[1:] in forms or sentence in forms
            found += 1
    assert found > 100


def _forms(domain: str, held_out: bool) -> list[str]:
    return [form for slots in DOMAINS[domain].groups(held_out).values() for form in slots]


def _is_told(form: str, texts: dict[str, str]) -> bool:
    return {slot.rstrip("+-") for slot in slots_of(form)} <= texts.keys()


def test_the_two_sides_have_no_form_in_common() -> None:
    count = 0
    for domain in DOMAINS.values():
        seen, unseen = set(_forms(domain.name, False)), set(_forms(domain.name, True))
        assert not seen & unseen
        assert len(unseen) > len(seen) / 20
        count += len(seen)
    assert count > 1500


def test_every_slot_has_forms_and_names_of_fields() -> None:
    for domain in DOMAINS.values():
        told = {slot.rstrip("+-") for slot in domain.told(False)}
        assert told == set(domain.kinds) == set(domain.fields)
        assert domain.questions.keys() <= domain.kinds.keys()
        assert domain.key in {slot for slots in domain.groups(True) for slot in slots}


def test_schemas_with_unseen_fields_have_no_name_that_training_has() -> None:
    random = Random(3)
    seen = {
        styled(name, joint)
        for domain in DOMAINS.values()
        for slot in domain.kinds
        for name in expand(domain.fields[slot])
        if not is_held_out(name)
        for joint in ("_", "", " ", "-")
    }
    found = 0
    for _ in range(100):
        scene = draw(random, True)
        schema, _value = record(random, scene, True)
        for name, inner in schema["properties"].items():
            if "properties" not in inner and inner.get("type") != "array":
                # Fields of one word may be called alike in two domains, on both sides only if the hash is the same.
                assert name not in seen
                found += 1
    assert found > 30


def test_some_slots_have_names_that_are_held_out() -> None:
    several = [has_held_out_name(domain, slot) for domain in DOMAINS.values() for slot in domain.kinds]
    assert sum(several) > len(several) / 3


def test_fresh_names_are_many() -> None:
    random = Random(4)
    assert len({names.fresh(names.person, random, False) for _ in range(2000)}) > 1950
