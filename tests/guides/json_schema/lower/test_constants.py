"""Many constants read together are the language of each on its own, equally far from its end."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from trellm.guides.automata.dfa import Dfa
from trellm.guides.json_guide import JSONGuide
from trellm.guides.json_schema.lower import formulas

from ..random_schemas import random_value
from ..test_guide_suite import BYTES


@pytest.mark.parametrize("order", ["any", "schema"])
@pytest.mark.parametrize("whitespace", ["compact", "pretty"])
@pytest.mark.parametrize("escapes", ["canonical", "any"])
def test_together_and_alone_are_the_same(
    order: Any, whitespace: Any, escapes: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = Random(3)
    for turn in range(6):
        values = [random_value(random, 2 + turn % 2) for _ in range(random.randrange(2, 9))]
        guides: list[JSONGuide] = []
        for few in (-1, 1000):
            monkeypatch.setattr(formulas, "FEW", few)
            given = {"enum": values, "$comment": f"{turn} {few}"}
            guides.append(JSONGuide(given, BYTES, order=order, whitespace=whitespace, escapes=escapes))
        ones, others = (Dfa.of(guide.automaton).minimised() for guide in guides)
        assert np.array_equal(ones.transitions, others.transitions)
        assert np.array_equal(ones.accepting, others.accepting)
        assert guides[0].distance(guides[0].start) == guides[1].distance(guides[1].start)
