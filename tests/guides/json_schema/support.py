"""The parts of the compiler of schemas that its tests look at, each named in this place alone."""

from trellm.guides.automata.conditions import JointConditions, automaton
from trellm.guides.json_schema.algebra import numbers, objects, strings
from trellm.guides.json_schema.algebra.alternatives import absorbed
from trellm.guides.json_schema.algebra.cases import ANY_NUMBER, ANY_STRING, Number, Object, Rational, Rule, String
from trellm.guides.json_schema.algebra.formula import EVERYTHING, NOTHING, Formula, Formulas
from trellm.guides.json_schema.automata.counting import Counting
from trellm.guides.json_schema.automata.matching import matches
from trellm.guides.json_schema.automata.spelling import Escapes, all_spelt, spelt
from trellm.guides.json_schema.lower import rules
from trellm.guides.json_schema.lower.form import Spelling
from trellm.guides.json_schema.lower.numbers.literals import number_text
from trellm.guides.json_schema.lower.numbers.texts import (
    fewest_number_bytes,
    number_rule,
    numerals,
    spelt_numbers,
    unbounded,
)
from trellm.guides.json_schema.lower.rules import MAX_NODES, number_fragment, string_fragment
from trellm.guides.json_schema.lower.strings import lowering
from trellm.guides.json_schema.lower.strings.lowering import CountedStrings, StringLowering, counted, in_quotes, plan
from trellm.guides.json_schema.read import patterns
from trellm.guides.json_schema.read.formats import ENFORCED, EXAMPLES, PATTERNS, WIDER
from trellm.guides.json_schema.read.patterns import parse
from trellm.guides.json_schema.witness.strings import PatternLanguage, examples

__all__ = [
    "ANY_NUMBER",
    "ANY_STRING",
    "ENFORCED",
    "EVERYTHING",
    "EXAMPLES",
    "MAX_NODES",
    "NOTHING",
    "PATTERNS",
    "WIDER",
    "CountedStrings",
    "Counting",
    "Escapes",
    "Formula",
    "Formulas",
    "JointConditions",
    "Number",
    "Object",
    "PatternLanguage",
    "Rational",
    "Rule",
    "Spelling",
    "String",
    "StringLowering",
    "absorbed",
    "all_spelt",
    "automaton",
    "counted",
    "examples",
    "fewest_number_bytes",
    "forget_strings",
    "in_quotes",
    "matches",
    "number_fragment",
    "number_rule",
    "number_text",
    "numbers",
    "numerals",
    "objects",
    "parse",
    "patterns",
    "plan",
    "spelt",
    "spelt_numbers",
    "string_fragment",
    "strings",
    "unbounded",
]


def forget_strings() -> None:
    """Forget what strings were lowered to, so that they are lowered anew."""
    for remembering in (lowering._takes_too_much, lowering.counted, rules.string_fragment):
        remembering.cache_clear()
