"""A schema, loaded and checked, with its normal forms and witnesses computed on demand.

For a schema without an instance it finds a minimal set of contradictory keywords.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ...errors import LimitError, SchemaError
from ..quoting.quotation import Quote
from .algebra import strings
from .algebra.cases import Normal, Object, String
from .algebra.formula import EVERYTHING, NOTHING, Formula, Formulas
from .algebra.normalise import Normaliser
from .algebra.objects import member
from .algebra.strings import StringLanguage
from .automata.conjunction import Conjunction
from .read.dialects import is_array, is_object
from .read.documents import Documents, SchemaOptions
from .read.subschema import parsed, step_of, without
from .witness.instances import NO_INSTANCE
from .witness.objects import ANY_NAME
from .witness.strings import PatternLanguage
from .witness.witnesses import Witnesses, conflict

MAX_KEYWORDS = 120
"""Maximum number of keywords for `clashing`, which compiles a schema without each of them."""


def clashing(schema: Any, is_impossible: Callable[[Any], bool]) -> list[str]:
    """Return JSON pointers of a minimal set of keywords that no value satisfies together.

    Empty if the schema is large or undecidable. is_impossible: whether a schema has no value; may raise SchemaError and
    LimitError
    Keywords are removed one by one, outer ones first, and stay removed if the rest still has no value.
    """
    if _size(schema) > MAX_KEYWORDS:
        return []
    left, needed = deque(_members("#", schema)), list[str]()
    while left:
        pointer, value = left.popleft()
        smaller = without(schema, pointer)
        try:
            is_needless = is_impossible(smaller)
        except SchemaError:  # something refers to it
            is_needless = False
        except LimitError:
            return []
        if is_needless:
            schema = smaller
            continue
        inner = list(_members(pointer, value))
        left += inner
        if not inner:
            needed.append(pointer)
    return needed


def _members(pointer: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield (pointer, value) for the removable members of a value, also of objects in arrays."""
    if is_object(value):
        yield from ((f"{pointer}/{step_of(key)}", each) for key, each in value.items())
    elif is_array(value):
        for number, each in enumerate(value):
            yield from _members(f"{pointer}/{number}", each)


def _size(schema: Any) -> int:
    """Return the number of members of all objects in a schema."""
    size, left = 0, [schema]
    while left:
        each = left.pop()
        if is_object(each):
            size += len(each)
            left += each.values()
        elif is_array(each):
            left += each
    return size


class CompiledSchema:
    """A schema as a formula `root`, whose normal form is computed on demand.

    schema: an object (kept, so it must not change afterwards), true or false, or JSON text
    resources: further schemas by URI, as nothing is fetched; contexts: contexts of x-quote, by name
    Raises SchemaError for a malformed schema, LimitError for one that is too large.
    """

    def __init__(
        self,
        schema: dict[str, Any] | bool | str,
        resources: Mapping[str, Any] | None = None,
        options: SchemaOptions | None = None,
        language: StringLanguage | None = None,
        contexts: Mapping[str, Quote] | None = None,
    ) -> None:
        options = options or SchemaOptions()
        value = self._document = parsed(schema)
        self._resources, self._options, self._contexts = resources, options, contexts
        self.language: StringLanguage = language or PatternLanguage()
        self.formulas = Formulas()
        self.documents = Documents(resources or {}, self.language.check, contexts)
        self._normaliser = Normaliser(self.documents, self.formulas, self.language, options)
        self._witnesses = Witnesses(self._normaliser)
        # Conjunctions built by checks before there is a graph, reused by the lowering
        self.conjunctions: dict[String, Conjunction] = {}
        # Unlisted names of objects in which they are counted, for the same purpose
        self.free_names: dict[Object, Any] = {}
        if isinstance(value, bool):
            self.root = EVERYTHING if value else NOTHING
        else:
            self.root = self._normaliser.enter(self.documents.load(value))

    def check_has_instance(self) -> None:
        """Raise SchemaError, with the place of the conflict, if no value satisfies the schema."""
        if self.has_instance(self.root):
            return
        place = conflict(self.root, self._witnesses)
        several = clashing(self._document, self._is_impossible)
        conflicts = f": {', '.join(several[:-1])} and {several[-1]} exclude each other" if len(several) > 1 else ""
        raise SchemaError(f"no value satisfies this schema{conflicts}", place)

    def _is_impossible(self, schema: Any) -> bool:
        """Test whether another schema, with the same resources and options, has no value."""
        compiled = CompiledSchema(schema, self._resources, self._options, self.language, self._contexts)
        return not compiled.has_instance(compiled.root)

    def normal(self, formula: Formula) -> Normal:
        """Return the normal form of a formula; some alternatives may have no instance."""
        return self._normaliser.normal(formula)

    def cases(self, formula: Formula) -> Normal:
        """Return the normal form of a formula in which every alternative has an instance."""
        return self._witnesses.cases(formula)

    def has_instance(self, formula: Formula) -> bool:
        """Test whether any value satisfies a formula."""
        return formula is not NOTHING and self._witnesses.has_instance(formula)

    def minimal_instance(self, formula: Formula) -> Any:
        """Return a small value that satisfies a formula. Raises SchemaError if there is none."""
        witness = self._witnesses.find(formula)
        if witness is NO_INSTANCE:
            raise SchemaError("no value satisfies this schema", "#")
        return witness

    def several(self, formula: Formula, count: int) -> list[Any]:
        """Return up to `count` different values of a formula; fewer if others do not exist or are hard to find."""
        return self._witnesses.several(formula, count, self._witnesses.find)

    def member(self, case: Object, name: str) -> Formula:
        """Return the formula of the member called `name` of an object, rules included."""
        return member(case, name, self.formulas, self.language)

    def regions(self, case: Object) -> list[tuple[String, Formula]]:
        """Return disjoint sets of the names outside `case.properties`, with the formula of each.

        Names in no set are forbidden, or their formula has no instance.
        """
        regions = self._witnesses.objects.regions(case, ANY_NAME)
        return [(names, formula) for names, formula in regions if self.has_instance(formula) and self._has_name(names)]

    def _has_name(self, names: String) -> bool:
        """Test whether a set of names is not empty; a member must not begin without a possible name."""
        try:
            return not (names.patterns or names.not_patterns) or not self.language.is_empty(names)
        except LimitError:
            return True

    def accepts(self, formula: Formula, value: Any) -> bool:
        """Test whether a JSON value satisfies a formula, by its normal form alone."""
        return self._witnesses.membership.accepts(formula, value)

    def constants(self, formula: Formula) -> list[Any] | None:
        """Return the values of a formula, if they are finitely many constants; else None."""
        normal = self.cases(formula)
        if normal.arrays or normal.objects:
            return None
        found: list[Any] = [None] if normal.null else []
        found += sorted(normal.booleans)
        for case in (*normal.numbers, *normal.strings):
            if case.values is None:
                return None
            found += sorted(case.values)
        return found + list(normal.constants)

    def overlaps(self, a: String, b: String) -> bool:
        """Test whether two sets of strings overlap."""
        both = strings.intersect(a, b, self.language)
        return both is not None and not self.language.is_empty(both)
