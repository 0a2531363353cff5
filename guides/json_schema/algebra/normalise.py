"""Formulas to normal forms: negation pushed inward, conjunctions multiplied out type by type, on demand.

The algebra follows "Witness Generation for JSON Schema" (Attouche et al., VLDB 2022): every type has its own
disjunction of cases, and members of arrays and objects stay formulas, so rewriting stops at each container.

The schema of `propertyNames` applies to names, not to the object, and may refer to the schema around. A separate
normaliser for strings alone therefore computes its strings. It computes the refused names, so formats use their
supersets.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from ....errors import LimitError, SchemaError
from ...limits import spend
from ..read.dialects import as_written, exact, is_array, is_number, is_object, only_strings
from ..read.documents import Documents, SchemaOptions
from ..read.subschema import Subschema
from . import annotations, arrays, numbers, objects, strings, translate
from .alternatives import covers, tags, union, without_absorbed
from .cases import (
    ANY,
    ANY_ARRAY,
    ANY_NUMBER,
    ANY_OBJECT,
    ANY_STRING,
    BOOLEANS,
    NONE,
    Array,
    GroupKind,
    ManyError,
    Normal,
    Number,
    Object,
    Rule,
    String,
)
from .formula import EVERYTHING, NOTHING, BusyError, DeepError, Formula, Formulas, conjuncts
from .membership import Membership
from .strings import StringLanguage


def constants(by_key: Mapping[Any, Any]) -> Normal:
    """Return the normal form of exactly these constants, by their keys."""
    if only_strings(by_key.values()):
        return Normal(strings=(strings.of_values(by_key.values()),) if by_key else ())
    texts = frozenset(value for value in by_key.values() if isinstance(value, str))
    written = [value for value in by_key.values() if is_number(value)]
    values = frozenset(map(exact, written))
    return Normal(
        any(value is None for value in by_key.values()),
        frozenset(value for value in by_key.values() if isinstance(value, bool)),
        (Number(values=values, texts=frozenset(map(as_written, written))),) if values else (),
        (strings.of_values(texts),) if texts else (),
        constants=tuple(value for value in by_key.values() if (is_array(value) or is_object(value))),
    )


def as_case(value: Any, formulas: Formulas) -> Array | Object:
    """Return the case that contains exactly one array or object."""
    if is_object(value):
        properties = {name: formulas.values((content,)) for name, content in value.items()}
        others = Rule(String(excluded=frozenset(value)), NOTHING)
        return Object(properties, (others,), frozenset(value))
    prefix = tuple(formulas.values((item,)) for item in value)
    return Array(prefix, min_items=len(prefix), max_items=len(prefix))


MAX_GLANCES = 3
MIN_PAIRS, PAIRS_PER_CASE = 32_768, 8
"""Maximum number of pairs of alternatives examined for one formula; real schemas need a few thousand."""

MAX_MULTIPLIED = 32
"""Maximum number of object cases before alternatives are held in groups."""

STEPS_PER_PAIR = 300
"""Work of testing whether two alternatives meet."""

MAX_NESTING = 100
"""Maximum recursion depth of formulas within one another."""

Case = TypeVar("Case")


class Normaliser:
    """Computes and caches normal forms; of strings only, if `only_strings`."""

    def __init__(
        self,
        documents: Documents,
        formulas: Formulas,
        language: StringLanguage,
        options: SchemaOptions,
        *,
        only_strings: bool = False,
    ) -> None:
        self.documents = documents
        self.formulas = formulas
        self.language = language
        self.max_cases = options.max_cases
        self._options = options
        self._only_strings = only_strings
        # No reference cycle, so that an unused schema is freed at once
        itself = weakref.proxy(self)
        self.membership = Membership(formulas, language, lambda formula: itself.normal(formula))
        self._normals: dict[Formula, Normal] = {EVERYTHING: ANY, NOTHING: NONE}
        self._meaning: dict[Formula, Formula] = {}
        self._busy: dict[Formula, None] = {}  # outermost first
        self._clashing: dict[Formula, bool] = {}
        self._glances = 0
        self._pairs = 0
        self._max_pairs = max(MIN_PAIRS, PAIRS_PER_CASE * options.max_cases)

    def normal(self, formula: Formula) -> Normal:
        """Return the normal form. Its alternatives may be empty.

        Raises SchemaError for a reference loop without progress, LimitError where too many alternatives or nested
        combinators arise; both with the place.
        """
        known = self._normals.get(formula)
        if known is not None:
            return known
        if formula in self._busy:
            if self._glances:
                raise BusyError
            raise self._loop(formula)
        if len(self._busy) >= MAX_NESTING:
            raise DeepError(formula)
        if self._busy:
            return self._worked_out(formula)
        self._pairs = 0
        return self._from_below(formula)

    def _from_below(self, formula: Formula) -> Normal:
        """Return the normal form of a formula, computing deeply nested ones first, iteratively."""
        waiting = {formula: None}
        while True:
            last = next(reversed(waiting))
            try:
                result = self._worked_out(last)
            except DeepError as error:
                if error.args[0] in waiting:
                    raise self._loop(formula) from None
                waiting[error.args[0]] = None
                continue
            except LimitError as error:
                error.locate(self.formulas.pointer_of(last))
                raise
            del waiting[last]
            if not waiting:
                return result

    def _worked_out(self, formula: Formula) -> Normal:
        spend(500)
        self._busy[formula] = None
        try:
            result = self._work_out(formula)
        except LimitError as error:
            if self.formulas.is_placed(formula):
                error.locate(self.formulas.pointer_of(formula))
            raise
        finally:
            del self._busy[formula]
        if self._only_strings:
            result = replace(NONE, strings=result.strings)
        result = self._normals[formula] = self._together(result)
        return result

    def _together(self, normal: Normal) -> Normal:
        """Return the same values with fewer alternatives, merging some."""
        if max(map(len, (normal.numbers, normal.strings, normal.objects))) < 2:
            return normal
        return replace(
            normal,
            numbers=numbers.together(normal.numbers),
            strings=strings.together(normal.strings),
            objects=objects.together(normal.objects, self.formulas),
        )

    def _loop(self, formula: Formula) -> SchemaError:
        """Return the error for a formula that contains itself, with the innermost reference known."""
        parts = [formula]
        for part in parts:
            parts += part.parts
        place = next((part for part in (*reversed(self._busy), *parts) if part.kind == "schema"), formula)
        return SchemaError("a reference leads back to itself without progress", self.formulas.pointer_of(place))

    def _work_out(self, formula: Formula) -> Normal:
        match formula.kind:
            case "schema":
                return self.normal(self.meaning(formula))
            case "plain":
                return formula.subject
            case "names":
                return self._named(formula)
            case "values":
                return constants(formula.subject)
            case "all":
                return self.conjunction(self._conjuncts(formula))
            case "any":
                return union([self.normal(part) for part in formula.parts])
            case "one":
                return self._exactly_one(formula.parts, EVERYTHING)
            case _:
                return self._negation(formula.parts[0])

    def _conjuncts(self, formula: Formula) -> Iterator[Normal]:
        """Yield the normal forms of a conjunction's parts; of all but the last at once, if cached.

        Choices of exactly one come last, restricted to the other parts: a discriminator member is often required by
        those.
        """
        parts = formula.parts
        before = self._normals.get(self.formulas.before_last(formula))
        if before is not None and not any(case.either for case in before.objects):
            yield before
            parts = parts[-1:]
        choices = {part: choice for part in parts if (choice := self._choice(part)) is not None}
        yield from (self.normal(part) for part in parts if part not in choices)
        if choices:
            context = self.formulas.all_of(part for part in formula.parts if part not in choices)
            yield from (self._exactly_one(choice.parts, context) for choice in choices.values())

    def _choice(self, formula: Formula) -> Formula | None:
        """Return the exclusive choice that a formula stands for, if it has not been normalised."""
        if formula in self._normals:
            return None
        choice = self.meaning(formula) if formula.kind == "schema" else formula
        return choice if choice.kind == "one" and choice not in self._normals else None

    def _negation(self, formula: Formula) -> Normal:
        refuse = self.formulas.negation
        match formula.kind:
            case "schema":
                return self.normal(refuse(self.meaning(formula)))
            case "all":
                return union([self.normal(refuse(part)) for part in formula.parts])
            case "any":
                return self.conjunction(self.normal(refuse(part)) for part in formula.parts)
            case "one":
                parts = formula.parts
                none = self.formulas.all_of(map(refuse, parts))
                pairs = (self.formulas.all_of((parts[i], parts[j])) for i in range(len(parts)) for j in range(i))
                return union([self.normal(none), *map(self.normal, pairs)])
            case _:
                return self.complement(self.normal(formula))

    # The meaning of subschemas

    def meaning(self, formula: Formula) -> Formula:
        """Return a subschema as a conjunction of its own bounds and of formulas over its parts."""
        known = self._meaning.get(formula)
        if known is None:
            known = self._meaning[formula] = self._read(formula)
        return known

    def enter(self, root: Subschema) -> Formula:
        """Return the formula of a document's root."""
        return translate.ScopedSchema(root, (), self.formulas, self.documents).enter(root)

    def _read(self, formula: Formula) -> Formula:
        schema, scope = formula.subject
        place = translate.ScopedSchema(schema, scope, self.formulas, self.documents)
        try:
            return self._read_at(place)
        except LimitError as error:
            error.locate(place.schema.pointer)
            raise

    def _read_at(self, place: translate.ScopedSchema) -> Formula:
        if place.schema.resource.dialect.ref_alone and place.has("$ref"):
            return self.formulas.all_of(translate.references(place))
        if place.has("unevaluatedItems") or place.has("unevaluatedProperties"):
            return annotations.formula_of(place, self._conditions, self.language, self.max_cases)
        return self.formulas.all_of(self._conditions(place))

    def _conditions(self, place: translate.ScopedSchema) -> list[Formula]:
        """Return the conjuncts of a subschema, without its unevaluated members."""
        found = translate.groups(place)
        bounds = translate.plain(place, found, self._options.formats) if found & translate.BOUNDS else ANY
        parts: list[Formula] = [] if bounds is ANY else [self.formulas.plain(bounds)]
        if found & (translate.JOIN | translate.VALUES):
            parts.extend(translate.joined(place))
        return parts

    def _named(self, formula: Formula) -> Normal:
        """Return objects whose member names satisfy a formula, and all other values."""
        if self._only_strings:
            return ANY
        refused = self._of_names.normal(self.formulas.negation(formula.subject)).strings
        return replace(ANY, objects=(Object(rules=tuple(Rule(strings.perhaps(case), NOTHING) for case in refused)),))

    @cached_property
    def _of_names(self) -> Normaliser:
        return Normaliser(self.documents, self.formulas, self.language, self._options, only_strings=True)

    # Exclusive choices

    def _exactly_one(self, parts: Sequence[Formula], context: Formula) -> Normal:
        """Return the values that satisfy exactly one of the formulas.

        A discriminator member with different constants often separates the alternatives. Then none needs to be refuted,
        and the quadratic number of pairs is not examined.
        context: a formula known to hold of all values; the result may be larger outside it
        """
        within = [self.formulas.all_of((context, part)) for part in parts]
        normals = [self.normal(formula) for formula in within]
        tagged = tags(normals, self.meaning)
        # Objects told apart by a member are disjoint; values of other types are still compared.
        beside = [replace(normal, objects=()) if tagged else normal for normal in normals]
        found: list[Normal] = []
        for index, chosen in enumerate(parts):
            apart = [tagged is not None and tagged[index].isdisjoint(tagged[at]) for at in range(len(parts))]
            others = [part for at, part in enumerate(parts) if at != index and not apart[at]]
            rest = (normal for normal, is_apart in zip(beside, apart, strict=True) if is_apart)
            outside = (self.complement(normal) for normal in rest if not normal.is_empty)
            found.append(self.conjunction(chain((self._only(chosen, within[index], others),), outside)))
        return union(found)

    def _only(self, chosen: Formula, within: Formula, others: Iterable[Formula]) -> Normal:
        """Return the values that satisfy one formula and none of the others; disjoint ones need no negation.

        within: the formula and its context
        """
        holding = conjuncts(chosen, frozenset(), self.meaning)
        refuted: list[list[Formula]] = []
        for other in others:
            if not self.clashes(chosen, other) and (within is chosen or not self.clashes(within, other)):
                left = conjuncts(other, frozenset(holding), self.meaning)
                refuted.append([part for part, leaf in left.items() if leaf])
        found = self.normal(chosen)
        try:
            for left in refuted:
                found = union([self._difference(found, part) for part in left])
        except ManyError:
            negated = (self.formulas.any_of(map(self.formulas.negation, left)) for left in refuted)
            return self.conjunction(map(self.normal, (chosen, *negated)))
        return found

    # Products and sums of normal forms

    def conjunction(self, normals: Iterable[Normal]) -> Normal:
        """Return the conjunction of normal forms."""
        result, joined, held = ANY, list[Normal](), False
        for normal in normals:
            joined.append(normal)
            try:
                result = self._conjoin(result, normal, held)
            except ManyError:
                held, result = True, ANY
                for each in joined:
                    result = self._conjoin(result, each, held)
            if result.is_empty:
                break
        return result

    def _conjoin(self, a: Normal, b: Normal, held: bool) -> Normal:
        """Return the conjunction of two normal forms, object alternatives held in groups or multiplied out."""
        if a is ANY:
            return b
        if b is ANY:
            return a
        a_constants, a_arrays, a_objects = self._accepted_constants(a.constants, b, self.membership.in_containers)
        b_constants, b_arrays, b_objects = self._accepted_constants(b.constants, a, self.membership.in_cases)
        return Normal(
            a.null and b.null,
            a.booleans & b.booleans,
            numbers.product(a.numbers, b.numbers, self._multiplied_numbers),
            self._string_product(a.strings, b.strings),
            self._product(a.arrays + a_arrays, b.arrays + b_arrays, ANY_ARRAY, self._both_arrays),
            self._object_product(a.objects + a_objects, b.objects + b_objects, held),
            a_constants + b_constants,
        )

    def _accepted_constants(
        self, constants: tuple[Any, ...], normal: Normal, accepts: Callable[[Normal, Any], bool]
    ) -> tuple[tuple[Any, ...], tuple[Array, ...], tuple[Object, ...]]:
        """Return the constants that a normal form accepts; those that are undecided while it is computed, as cases."""
        accepted: list[Any] = []
        cases: list[Array | Object] = []
        self._glances += 1
        try:
            for value in constants:
                spend(100)
                try:
                    if accepts(normal, value):
                        accepted.append(value)
                except BusyError:
                    cases.append(as_case(value, self.formulas))
        finally:
            self._glances -= 1
        return (
            tuple(accepted),
            tuple(case for case in cases if isinstance(case, Array)),
            tuple(case for case in cases if isinstance(case, Object)),
        )

    def _product(
        self,
        a: tuple[Case, ...],
        b: tuple[Case, ...],
        any_case: Case,
        intersect: Callable[[Case, Case], Case | None],
        most: int | None = None,
    ) -> tuple[Case, ...]:
        """Return the intersection of two unions. Raises ManyError for more than `most` cases, if given."""
        if not a or not b:
            return ()
        if a == (any_case,):
            return b
        if b == (any_case,):
            return a
        found: dict[Case, None] = {}
        for ours in a:
            # If one alternative holds anyway, the others add nothing.
            held = any(covers(theirs, ours) for theirs in b)
            for case in (ours,) if held else (intersect(ours, theirs) for theirs in b):
                if case is None:
                    continue
                parts: list[Any] = self._settled(case) if isinstance(case, Object) else [case]
                found.update(dict.fromkeys(parts))
            self._pairs += 1 if held else len(b)
            spend(1000 if held else 1000 * len(b))
            if most is not None and (len(found) > most or self._pairs > self._max_pairs):
                raise ManyError
            if len(found) > self.max_cases or self._pairs > self._max_pairs:
                raise LimitError(
                    f"the schema falls into more than {self.max_cases} alternatives for one value, or takes as long "
                    "as if it did; the option max_cases raises the limit"
                )
        return without_absorbed(tuple(found))

    def _object_product(self, a: tuple[Object, ...], b: tuple[Object, ...], held: bool) -> tuple[Object, ...]:
        """Return `_product` of objects. Raises ManyError if they must be held in groups and are not yet."""
        if not held:
            most = max(MAX_MULTIPLIED, len(a), len(b))
            result = self._product(a, b, ANY_OBJECT, self.both_objects, PAIRS_PER_CASE * most)
            if len(result) > most:
                raise ManyError
            return result
        if a != (ANY_OBJECT,) and b != (ANY_OBJECT,):
            # Alternatives without groups become one group.
            a, b = (side if _is_grouped(side) else (Object(either=(side,)),) for side in (a, b))
            if min(len(a), len(b)) == 1:
                spend(1000 * max(len(a), len(b)))
                pairs = (self.both_objects(ours, theirs) for ours in a for theirs in b)
                return without_absorbed(tuple(case for case in pairs if case is not None))
        return self._product(a, b, ANY_OBJECT, self.both_objects)

    def _string_product(self, a: tuple[String, ...], b: tuple[String, ...]) -> tuple[String, ...]:
        """Return `_product` of strings; names in rules have no groups."""
        if self._only_strings:
            return self._multiplied(a, b, None)
        return strings.product(a, b, self._multiplied, self.language)

    def _multiplied(self, a: tuple[String, ...], b: tuple[String, ...], most: int | None) -> tuple[String, ...]:
        return self._product(a, b, ANY_STRING, lambda a, b: strings.intersect(a, b, self.language), most)

    def _multiplied_numbers(self, a: tuple[Number, ...], b: tuple[Number, ...], most: int | None) -> tuple[Number, ...]:
        return self._product(a, b, ANY_NUMBER, numbers.intersect, most)

    def _both_arrays(self, a: Array, b: Array) -> Array | None:
        return arrays.intersect(a, b, self.formulas, self.clashes)

    def both_objects(self, a: Object, b: Object) -> Object | None:
        """Return the intersection of two cases; None if a shallow check finds it empty."""
        case = objects.intersect(a, b, self.formulas, self.language, self.clashes)
        if case is None or not case.either:
            return case
        kind = GroupKind(self.both_objects, objects.covers, lambda groups: Object(either=tuple(groups)))
        return kind.within(replace(case, either=()), case.either)

    def _settled(self, case: Object) -> list[Object]:
        """Return the case as alternatives, where its `some` rules allow only known names."""
        return objects.settled(case, self.formulas, self.language, self.clashes)

    def complement(self, normal: Normal) -> Normal:
        """Return the complement of a normal form."""
        array_cases: tuple[Array, ...] = (ANY_ARRAY,)
        constants = [as_case(value, self.formulas) for value in normal.constants]
        number_cases: tuple[Number, ...] = (ANY_NUMBER,)
        string_cases: tuple[String, ...] = (ANY_STRING,)
        for number in normal.numbers:
            others = tuple(numbers.complement(number))
            number_cases = numbers.product(number_cases, others, self._multiplied_numbers)
        for string in normal.strings:
            outside = tuple(strings.refutation(string))
            string_cases = self._string_product(string_cases, outside)
        for array in (*normal.arrays, *(case for case in constants if isinstance(case, Array))):
            lists = tuple(arrays.complement(array, self.formulas))
            array_cases = self._product(array_cases, lists, ANY_ARRAY, self._both_arrays)
        constant_objects = (case for case in constants if isinstance(case, Object))
        outside = (replace(NONE, objects=self._outside(case)) for case in (*normal.objects, *constant_objects))
        return Normal(
            not normal.null,
            BOOLEANS - normal.booleans,
            number_cases,
            string_cases,
            array_cases,
            self.conjunction(outside).objects,
        )

    def _difference(self, normal: Normal, formula: Formula) -> Normal:
        """Return the difference of a normal form and a formula. Raises ManyError for too many object cases."""
        if formula.kind == "not":
            return self._conjoin(normal, self.normal(formula.parts[0]), False)
        other = self.normal(formula)
        if normal.constants or other.constants:
            return self._conjoin(normal, self.complement(other), False)
        rest = replace(normal, objects=())
        if not rest.is_empty:
            rest = self._conjoin(rest, self.complement(replace(other, objects=())), False)
        left = list(normal.objects)
        for case in other.objects:
            left = [part for one in left for part in self._parts_outside(one, case)]
            if len(left) > MAX_MULTIPLIED:
                raise ManyError
        return replace(rest, objects=without_absorbed(tuple(left)))

    def _parts_outside(self, case: Object, other: Object) -> tuple[Object, ...]:
        """Return the objects of a case outside another one. Raises ManyError for too many cases."""
        if case.either or other.either or case.some or other.some:
            others = self._outside(other)
        elif not objects.meet(case, other, self.formulas, self.language, self.clashes):
            return (case,)
        else:
            others = tuple(objects.complement(other, self.formulas, case))
        return self._product((case,), others, ANY_OBJECT, self.both_objects, MAX_MULTIPLIED)

    def _outside(self, case: Object) -> tuple[Object, ...]:
        """Return the objects outside a case."""
        others = (self.both_objects(ANY_OBJECT, other) for other in objects.complement(case, self.formulas))
        return tuple(other for other in others if other is not None)

    def clashes(self, a: Formula, b: Formula) -> bool:
        """Test whether a shallow check finds that no value satisfies both formulas."""
        formula = self.formulas.all_of((a, b))
        if formula in self._normals:
            return self._normals[formula].is_empty
        known = self._clashing.get(formula)
        if known is not None or self._glances >= MAX_GLANCES:
            return bool(known)
        self._glances += 1
        try:
            ours, theirs = self.normal(a), self.normal(b)
            if ours.constants or theirs.constants:
                return self.normal(formula).is_empty
            known = self._clashing[formula] = not self._meet(ours, theirs)
            return known
        except (BusyError, DeepError, LimitError):
            return False
        finally:
            self._glances -= 1

    def _meet(self, a: Normal, b: Normal) -> bool:
        """Test whether some alternatives of both meet, by a shallow check up to the first pair; without constants."""
        if (a.null and b.null) or a.booleans & b.booleans:
            return True
        if _any(a.numbers, b.numbers, ANY_NUMBER) or _any(a.strings, b.strings, ANY_STRING):
            return True
        if _any(a.arrays, b.arrays, ANY_ARRAY) or _any(a.objects, b.objects, ANY_OBJECT):
            return True
        spend(STEPS_PER_PAIR * (len(a.numbers) * len(b.numbers) + len(a.strings) * len(b.strings)))
        if any(numbers.intersect(one, other) is not None for one in a.numbers for other in b.numbers):
            return True
        if any(strings.intersect(one, other, self.language) is not None for one in a.strings for other in b.strings):
            return True
        spend(STEPS_PER_PAIR * len(a.arrays) * len(b.arrays))
        if any(self._both_arrays(one, other) is not None for one in a.arrays for other in b.arrays):
            return True
        return any(self._objects_meet(one, other) for one in a.objects for other in b.objects)

    def _objects_meet(self, a: Object, b: Object) -> bool:
        spend(STEPS_PER_PAIR)
        if a.either or b.either or a.some or b.some:
            case = self.both_objects(a, b)
            return case is not None and bool(self._settled(case))
        return objects.meet(a, b, self.formulas, self.language, self.clashes)


def _is_grouped(cases: tuple[Object, ...]) -> bool:
    """Test whether alternatives need no group of their own: at most one, or some with groups."""
    return len(cases) < 2 or any(case.either for case in cases)


def _any(a: tuple[object, ...], b: tuple[object, ...], any_case: object) -> bool:
    """Test whether one side has all values of a type, and the other some."""
    return bool(a and b) and (a[0] is any_case or b[0] is any_case)
