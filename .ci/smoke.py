"""What an installed trellm must be able to do without a checkout: every kind of constraint, and its data files."""

from importlib.metadata import version
from pathlib import Path

import trellm
from trellm import Vocabulary, generate, models
from trellm.errors import SchemaError
from trellm.guides import JSONGuide

assert "site-packages" in Path(trellm.__file__).parts, trellm.__file__
model = models.ziplm("the cat sat on the mat. " * 20)
assert generate.regex(model, "[ab]{3}")("x", max_tokens=20) in {a + b + c for a in "ab" for b in "ab" for c in "ab"}
schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
assert isinstance(generate.json(model, schema)("x", max_tokens=60)["a"], int)
assert generate.cfg(model, 'start: "yes" | "no"')("x", max_tokens=5) in ("yes", "no")
assert generate.extract(model, "one two three")("x", max_tokens=20).text in "one two three"
# The published metaschemas are files of the package.
published = JSONGuide({"$ref": "https://json-schema.org/draft/2020-12/schema"}, Vocabulary.from_bytes())
assert published.distance(published.start) > 0
try:
    JSONGuide({"type": 5}, model.vocabulary)
except SchemaError as error:
    print(f"installed: trellm {version('trellm')}; refused: {str(error).splitlines()[0]}")
else:
    raise AssertionError("a schema that is none was taken")
