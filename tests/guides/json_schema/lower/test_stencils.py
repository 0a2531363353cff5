"""Bodies of rules that are copied are what they are when they are made: the same texts, as far from the end."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.guides.chart.automaton import ChartAutomaton
from trellm.guides.json_schema import CompiledSchema, Form, SchemaLowering, SchemaOptions, Spacing
from trellm.guides.json_schema.lower.formulas import FormulaLowering
from trellm.guides.json_schema.lower.stencils import MOST_STENCILS, keep, stencils
from trellm.guides.lift.lifted_guide import LiftedGuide

from ..test_guide_suite import BYTES

ITEMS = {"items": {"type": "integer"}}
CLOSED = {"additionalProperties": False}
SCHEMAS: dict[str, Any] = {
    "anything": {},
    "scalars": {"type": ["null", "boolean", "string", "number"], "maxLength": 3},
    "several strings": {"anyOf": [{"type": "string", "maxLength": 2}, {"pattern": "^x", "type": "string"}]},
    "open members": {"type": "object", "properties": {"a": {}, "b": {"type": "array"}}, "required": ["b"]},
    "closed": {"type": "object", "properties": {"a": {"type": ["object", "null"], **CLOSED}}, **CLOSED},
    "names alike": {"type": "object", "properties": {"a": True, "ab": True, "abc": {"const": 1}}, **CLOSED},
    "many names": {"type": "object", "properties": {f"n{n}": {"type": "null"} for n in range(40)}, "required": ["n7"]},
    "recursive": {
        "type": "object",
        "properties": {"next": {"$ref": "#"}, "all": {"type": "array", "items": {"$ref": "#"}}},
        **CLOSED,
    },
    "beside": {
        "type": "object",
        "properties": {
            "one": {"type": ["array", "object", "null"], **ITEMS, "properties": {"x": True}},
            "two": {"type": ["array", "object", "string"], **ITEMS, "minItems": 1, "required": ["x"]},
        },
        "required": ["one"],
    },
    **{
        f"arrays {least} {most}": {
            "type": "array",
            **ITEMS,
            "minItems": least,
            **({} if most < 0 else {"maxItems": most}),
        }
        for least, most in ((0, -1), (0, 0), (0, 1), (1, 1), (1, -1), (0, 2), (2, 3), (3, -1))
    },
}
FORMS = {
    "flexible": Form(),
    "compact": Form(order="any", spacing=Spacing("compact")),
    "pretty": Form(spacing=Spacing("pretty", 1)),
    "any": Form(order="any", spacing=Spacing("any"), escapes="any"),
}


def guide_of(schema: Any, form: Form, kind: type[FormulaLowering]) -> LiftedGuide:
    compiled = CompiledSchema(schema, {}, SchemaOptions(), contexts={})

    def make() -> Any:
        lowering = kind(compiled, form)
        return lowering.graph, lowering.root()

    return LiftedGuide(ChartAutomaton(make), BYTES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", SCHEMAS)
def test_copies_are_what_they_are_copies_of(name: str, form: str) -> None:
    ones, others = (guide_of(SCHEMAS[name], FORMS[form], kind) for kind in (SchemaLowering, FormulaLowering))
    random = Random(f"{name} {form}")
    for _ in range(5):
        one, other = ones.start, others.start
        for _ in range(40):
            assert np.array_equal(ones.mask(one), others.mask(other))
            assert ones.is_accepting(one) == others.is_accepting(other)
            left = ones.distance(one)
            assert left == others.distance(other)
            assert np.array_equal(ones.mask_within(one, left + 1), others.mask_within(other, left + 1))
            allowed = np.flatnonzero(ones.after_bytes(one) >= 0).tolist()
            if not allowed:
                break
            # Mostly what JSON is made of, lest all of a text is one string.
            telling = [byte for byte in allowed if byte in b'{}[]",:1nx\nab']
            byte = bytes((random.choice(telling if telling and random.random() < 0.9 else allowed),))
            one, other = ones.read(one, byte), others.read(other, byte)


@pytest.mark.parametrize("form", FORMS)
def test_a_stencil_serves_all_formulas_of_its_shape(form: str) -> None:
    known = stencils(FORMS[form])
    walked: list[int] = []
    for word in ("true", "false", "null"):
        schema = {"type": "object", "properties": {word: {"type": "array", "items": {"const": word}}}, **CLOSED}
        guide = guide_of(schema, FORMS[form], SchemaLowering)
        state = guide.start
        for byte in (
            f'{{"{word}":["{word}"]}}' if form in ("compact", "any") else f'{{\n "{word}": [\n  "{word}"\n ]\n}}'
        ):
            state = guide.read(state, byte.encode())
            assert guide.mask(state).any()
        assert guide.is_accepting(state)
        walked.append(len(known))
    assert walked[0] == walked[1] == walked[2] > 0


def test_no_more_stencils_are_kept_than_there_is_room_for() -> None:
    found = next(iter(stencils(FORMS["compact"]).items()), None)
    if found is None:
        guide_of({"type": "array"}, FORMS["compact"], SchemaLowering)
        found = next(iter(stencils(FORMS["compact"]).items()))
    shape, stencil = found
    known = {shape._replace(depth=depth): stencil for depth in range(1, MOST_STENCILS)}
    assert keep(known, shape._replace(depth=-1), stencil) is stencil
    assert keep(known, shape._replace(depth=-2), stencil) is stencil
    assert len(known) == MOST_STENCILS
