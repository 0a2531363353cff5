"""The guide for JSON Schema."""

from __future__ import annotations

import hashlib
import json
import marshal
from collections.abc import Callable, Hashable, Mapping, Sequence
from decimal import Decimal
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

from ..checks import mapping_of, one_of
from ..errors import LimitError, OptionError, SchemaError
from ..tokenizers_adapter import Vocabulary
from .chart.automaton import ChartAutomaton
from .distinct.distinct_guide import DistinctGuide
from .given import states_of, vocabulary_of
from .graph.array_graph import span_of
from .graph.graph import Graph
from .json_schema import CompiledSchema, Form, Order, SchemaLowering, SchemaOptions, Spacing, Spelling, check
from .json_schema.algebra.cases import Normal
from .json_schema.automata.spelling import PLAIN, Escapes
from .json_schema.coverage import (
    MOST_LEFT_OUT,
    Covered,
    StrangeKeyword,
    Unenforced,
    coverage,
    separable,
    strange_keywords,
)
from .json_schema.final_check import FinalCheck
from .json_schema.lower.form import Whitespace
from .json_schema.lower.formulas import REMEMBERS
from .json_schema.lower.rules import Marks, Watch
from .json_schema.outline import QUOTING, Outline, quoted_spans
from .json_schema.read.subschema import parsed, without
from .lift.lifted_guide import LiftedGuide
from .lift.tables import VocabularyTables
from .limits import Limits, Meter, check_cancelled
from .locks import new_lock
from .pictures import MAX_PICTURED, Drawable, Joined, Picture, refuse_tokens, shortened
from .quoting.quotation import Quote
from .quoting.source import Span

Value = TypeVar("Value")

WEIGHED_AT_ONCE = 1
"""How many values, which grow while they are used, are weighed again whenever one is added."""


class Remembered(Generic[Value]):
    """A cache of the values used last; safe between threads, and whatever interrupts it.

    weigh: the bytes that a value takes now; most: how many values are kept; most_bytes: and how much they weigh
    together, as far as known, but the last is always kept. Values should not refer to themselves: what is forgotten
    would be there until Python comes to look for such circles.
    """

    def __init__(self, weigh: Callable[[Value], int], most: int, most_bytes: int) -> None:
        self._weigh = weigh
        self.most = most
        self.most_bytes = most_bytes
        # The value used longest ago comes first, and the one weighed longest ago. Keys are compared by Python code,
        # which Ctrl-C may end: what is left then is a value without a weight, or the other way round.
        self._values: dict[Hashable, Value] = {}
        self._weights: dict[Hashable, int] = {}
        self._lock = new_lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: Hashable) -> Value | None:
        """The value of a key, if it is still known."""
        with self._lock:
            value = self._values.pop(key, None)
            if value is not None:
                self._values[key] = value
            return value

    def add(self, key: Hashable, value: Value, instead: Value | None = None) -> Value:
        """Keep a value, and forget others if that is too much; the value that is kept, which may be another thread's.

        instead: a value known of the key, which the new one replaces
        """
        with self._lock:
            found = self._values.pop(key, instead)
            if found is not instead and found is not None:
                value = found
            self._values[key] = value
            for weighed in (key, *islice(self._weights, WEIGHED_AT_ONCE)):
                self._weights.pop(weighed, None)
                if weighed in self._values:
                    self._weights[weighed] = self._weigh(self._values[weighed])
            while len(self._values) > 1 and (len(self._values) > self.most or self._total > self.most_bytes):
                forgotten = next(iter(self._values))
                self._weights.pop(forgotten, None)
                del self._values[forgotten]
            return value

    @property
    def _total(self) -> int:
        return sum(self._weights.values())


MAX_REMEMBERED = 256
# Memory of guides that are given up serves the next ones, several times faster than fresh memory from the system.
MAX_REMEMBERED_BYTES = 64 << 20
# How often the text of a remembered schema is there, and what a subschema comes to when it is worked out, in bytes
OWN_COPIES, FOR_A_SUBSCHEMA = 3, 8192
LONG = 1 << 18
MAX_LINES = 12
"""Of what is told of a part of a schema in a picture"""


Given = tuple[dict[str, Any] | bool | str, dict[str, Any]]
"""A schema and its resources."""


class Enforced(NamedTuple):
    """A schema that can be enforced: what is to be watched, what was left out by JSON pointer and why, and of what."""

    schema: CompiledSchema
    watch: Watch
    left_out: dict[str, str]
    given: Given
    formats: bool


class JSONGuide(LiftedGuide, Drawable):
    """JSON texts of the values that satisfy a JSON Schema.

    schema: an object, true or false, or JSON text; drafts 4 to 2020-12, by its $schema
    order: "any" (nothing in the language is refused), or "schema" (members in the order of the schema, others
    after them), which `generate.json` asks for
    whitespace: "flexible" (a space after colons and commas, and lines indented by spaces or tabs, as json.dumps writes
    them with any indent), "compact", "pretty" (as json.dumps(indent=indent) writes), "any", without bound, or a
    number, any up to so many characters between two tokens and none around the value
    escapes: "canonical" (as json.dumps(ensure_ascii=False) escapes) or "any"
    spelling: of numbers, "any" that JSON allows, or "plain" as people write them, which `generate.json` asks for
    resources: further schemas by URI; nothing is ever fetched
    contexts: texts that strings are quoted from, by the name that the keyword "x-quote" calls them; a text, several,
    or a `Quote`. Quoted strings are written with canonical escapes.
    formats: whether the standard formats are enforced; max_cases: how many alternatives one value may have
    unenforced: "refuse", or "allow" to leave out keywords that cannot be enforced; `coverage` names them, and
    `unenforced_in` says of a text whether they hold
    limits: what a call may take, see `Limits`
    Raises SchemaError for what is no schema, has no instance or cannot be enforced exactly, LimitError for
    what is too large. The schemas used last are remembered, in about 64 MiB: compiling one again costs next to
    nothing for JSON text, and 2 µs per kB for an object, which is compared in whole, as it may have been changed.
    """

    compiled_from: tuple[Given, SchemaOptions, dict[str, Quote], Form, Unenforced]

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
        """The guide of a schema, of the class that it takes: that of the last time where it is remembered."""
        one_of(unenforced, "unenforced", ("refuse", "allow"))
        vocabulary = vocabulary_of(vocabulary, "JSONGuide")
        resources = mapping_of(resources, "resources", "URIs to schemas")
        contexts = mapping_of(contexts, "contexts", "names to texts")
        form = Form(order, Spacing(whitespace, indent), escapes, spelling)
        options = SchemaOptions(formats=formats, max_cases=max_cases)
        given = (dict(schema) if isinstance(schema, Mapping) else schema, dict(resources or {}))
        # A text is never changed, and remembers its hash: that of a large schema is not read again.
        text = schema if type(schema) is str and not resources else _text(given)
        quotes = {name: Quote.of(context) for name, context in (contexts or {}).items()}
        key = (_short(text), form, options, tuple(quotes.items()), unenforced, Limits.of(limits), id(vocabulary))
        known = remembered.get(key)
        if known is not None and not known.is_worn:
            check_cancelled()
            return known
        # A copy that nobody else can change
        own = marshal.loads(text) if isinstance(text, bytes) else given
        with Meter(limits):
            found = _enforceable(own, options, quotes, form, unenforced)
            kind: Any = WatchingJSONGuide if found.watch.any else JSONGuide
            guide: JSONGuide = super().__new__(kind)
            guide.begin(found, form, vocabulary)
        guide.compiled_from = own, options, quotes, form, unenforced
        guide._made_of = {
            **dict(zip(("schema", "resources"), own, strict=True)),
            **{"vocabulary": vocabulary, "order": order, "whitespace": whitespace, "indent": indent},
            **{"escapes": escapes, "spelling": spelling, "formats": formats, "max_cases": max_cases},
            **{"contexts": quotes, "unenforced": unenforced, "limits": limits},
        }
        if text is not None:
            guide._schema_bytes = OWN_COPIES * len(text) + FOR_A_SUBSCHEMA * guide.schema.documents.count
            guide = remembered.add(key, guide, known)
        return guide

    @property
    def is_worn(self) -> bool:
        """Tell whether a guide should be made anew for the next text: states that cannot be forgotten take too much."""
        return False

    def renewed(self) -> JSONGuide:
        """Another guide of the same, which shares nothing with this one if this one is worn."""
        assert self._made_of is not None
        return JSONGuide(**self._made_of)

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # `__new__` has made all of it: which class a guide is of depends on its schema.
        pass

    def begin(self, found: Enforced, form: Form, vocabulary: Vocabulary) -> None:
        """Become the guide of a schema that can be enforced."""
        schema, watch = found.schema, found.watch
        self.schema = schema
        self._formats = found.formats
        self._left_out = found.left_out
        self._final_check = FinalCheck(*_loaded(found.given), found.left_out) if found.left_out else None
        self._schema_bytes = 0
        tables = VocabularyTables.of(vocabulary)
        # Once per vocabulary, rather than in the middle of the first text: what all strings but the odd one need.
        tables.loop_slice(span_of(PLAIN), at_once=True)
        self._watched_at = marks = Marks(set(), set())

        def make() -> tuple[Graph, int]:
            lowering = SchemaLowering(schema, form, marks, watch=watch)
            return lowering.graph, lowering.root()

        super().__init__(ChartAutomaton(make, horizon=tables.trie.deepest), vocabulary)

    def lower_into(self, graph: Graph) -> int:
        """Add the values to a graph; the start node of their rule.

        The schema is compiled anew: what lowering works out as it goes is kept with it, and belongs to one graph.
        """
        found = _enforceable(*self.compiled_from)
        return SchemaLowering(found.schema, self.compiled_from[3], graph=graph).root()

    def picture(self, *, tokens: bool = False, max_states: int = MAX_PICTURED) -> Picture:
        """The parts of the schema with the values that each has, all its rules worked out, and which refers to which.

        A schema's automaton has no end, and so no picture with `tokens`.
        """
        refuse_tokens(tokens, "a schema")
        most = states_of(max_states)
        drawn = Joined(most)
        with self._lock, self._meter:
            parts = Outline(self.schema, most + 1).parts()
        number = {part.title: drawn.box(part.title, _note(part.values)) for part in parts}
        for part in parts:
            for other in part.uses:
                drawn.arrow(number[part.title], number[other])
        return drawn.picture()

    @property
    def coverage(self) -> list[Covered]:
        """Every keyword of the schema with its JSON pointer: enforced, an annotation, or refused, with the reason."""
        return coverage(self.schema, self._left_out, self._formats)

    @property
    def strange_keywords(self) -> list[StrangeKeyword]:
        """Keywords that look like mistakes in writing, and a schema that looks like a value."""
        return strange_keywords(self.schema)

    def unenforced_in(self, text: str) -> dict[str, bool | None]:
        """By the JSON pointers of the keywords that were left out, whether they hold of a complete text.

        None where that cannot be told within the limits of the guide. Raises OptionError for what is no JSON text,
        LimitError for one that is nested too deep.
        """
        if self._final_check is None:
            return {}
        with self._meter:
            return self._final_check.held(_value_of(text))

    @property
    def held_bytes(self) -> int:
        """About how much memory the guide takes, its schema and what was worked out from it with it."""
        return self.automaton.reserved_bytes + self._schema_bytes

    def spans(self, text: str) -> dict[str, Span]:
        """The places of the quoted strings in a text of this guide, by their JSON pointers.

        Raises OptionError for what is no JSON text, LimitError for one that is nested too deep.
        """
        if not self.schema.mentions(QUOTING):
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
    """A JSONGuide that remembers items of arrays, or names in objects, which must differ and cannot be listed."""

    refuses_lowering = REMEMBERS

    def begin(self, found: Enforced, form: Form, vocabulary: Vocabulary) -> None:
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
        """About how much memory the guide takes, with what its texts have in such arrays."""
        return super().held_bytes + self.trail_bytes

    def _made_as(self) -> type[JSONGuide]:
        return JSONGuide


remembered: Remembered[JSONGuide] = Remembered(lambda guide: guide.held_bytes, MAX_REMEMBERED, MAX_REMEMBERED_BYTES)


def meaning_of(
    schema: dict[str, Any], resources: Mapping[str, Any], form: Form, unenforced: Unenforced, limits: Limits | None
) -> Normal:
    """The normal form of a schema, without what a guide of it would leave out. Raises what `JSONGuide` raises."""
    with Meter(limits):
        found = _enforceable((schema, dict(resources)), SchemaOptions(), {}, form, unenforced).schema
        return found.cases(found.root)


def _enforceable(
    given: Given, options: SchemaOptions, quotes: dict[str, Quote], form: Form, unenforced: Unenforced
) -> Enforced:
    """The schema, or if that is allowed, the schema without what cannot be enforced; what is to be watched."""
    value, resources = given
    left_out: dict[str, str] = {}
    while True:
        try:
            schema = CompiledSchema(value, dict(resources), options, contexts=quotes)
            schema.check_has_instance()
            return Enforced(schema, check(schema, form), left_out, given, options.formats)
        except (SchemaError, LimitError) as error:
            pointer = separable(error.pointer or "") if unenforced == "allow" else None
            left = None if pointer is None else without(parsed(value), pointer)
            if pointer is None or left is None or len(left_out) == MOST_LEFT_OUT:
                raise
            left_out[pointer] = error.reason
            value = left


def _note(lines: Sequence[str]) -> str:
    more = [f"and {len(lines) - MAX_LINES:,} more lines"] if len(lines) > MAX_LINES + 1 else []
    shown = lines[:MAX_LINES] if more else lines
    return "\n".join([*(shortened(line.strip()) for line in shown), *more])


def _loaded(given: tuple[Any, dict[str, Any]]) -> tuple[Any, dict[str, Any]]:
    """A schema as Python has it, read if it is text."""
    schema, resources = given
    return (json.loads(schema, parse_int=_whole) if isinstance(schema, str) else schema), resources


def _whole(digits: str) -> int:
    """A number of any length; int() refuses more than 4,300 digits."""
    return int(digits) if len(digits) < 4000 else int(Decimal(digits))


def _value_of(text: str) -> Any:
    """The value of a text. Raises OptionError, LimitError."""
    try:
        return json.loads(text, parse_int=_whole)
    except RecursionError:
        raise _too_deep() from None
    except ValueError as error:
        raise OptionError(f"the text is not JSON: {error}") from None


def _too_deep() -> LimitError:
    return LimitError("the text is nested too deep for Python to read it; this is fixed: bound the depth in the schema")


def _short(text: str | bytes | None) -> str | bytes | None:
    """The key of a text: itself, or a digest of a long one, which would be held besides the schema."""
    if text is None or len(text) < LONG:
        return text
    return hashlib.blake2b(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")).digest()


def _text(value: Any) -> bytes | None:
    """Bytes that equal schemas in equal order have in common, as far as equal parts of them are the same objects.

    A part that is there several times is written once, which a schema that shares its parts may do very often.
    """
    try:
        return marshal.dumps(value, 4)
    except ValueError:
        # Nested deeper than marshal goes, or made of other things than JSON: not remembered.
        return None
