"""Random schemas and values: does a guide read just those values that jsonschema takes for instances?

    python benchmarks/json_pairs.py [--pairs N] [--first SEED] [--seconds N] [--save]

Schemas and values come from the small world of `tests/guides/json_schema/random_schemas.py`, 40 values to a schema,
each written at random in one of the ways that JSON allows. The drafts take turns, and formats are asserted, those of
the latest draft in all. For every pair the normal form of the schema and the guide, byte by byte, are asked. What is
refused (by a limit, or as it cannot be enforced) is counted; a schema of which a guide says that it has no instance
must have none among the values. A run goes through seeds from --first on until it has N pairs or took so many seconds
of this process; every difference is printed with its seed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from random import Random
from typing import Any

from recording import pin_to_one_core, save, show

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "guides" / "json_schema"))

from random_schemas import DRAFTS, random_document, random_value

VALUES = 40


def written(random: Random, value: Any) -> str:
    """A value as JSON, with or without white space, its members in any order."""
    if isinstance(value, dict):
        value = dict(random.sample(list(value.items()), len(value)))
    return json.dumps(value, indent=random.choice([None, None, 1]), separators=random.choice([None, (",", ":")]))


def compared(seed: int, vocabulary: Any) -> dict[str, Any]:
    """What came of the schema of a seed: the pairs, the valid ones, and the differences."""
    from jsonschema import FormatChecker
    from jsonschema.validators import validator_for
    from trellm.errors import LimitError, SchemaError
    from trellm.guides import JSONGuide
    from trellm.guides.json_schema import CompiledSchema

    random = Random(seed)
    schema = random_document(random, [*DRAFTS.values()][seed % len(DRAFTS)])
    if schema is None:
        return {}
    values = [random_value(random) for _ in range(VALUES)]
    try:
        compiled = CompiledSchema(schema)
        compiled.check_has_instance()
        guide = JSONGuide(schema, vocabulary, order="any", whitespace="any", escapes="any")
        ours = [compiled.accepts(compiled.root, value) for value in values]
    except LimitError:
        return {"limited": 1}
    except SchemaError as error:
        if error.reason != "no value satisfies this schema":
            return {"refused": 1}
        guide, ours = None, [False] * VALUES
    kind = validator_for(schema)
    oracle = kind(schema, format_checker=FormatChecker())
    expected = [oracle.is_valid(value) for value in values]
    try:
        read = [guide is not None and reads(guide, written(random, value)) for value in values]
    except SchemaError as error:
        return {"wrong": [f"seed {seed}: found out too late: {error}"]}
    wrong = [
        f"seed {seed}: {json.dumps(value)} valid: {valid}; normal form: {formal}, guide: {textual}"
        for value, valid, formal, textual in zip(values, expected, ours, read, strict=True)
        if not valid == formal == textual
    ]
    return {"pairs": VALUES, "valid": sum(expected), "empty": int(guide is None), "wrong": wrong}


def reads(guide: Any, text: str) -> bool:
    """Whether a text is an instance."""
    state = guide.read(guide.start, text.encode())
    return state >= 0 and guide.is_accepting(state)


def main() -> None:
    """Compare seed after seed."""
    parser = argparse.ArgumentParser(description="Random schemas and values against jsonschema")
    parser.add_argument("--pairs", type=int, default=1_000_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="of this process")
    parser.add_argument("--save", action="store_true", help="write results/json_pairs.csv")
    arguments = parser.parse_args()
    pin_to_one_core()
    from trellm import Vocabulary

    vocabulary = Vocabulary.from_bytes()
    row = dict.fromkeys(("schemas", "pairs", "valid", "empty", "refused", "limited", "wrong"), 0)
    seed, start = arguments.first, time.process_time()
    while row["pairs"] < arguments.pairs and time.process_time() - start < arguments.seconds:
        found = compared(seed, vocabulary)
        for line in found.pop("wrong", []):
            print(line, flush=True)
            row["wrong"] += 1
        for name, count in found.items():
            row[name] += count
        row["schemas"] += bool(found)
        seed += 1
    rows = [{"first": arguments.first, "last": seed - 1, **row, "seconds": time.process_time() - start}]
    show(rows)
    if arguments.save:
        print(save("json_pairs", rows, ["trellm", "jsonschema"]))
    if row["wrong"]:
        sys.exit(1)


if __name__ == "__main__":
    main()
