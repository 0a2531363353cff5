"""What is remembered of places in which tokens do the same, against a guide that remembers nothing yet."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from trellm.guides import tokens_of

from ..json_schema.test_unique_items import END, SCHEMAS, VOCABULARY, guide_of


@pytest.mark.parametrize("number", range(len(SCHEMAS)))
def test_what_is_remembered_of_places_says_what_reading_anew_says(number: int) -> None:
    """ChartSteps and masks that are told by the places of other texts, against a guide that reads each text at once."""
    schema, random = SCHEMAS[number], Random(number)
    guide = guide_of(schema, whitespace="compact")
    letters = set(b'ab01"[]{},:truefals.e-')
    for text in range(8):
        state, data = guide.start, b""
        anew = guide_of({**schema, "title": f"anew {number} {text}"}, whitespace="compact")
        for _ in range(30):
            mask = guide.mask(state)
            again = anew.read(anew.start, data)
            assert np.array_equal(mask, anew.mask(again)), data
            assert guide.is_accepting(state) == anew.is_accepting(again)
            allowed = tokens_of(mask)
            few = [each for each in allowed if set(VOCABULARY.tokens[each] or b"") <= letters]
            token = random.choice(few or allowed)
            if token == END:
                break
            state, data = guide.advance(state, token), data + (VOCABULARY.tokens[token] or b"")
