"""Generators: `generate.X(model, ...)` says what may come out; call the result with prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack

from . import guides  # its names are imported when first used: a regex needs no grammars
from .engine.extraction import Extractor
from .engine.formats import format_of
from .engine.generator import Generator, run_together, values_of
from .engine.models.protocol import Model
from .engine.options import CallOptions, Options
from .engine.structures import structure_of
from .errors import OptionError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .guides.boundaries import Boundary
    from .guides.grammar import Grammar
    from .guides.json_guide import Escapes, Order, Whitespace
    from .guides.quotation import Quote
    from .guides.source import WhiteSpace

__all__ = ["Generator", "batch", "cfg", "choice", "extract", "format", "fsm", "json", "regex", "text"]


def text(model: Model) -> Generator:
    """Free text, up to EOS, a stop string or max_tokens. Value: str."""
    return Generator(model)


def regex(model: Model, pattern: str, flags: int = 0, *, dialect: Literal["python", "ecma"] = "python") -> Generator:
    """Text that matches the whole pattern. Value: str.

    flags: of Python's `re`; dialect: "python" or "ecma". Raises PatternError, LanguageError, LimitError.
    """
    return Generator(model, guides.RegexGuide(pattern, model.vocabulary, flags=flags, dialect=dialect))


def choice(model: Model, choices: Sequence[str]) -> Generator:
    """One of the texts. Value: str. Raises LanguageError for a text that the vocabulary cannot spell."""
    return Generator(model, guides.ChoiceGuide(choices, model.vocabulary))


def fsm(model: Model, machine: Any) -> Generator:
    """Text that an `interegular` FSM accepts. Value: str."""
    return Generator(model, guides.FSMGuide(machine, model.vocabulary))


def cfg(
    model: Model,
    grammar: str | Grammar,
    start: str | None = None,
    syntax: Literal["lark", "gbnf"] = "lark",
    *,
    contexts: Mapping[str, str | Sequence[str] | Quote] | None = None,
) -> Generator:
    """A text of a context-free grammar. Value: str.

    grammar: in Lark's language or llama.cpp's GBNF, as `syntax` says, or read already; start: the rule that the
    whole text must match, "start" (Lark) or "root" (GBNF) if not given.
    contexts: texts that `quote(name)` in a Lark grammar quotes from, by name; `Generation.spans` has the places
    Raises GrammarError, LanguageError, LimitError.
    """
    return Generator(model, guides.CFGGuide(grammar, model.vocabulary, start, syntax, contexts))


def extract(
    model: Model,
    context: str | Sequence[str],
    *,
    boundary: Boundary = "word",
    min_chars: int = 1,
    max_chars: int | None = None,
    whitespace: WhiteSpace = "exact",
    none_text: str | None = None,
    spans: int = 1,
    order: Literal["document", "score"] = "document",
) -> Generator:
    """A piece of a context, letter for letter, with its place. Value: Span.

    context: a text, or several; boundary, min_chars, max_chars, whitespace: what a piece is, see
        `guides.SubstringGuide`
    none_text: a refusal that may be generated instead; its value is None, also where the context contains it
    spans: up to how many spans each prompt gets that do not overlap, nor do any places of their texts; above 1 the
        value is a list of them, which ends early where nothing is left or the refusal is chosen. A search with n > 1
        gives distinct spans, which may overlap; samples that repeat one are drawn again from what overlaps with none.
    order: of several spans: "document", or "score", by what the model's own probabilities say of each text
    Where a text stands several times in the context, the span is the place around which the most words of the prompt
    stand (see `engine.extraction.Extractor`), and `Span.occurrences` has all places.
    Raises OptionError, and LanguageError where there is nothing to quote.
    """
    guide = guides.SubstringGuide(
        context,
        model.vocabulary,
        boundary=boundary,
        min_chars=min_chars,
        max_chars=max_chars,
        whitespace=whitespace,
        none_text=none_text,
    )
    return Extractor(model, guide, spans, order)


def format(model: Model, kind: Any) -> Generator:
    """A value of a Python type: int, float, bool, date, time, datetime, UUID, an Enum class or Literal[...].

    Value: of that type. Raises OptionError for other types.
    """
    written = format_of(kind)
    if written.pattern is None:
        guide = guides.ChoiceGuide(written.choices, model.vocabulary)
    else:
        guide = guides.RegexGuide(written.pattern, model.vocabulary)
    return Generator(model, guide, written.convert)


def json(
    model: Model,
    schema: Any,
    *,
    order: Order = "schema",
    whitespace: Whitespace = "flexible",
    indent: int = 2,
    escapes: Escapes = "canonical",
    resources: Mapping[str, Any] | None = None,
    formats: bool = True,
    max_cases: int = 4096,
    contexts: Mapping[str, str | Sequence[str] | Quote] | None = None,
) -> Generator:
    """JSON text that satisfies a schema, parsed. Value: of the type asked for.

    schema: a JSON Schema as a dict, as JSON text, or True (the value is what `json.loads` gives); a pydantic
        model, dataclass, TypedDict or other type that pydantic knows (an instance of it); a function (a dict of
        its arguments). What pydantic checks beyond its schema may still raise its ValidationError.
    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    whitespace, indent, escapes, resources, formats, max_cases, contexts: see `guides.JSONGuide`; `Generation.spans`
        has the places of quoted strings
    Raises SchemaError, LimitError, OptionError.
    """
    structure = structure_of(schema)
    guide = guides.JSONGuide(
        structure.schema,
        model.vocabulary,
        order=order,
        whitespace=whitespace,
        indent=indent,
        escapes=escapes,
        resources=resources,
        formats=formats,
        max_cases=max_cases,
        contexts=contexts,
    )
    return Generator(model, guide, structure.convert)


def batch(pairs: Sequence[tuple[Generator, str]], **options: Unpack[CallOptions]) -> list[Any]:
    """Run different generators of one model in one batch: the value for each (generator, prompt).

    Options are those of a call.
    """
    for pair in list[Any](pairs):
        if not isinstance(pair, (tuple, list)) or not pair or not isinstance(pair[0], Generator):
            raise OptionError(f"batch takes (generator, prompt) pairs, not {pair!r}")
    return values_of(run_together(pairs, Options.of(CallOptions, options)))
