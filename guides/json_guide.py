"""The guide for JSON Schema."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Mapping, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any, NamedTuple

from ..checks import check_choice, check_mapping
from ..errors import LimitError, OptionError, SchemaError
from ..tokenizers_adapter import Vocabulary
from .arguments import states_of, vocabulary_of
from .cached import LRUCache
from .chart.automaton import ChartAutomaton
from .distinct.distinct_guide import DistinctGuide
from .graph.array_graph import span_of
from .graph.graph import Graph
from .json_schema import CompiledSchema, Form, Order, SchemaLowering, SchemaOptions, Spacing, Spelling, check
from .json_schema.algebra.cases import Normal
from .json_schema.automata.spelling import PLAIN, Escapes
from .json_schema.coverage import (
    MAX_LEFT_OUT,
    KeywordCoverage,
    StrangeKeyword,
    Unenforced,
    coverage,
    separable,
    strange_keywords,
)
from .json_schema.final_check import FinalCheck
from .json_schema.lower.form import Whitespace
from .json_schema.lower.formulas import REMEMBERS
from .json_schema.lower.rules import RepeatMarks, WatchedRepeats
from .json_schema.outline import QUOTING, Outline, quoted_spans
from .json_schema.read.subschema import parsed, without
from .lift.lifted_guide import LiftedGuide
from .lift.tables import VocabularyTables
from .limits import Limits, Meter, check_cancelled
from .pictures import MAX_PICTURED, Drawable, Picture, PictureBuilder, refuse_tokens, shortened
from .quoting.quotation import Quote
from .quoting.source import Span

MAX_REMEMBERED = 256
# Guides that are evicted leave memory to later ones, several times faster than fresh memory from the system.
MAX_REMEMBERED_BYTES = 64 << 20
# Copies of the text of a cached schema in memory, and estimated bytes of a compiled subschema
OWN_COPIES, FOR_A_SUBSCHEMA = 3, 8192
LONG = 1 << 18
MAX_LINES = 12
"""Lines shown per part of a schema in a picture."""


SchemaSource = tuple[dict[str, Any] | bool | str, dict[str, Any]]
"""A schema and its resources."""


class EnforcedSchema(NamedTuple):
    """A schema that can be enforced.

    watch: the positions whose values must be remembered
    left_out: reasons of the keywords left out, by JSON pointer
    source: the original schema and resources
    formats: whether the standard formats are enforced
    """

    schema: CompiledSchema
    watch: WatchedRepeats
    left_out: dict[str, str]
    source: SchemaSource
    formats: bool


class JSONGuide(LiftedGuide, Drawable):
    """JSON texts of the values that satisfy a JSON Schema.

    schema: an object, true or false, or JSON text; drafts 4 to 2020-12, by its $schema
    order: of members, "any" order, or "schema" (in the order of the schema, others after them), the default of
        `generate.json`
    whitespace: "flexible" (a space after colons and commas, and lines indented by spaces or tabs, as json.dumps writes
    them with any indent), "compact", "pretty" (as json.dumps(indent=indent) writes), "any" (without bound), or a
    number (the most characters between two tokens, with none around the value)
    escapes: "canonical" (as json.dumps(ensure_ascii=False) escapes) or "any"
    spelling: of numbers, "any" that JSON allows, or "plain" (everyday notation), the default of `generate.json`
    resources: further schemas by URI; nothing is ever fetched
    contexts: texts that strings are quoted from, by the name used in the keyword "x-quote"; a text, several,
    or a `Quote`. Quoted strings are written with canonical escapes.
    formats: whether the standard formats are enforced
    max_cases: the most alternatives of one value
    unenforced: "refuse", or "allow" to leave out keywords that cannot be enforced; `coverage` lists them, and
    `unenforced_in` evaluates them on a text
    limits: bounds of each call, see `Limits`

    Raises SchemaError for an invalid schema, one without an instance, or one that cannot be enforced exactly,
    LimitError for one that is too large. Recently used schemas are cached, in about 64 MiB: compiling one again is
    almost free for JSON text, and takes 2 µs per kB for an object, which is compared in full because it may have been
    mutated.
    """

    compiled_from: tuple[SchemaSource, SchemaOptions, dict[str, Quote], Form, Unenforced]

    def __new__(
        cls,
        schema: Mapping[str, Any] | bool | str,
        vocabulary: Vocabulary,
        *,
        order: Order = "any",
        whitespace: Whitespace = "flexible",
        indent: int = 2,
        escapes: Escapes = "canonical",
        spelling: Spelling = "any",
        resources: Mapping[str, Any] | None = None,
        formats: bool = True,
        max_cases: int = 4096,
        contexts: Mapping[str, str | Sequence[str] | Quote] | None = None,
        unenforced: Unenforced = "refuse",
        limits: Limits | None = None,
    ) -> JSONGuide:
        """Compile a schema to a guide of the class that it requires, or return the cached guide."""
        check_choice(unenforced, "unenforced", ("refuse", "allow"))
        vocabulary = vocabulary_of(vocabulary, "JSONGuide")
        resources = check_mapping(resources, "resources", "URIs to schemas")
        contexts = check_mapping(contexts, "contexts", "names to texts")
        form = Form(order, Spacing(whitespace, indent), escapes, spelling)
        options = SchemaOptions(formats=formats, max_cases=max_cases)
        source = (dict(schema) if isinstance(schema, Mapping) else schema, dict(resources or {}))
        # Strings are immutable and cache their hash: the text of a large schema is not hashed again.
        text = schema if type(schema) is str and not resources else _text(source)
        quotes = {name: Quote.of(context) for name, context in (contexts or {}).items()}
        key = (_short(text), form, options, tuple(quotes.items()), unenforced, Limits.of(limits), id(vocabulary))
        known = remembered.get(key)
        if known is not None and not known.should_rebuild:
            check_cancelled()
            return known
        # A private copy, which the caller cannot mutate
        private = marshal.loads(text) if isinstance(text, bytes) else source
        with Meter(limits):
            found = _enforceable(private, options, quotes, form, unenforced)
            kind: Any = WatchingJSONGuide if found.watch.any else JSONGuide
            guide: JSONGuide = super().__new__(kind)
            guide.begin(found, form, vocabulary)
        guide.compiled_from = private, options, quotes, form, unenforced
        guide._made_of = {
            **dict(zip(("schema", "resources"), private, strict=True)),
            **{"vocabulary": vocabulary, "order": order, "whitespace": whitespace, "indent": indent},
            **{"escapes": escapes, "spelling": spelling, "formats": formats, "max_cases": max_cases},
            **{"contexts": quotes, "unenforced": unenforced, "limits": limits},
        }
        if text is not None:
            guide._schema_bytes = OWN_COPIES * len(text) + FOR_A_SUBSCHEMA * guide.schema.documents.count
            guide = remembered.add(key, guide, known)
        return guide

    @property
    def should_rebuild(self) -> bool:
        """True if a new guide should serve the next text: states that cannot be evicted hold too much memory."""
        return False

    def rebuild(self) -> JSONGuide:
        """Return a guide of the same schema, which shares nothing with this one if this one should be rebuilt."""
        return self._with_arguments()

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # `__new__` initialises the guide: its class depends on its schema.
        pass

    def begin(self, found: EnforcedSchema, form: Form, vocabulary: Vocabulary) -> None:
        """Initialise the guide of a schema that can be enforced."""
        schema, watch = found.schema, found.watch
        self.schema = schema
        self._formats = found.formats
        self._left_out = found.left_out
        self._final_check = FinalCheck(*_loaded(found.source), found.left_out) if found.left_out else None
        self._schema_bytes = 0
        tables = VocabularyTables.of(vocabulary)
        # Precomputed once per vocabulary, as almost all schemas need the mask of plain string characters.
        tables.loop_slice(span_of(PLAIN), at_once=True)
        self._watched_at = marks = RepeatMarks(set(), set())

        def make() -> tuple[Graph, int]:
            lowering = SchemaLowering(schema, form, marks, watch=watch)
            return lowering.graph, lowering.root()

        super().__init__(ChartAutomaton(make, horizon=tables.trie.deepest), vocabulary)

    def lower_into(self, graph: Graph) -> int:
        """Add the values to a graph and return the start node of their rule.

        The schema is compiled anew: its lowering caches nodes in it, which belong to one graph.
        """
        found = _enforceable(*self.compiled_from)
        return SchemaLowering(found.schema, self.compiled_from[3], graph=graph).root()

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """Draw the parts of the schema with the values that each has, and the references between them.

        `tokens` is refused: the automaton of a schema is infinite.
        """
        refuse_tokens(tokens, "a schema")
        most = states_of(max_states)
        drawn = PictureBuilder(most)
        with self._lock, self._meter:
            parts = Outline(self.schema, most + 1).parts()
        number = {part.title: drawn.box(part.title, _note(part.values)) for part in parts}
        for part in parts:
            for other in part.uses:
                drawn.arrow(number[part.title], number[other])
        return drawn.picture()

    @property
    def coverage(self) -> list[KeywordCoverage]:
        """Every keyword of the schema with its JSON pointer: enforced, annotation, or refused with the reason."""
        return coverage(self.schema, self._left_out, self._formats)

    @cached_property
    def strange_keywords(self) -> tuple[StrangeKeyword, ...]:
        """Keywords that look like misspellings, and a schema that looks like a value."""
        return tuple(strange_keywords(self.schema))

    def unenforced_in(self, text: str) -> dict[str, bool | None]:
        """Evaluate the keywords that were left out on a complete text; results by JSON pointer.

        None where the guide's limits do not suffice for a result. Raises OptionError for text that is not JSON,
        LimitError for text that is nested too deep.
        """
        if self._final_check is None:
            return {}
        with self._meter:
            return self._final_check.held(_value_of(text))

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of the guide, with its schema and its compiled parts."""
        return self.automaton.reserved_bytes + self._schema_bytes

    def spans(self, text: str) -> dict[str, Span]:
        """Return the places of the quoted strings in a text of this guide, by their JSON pointers.

        Raises OptionError for text that is not JSON, LimitError for text that is nested too deep.
        """
        if not self.schema.documents.mentions(QUOTING):
            return {}
        with self._meter:
            value = _value_of(text)
            try:
                return quoted_spans(self.schema, value)
            except RecursionError:
                raise _too_deep() from None

    def __repr__(self) -> str:
        return f"JSONGuide({self.schema.root!r})"

    def _content(self) -> Mapping[str, Any] | None:
        made_of = self._made_of or {}
        return {**made_of, "schema": _loaded((made_of["schema"], {}))[0]}


class WatchingJSONGuide(DistinctGuide, JSONGuide):
    """A JSONGuide that remembers items or member names that must differ and cannot be enumerated."""

    refuses_lowering = REMEMBERS

    def begin(self, found: EnforcedSchema, form: Form, vocabulary: Vocabulary) -> None:
        super().begin(found, form, vocabulary)
        watch = found.watch
        self.watch(
            self._watched_at.items,
            self._watched_at.names,
            remembers_names=watch.names,
            canonical=form.escapes == "canonical",
            by_bytes=watch.repeating or watch.names,
            beside_free=watch.beside_free,
            open_names=watch.open_names,
            scarce_names=watch.scarce_names,
        )

    @property
    def held_bytes(self) -> int:
        """Estimated bytes of the guide, with its trails."""
        return super().held_bytes + self.trail_bytes

    def _made_as(self) -> type[JSONGuide]:
        return JSONGuide


remembered: LRUCache[JSONGuide] = LRUCache(lambda guide: guide.held_bytes, MAX_REMEMBERED, MAX_REMEMBERED_BYTES)


def meaning_of(
    schema: dict[str, Any], resources: Mapping[str, Any], form: Form, unenforced: Unenforced, limits: Limits | None
) -> Normal:
    """Return the normal form of a schema without the keywords that a guide leaves out. Raises as `JSONGuide` does."""
    with Meter(limits):
        found = _enforceable((schema, dict(resources)), SchemaOptions(), {}, form, unenforced).schema
        return found.cases(found.root)


def _enforceable(
    source: SchemaSource, options: SchemaOptions, quotes: dict[str, Quote], form: Form, unenforced: Unenforced
) -> EnforcedSchema:
    """Compile the schema, without the keywords that cannot be enforced if `unenforced` is "allow"."""
    value, resources = source
    left_out: dict[str, str] = {}
    while True:
        try:
            schema = CompiledSchema(value, dict(resources), options, contexts=quotes)
            schema.check_has_instance()
            return EnforcedSchema(schema, check(schema, form), left_out, source, options.formats)
        except (SchemaError, LimitError) as error:
            pointer = separable(error.pointer or "") if unenforced == "allow" else None
            left = None if pointer is None else without(parsed(value), pointer)
            if pointer is None or left is None or len(left_out) == MAX_LEFT_OUT:
                raise
            left_out[pointer] = error.reason
            value = left


def _note(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_LINES:,} more lines"] if len(lines) > MAX_LINES + 1 else []
    shown = lines[:MAX_LINES] if more else lines
    return "\n".join([*(shortened(line.strip()) for line in shown), *more])


def _loaded(source: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """Parse the schema if it is JSON text."""
    schema, resources = source
    return (json.loads(schema, parse_int=_integer) if isinstance(schema, str) else schema), resources


def _integer(digits: str) -> int:
    """Convert digits of any length: int() refuses more than 4,300 digits."""
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))


def _value_of(text: str) -> Any:
    """Parse JSON text. Raises OptionError, LimitError."""
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise OptionError(f"the text is not JSON: {error}") from None


def _too_deep() -> LimitError:
    return LimitError("the text is nested too deep for Python's parser; bound the depth in the schema")


def _short(text: str | bytes | None) -> str | bytes | None:
    """Return the text as a cache key: itself, or a digest of a long one, so that the cache holds no second copy."""
    if text is None or len(text) < LONG:
        return text
    return hashlib.blake2b(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).digest()


def _text(value: Any) -> bytes | None:
    """Serialise a schema as a cache key. Equal schemas with equal order and sharing give equal bytes.

    Shared parts are written once; a schema may share its parts very often.
    """
    try:
        return marshal.dumps(value, 4)
    except ValueError:
        # Nested deeper than marshal allows, or not made of JSON types: not cached.
        return None
