"""Generators: `generate.X(model, ...)` defines the possible outputs; call the result with prompts.

For type checkers, `generate.X` returns a `Generator[T]` of the type T of its values: `generate.json(model, Person)`
gives a `Person` for a prompt, and a `list[Person]` for a list of prompts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from . import elsewhere, guides
from .checks import check_bool, check_choice, check_int, check_mapping, check_text, check_texts, items_of, text_in_file
from .engine.decode.frames import After, FrameOption, frame_of
from .engine.engine import run_together
from .engine.extraction import Extractor
from .engine.formats import format_of, natural_of, values_by_text, values_of_type
from .engine.generator import Embedder, Embedding, Generator
from .engine.models.protocol import Model, check_model
from .engine.options import CallOptions, Options
from .engine.prompts.arguments import Prompt, PromptParts, check_prompt
from .engine.prompts.description import describe as describe_schema
from .engine.results import values_of
from .engine.structures import structure_of
from .errors import OptionError, SchemaError, TrellmWarning
from .guides.grammar import Grammar
from .guides.limits import Limits
from .guides.quoting.quotation import Quote

if TYPE_CHECKING:
    from .guides.json_guide import Escapes, JSONGuide, Order, Spelling, Unenforced, Whitespace
    from .guides.quoting.source import Boundary, Span, WhiteSpace

__all__ = ["Generator", "batch", "cfg", "choice", "embedding", "extract", "format", "fsm", "json", "regex", "text"]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


Around = tuple[str, str]
"""Text before an answer and after it."""


class AroundOptions(TypedDict, total=False):
    """Types of the options of all constraints about text around the answer."""

    after: str | int | None
    thinking: int | None
    frame: Around | FrameOption | None


class JSONGuideOptions(TypedDict, total=False):
    """Types of the options of `json` that its guide has."""

    order: Order
    whitespace: Whitespace
    indent: int
    escapes: Escapes
    spelling: Spelling
    resources: Mapping[str, Any] | None
    formats: bool
    max_cases: int
    contexts: Mapping[str, str | Sequence[str] | Quote] | None
    unenforced: Unenforced
    limits: Limits | None


class JSONOptions(AroundOptions, JSONGuideOptions, total=False):
    """Types of the options of `json`."""

    describe: bool
    strict: bool


JSON_DEFAULTS: Mapping[str, Any] = {
    **{"order": "schema", "whitespace": "flexible", "indent": 2, "escapes": "canonical", "spelling": "plain"},
    **{"formats": True, "max_cases": 4096, "unenforced": "refuse", "describe": False, "strict": False},
}
"""Defaults of the options of `json`; of others None."""


class QuoteOptions(AroundOptions, total=False):
    """Types of the options of `extract` that do not affect the type of its values."""

    boundary: Boundary
    min_chars: int
    max_chars: int | None
    whitespace: WhiteSpace
    order: Literal["document", "score"]
    limits: Limits | None


def text(model: Model, *, limits: Limits | None = None, frame: Around | None = None) -> Generator[str]:
    """Generate free text, up to EOS, a stop string or max_tokens. Value: str. limits: of the goals in `include`.

    frame: see `regex`; its closing mark ends the text as a stop string does
    """
    check_model(model, "generate.text")
    return Generator(model, limits=limits, frame=frame_of(frame))


def regex(
    model: Model,
    pattern: str,
    flags: int = 0,
    *,
    dialect: Literal["python", "ecma"] = "python",
    limits: Limits | None = None,
    **around: Unpack[AroundOptions],
) -> Generator[str]:
    """Generate text that matches the whole pattern. Value: str. `Generation.captures` has the texts of named groups.

    flags: of Python's `re`; dialect: "python" or "ecma"; limits: of work and memory, see `Limits`
    after, thinking: a marker such as "</think>", before which the model writes free text of at most `thinking` tokens,
        by default 1024; `Generation.thought` has that text. max_tokens counts both. Not with healing or `include`.
    frame: a text before the answer, which the model reads as its beginning, and a closing mark after it, which ends the
        answer in place of EOS, such as ('The answer is "', '"'); neither is part of the value or of `Generation.text`.
        "sentence": a sentence that names the answer; "reasoning": free text of up to 256 tokens, in which the last
        named answer counts; "auto", the default, applies to chats without `after`: choices, numbers and dates in a
        sentence, patterns of one line in quotation marks. None: the answer alone.
    Raises PatternError, LanguageError, LimitError.
    """
    check_model(model, "generate.regex", pattern)
    check_text(pattern, "generate.regex: the pattern")
    check_int(flags, "flags", 0)
    check_choice(dialect, "dialect", ("python", "ecma"))
    guide = guides.RegexGuide(pattern, model.vocabulary, flags=flags, dialect=dialect, limits=limits)
    return Generator(model, guide, limits=limits, **_around(around))


@overload
def choice(
    model: Model, choices: type[E], *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[E]: ...
@overload
def choice(  # pyright: ignore[reportOverlappingOverload]
    model: Model, choices: Mapping[str, T], *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[T]: ...
@overload
def choice(
    model: Model, choices: Iterable[T], *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[T]: ...
@overload
def choice(
    model: Model, choices: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[Any]: ...
def choice(
    model: Model, choices: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[Any]:
    """Generate one of several texts. Value: the object that the text stands for. after, thinking, frame: see `regex`.

    choices: texts, which are their own values; numbers and booleans, written by `str`; a dict of values by text, such
        as {"yes": True, "no": False}; an Enum class or a Literal, whose values are written by `str` and stand for the
        members or values
    Raises LanguageError for a text that the vocabulary cannot spell, OptionError for values that are written alike.
    """
    check_model(model, "generate.choice", choices)
    if isinstance(choices, str):
        raise OptionError(f"choices must be several texts, not the one text {choices!r}; put it into a list")
    written = values_of_type(choices)
    if isinstance(choices, Mapping):
        written = dict(cast("Mapping[Any, Any]", choices))
    if isinstance(choices, (set, frozenset)):
        choices = sorted(cast("set[Any]", choices), key=str)
    several = None if written is not None else items_of(choices)
    if several is not None and any(isinstance(each, (int, float)) for each in several):
        choices, written = None, values_by_text("choices", [(each, each) for each in several])
    texts = check_texts(choices if written is None else list(written), "choices", "choice")
    guide = guides.ChoiceGuide(texts, model.vocabulary, limits=limits)
    convert = None if written is None else written.__getitem__
    return Generator(model, guide, convert, limits=limits, **_around(around))


def fsm(model: Model, machine: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]) -> Generator[str]:
    """Generate text that an `interegular` FSM accepts. Value: str. after, thinking, frame: see `regex`."""
    check_model(model, "generate.fsm", machine)
    guide = guides.FSMGuide(machine, model.vocabulary, limits=limits)
    return Generator(model, guide, limits=limits, **_around(around))


def cfg(
    model: Model,
    grammar: str | Path | Grammar,
    start: str | None = None,
    syntax: Literal["auto", "lark", "gbnf"] = "auto",
    *,
    contexts: Mapping[str, str | Sequence[str] | Quote] | None = None,
    limits: Limits | None = None,
    **around: Unpack[AroundOptions],
) -> Generator[str]:
    """Generate a text of a context-free grammar. Value: str. after, thinking, frame: see `regex`.

    grammar: text in the syntax of Lark or of llama.cpp's GBNF, the path of a file as `pathlib.Path`, or a `Grammar`;
    start: the rule that the whole text matches, by default "start" (Lark) or "root" (GBNF)
    syntax: "lark", "gbnf", or "auto" to detect it
    contexts: texts that `quote(name)` in a Lark grammar quotes from, by name; `Generation.spans` has the places.
    `Generation.captures` has the texts of rules with `[capture]`.
    limits: of work and memory, see `Limits`
    Raises GrammarError, LanguageError, LimitError.
    """
    check_model(model, "generate.cfg", grammar)
    if not isinstance(grammar, Grammar):
        grammar = text_in_file(grammar, "generate.cfg: the grammar") if isinstance(grammar, Path) else grammar
        check_text(grammar, "generate.cfg: the grammar")
    if start is not None:
        check_text(start, "start, the name of a rule,")
    check_choice(syntax, "syntax", ("auto", "lark", "gbnf"))
    _check_contexts(contexts)
    guide = guides.CFGGuide(grammar, model.vocabulary, start, syntax, contexts, limits=limits)
    return Generator(model, guide, limits=limits, **_around(around))


@overload
def extract(
    model: Model,
    context: str | Sequence[str],
    *,
    none_text: None = None,
    spans: Literal[1] = 1,
    **options: Unpack[QuoteOptions],
) -> Generator[Span]: ...
@overload
def extract(
    model: Model,
    context: str | Sequence[str],
    *,
    none_text: str | None,
    spans: Literal[1] = 1,
    **options: Unpack[QuoteOptions],
) -> Generator[Span | None]: ...
@overload
def extract(
    model: Model,
    context: str | Sequence[str],
    *,
    none_text: str | None = None,
    spans: int,
    **options: Unpack[QuoteOptions],
) -> Generator[list[Span]]: ...
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
    limits: Limits | None = None,
    **around: Unpack[AroundOptions],
) -> Generator[Any]:
    """Generate an exact substring of a context, with its place. Value: Span. after, thinking: see `regex`.

    context: a text, or several; boundary, min_chars, max_chars, whitespace: of substrings, see `guides.SubstringGuide`
    none_text: a refusal that may be generated instead; its value is None, even if the context contains it
    spans: the most spans for each prompt; neither they nor other places of their texts overlap. Above 1 the value is a
        list, which ends early if nothing is left or the refusal is chosen. A search with n > 1 gives distinct spans,
        which may overlap; repeated samples are drawn again from the rest of the context. Not so in `iter`,
        `generate.batch` and `Engine.submit`, which return samples as drawn.
    order: of several spans: "document", or "score", by the model's probability of each text
    limits: of work and memory, see `Limits`
    frame: see `regex`; "auto" puts the answer to a chat into quotation marks after "The answer is", unless `after` is
        given; it uses other marks if the context contains these. None for no frame
    If a text occurs several times in the context, the span is the place with the most words of the prompt around it
    (see `engine.extraction.Extractor`), and `Span.occurrences` has all places.
    Raises OptionError, and LanguageError if there is nothing to quote.
    """
    check_model(model, "generate.extract", context)
    if not isinstance(context, str):
        check_texts(context, "the context", "document")
    if none_text is not None:
        check_text(none_text, "none_text")
    check_choice(boundary, "boundary", ("word", "character", "sentence", "line"))
    check_choice(whitespace, "whitespace", ("exact", "collapsed"))
    guide = guides.SubstringGuide(
        context,
        model.vocabulary,
        boundary=boundary,
        min_chars=check_int(min_chars, "min_chars"),
        max_chars=None if max_chars is None else check_int(max_chars, "max_chars"),
        whitespace=whitespace,
        none_text=none_text,
        limits=limits,
    )
    return Extractor(model, guide, spans, order, limits, **_around(around))


@overload
def format(
    model: Model, kind: type[T], *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[T]: ...
@overload
def format(
    model: Model, kind: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]
) -> Generator[Any]: ...
def format(model: Model, kind: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]) -> Generator[Any]:
    """Generate a value of a Python type: int, float, bool, date, time, datetime, UUID, an Enum class or Literal[...].

    Value: of that type. after, thinking, frame: see `regex`. Raises OptionError for other types.
    """
    check_model(model, "generate.format", kind)
    written = format_of(kind)
    if written.pattern is None:
        guide = guides.ChoiceGuide(written.choices, model.vocabulary, limits=limits)
    else:
        guide = guides.RegexGuide(written.pattern, model.vocabulary, limits=limits)
    return Generator(model, guide, written.convert, limits, natural=written.natural, **_around(around))


@overload
def json(  # pyright: ignore[reportOverlappingOverload]
    model: Model, schema: type[T], **options: Unpack[JSONOptions]
) -> Generator[T]: ...
@overload
def json(model: Model, schema: Mapping[str, Any] | bool | str, **options: Unpack[JSONOptions]) -> Generator[Any]: ...
@overload
def json(model: Model, schema: Callable[..., Any], **options: Unpack[JSONOptions]) -> Generator[dict[str, Any]]: ...
@overload
def json(model: Model, schema: Any, **options: Unpack[JSONOptions]) -> Generator[Any]: ...
def json(model: Model, schema: Any, **options: Unpack[JSONOptions]) -> Generator[Any]:
    """Generate JSON that satisfies a schema. Value: of the type of `schema`. after, thinking, frame: see `regex`.

    schema: a JSON Schema as a dict, as JSON text, as the `pathlib.Path` of a file, or True (the value is that of
        `json.loads`); a pydantic model, dataclass, TypedDict or other type that pydantic supports (the value is an
        instance); a function (the value is a dict of its arguments). Pydantic may check more than its schema says, and
        refuse an output: see `ConversionError`.
    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    spelling: of numbers, "plain" as json.dumps writes them, or "any" that JSON allows
    whitespace, indent, escapes, resources, formats, max_cases, contexts: see `guides.JSONGuide`; `Generation.spans`
        has the places of quoted strings
    unenforced: "refuse" keywords that cannot be enforced, or "allow" them: `Generation.unenforced` says whether the
        output satisfies them
    describe: append the schema, as `prompts.describe` writes it, to texts, and to the last user message of chats; not
        for token ids. `Generation.prompt` has the complete prompt
    strict: refuse keywords that JSON Schema does not have but that resemble its own, and a schema without keywords,
        which is probably an instance; otherwise a `TrellmWarning` names them
    limits: of work and memory, see `Limits`
    Raises SchemaError, LimitError, OptionError.
    """
    check_model(model, "generate.json", schema)
    remaining: dict[str, Any] = {**JSON_DEFAULTS, **options}
    guide_options = {name: remaining.pop(name) for name in JSONGuideOptions.__annotations__ if name in remaining}
    describe, strict = (check_bool(remaining.pop(name), name) for name in ("describe", "strict"))
    around = _around(cast("AroundOptions", remaining))
    _check_contexts(guide_options.get("contexts"))
    structure = structure_of(text_in_file(schema, "generate.json: the schema") if isinstance(schema, Path) else schema)
    guide = guides.JSONGuide(structure.schema, model.vocabulary, **guide_options)
    _report_strange(guide, strict)
    description = describe_schema(structure.schema) if describe else ""
    about: Any = {"description": description, "natural": natural_of(structure.schema)}
    return Generator(model, guide, structure.convert, guide_options.get("limits"), **about, **around)


def _report_strange(guide: JSONGuide, strict: bool) -> None:
    """Warn of keywords that resemble those of JSON Schema. Raises SchemaError for them if `strict`."""
    for each in guide.strange_keywords:
        if strict:
            raise SchemaError(each.reason, each.pointer)
        warnings.warn(f"{each.reason} (at {each.pointer})", TrellmWarning, stacklevel=3)


def embedding(model: Model, *, dimensions: int | None = None) -> Generator[Embedding]:
    """Compute embeddings of prompts; no text is generated. Value: a NumPy array, float32 [dimensions], of length 1.

    An embedding is the final hidden state of the prompt's last token, after the last norm, divided by its length, as in
    vLLM for decoders; similar prompts have large dot products. Prompts run in one batch with generation, and reuse
    cached prefixes. Options are those about prompts: `tools`, `documents`, `chat_template_kwargs`, `batch_size`,
    `progress`. See docs/engine.md.
    dimensions: keep the first ones only, which is meaningful for models trained for it (Matryoshka); by default all
    Raises OptionError for models without hidden states: functions, encoder-decoders, and models whose head is not
    separate.
    """
    check_model(model, "generate.embedding", dimensions)
    return Embedder(model, dimensions=dimensions)


def batch(pairs: Iterable[tuple[Generator[Any], Prompt | PromptParts]], **options: Unpack[CallOptions]) -> list[Any]:
    """Run different generators of one model in one batch. Return the value for each (generator, prompt).

    Options are those of a call. Raises ConversionError, with all results, if a type refuses an output.
    """
    chosen = Options.of(CallOptions, options)
    several = _pairs(pairs)
    return values_of(run_together(several, chosen), [prompt for _, prompt in several])


def _pairs(pairs: Any) -> list[tuple[Generator[Any], Prompt]]:
    several = items_of(pairs)
    if several is None:
        raise OptionError(f"batch takes (generator, prompt) pairs in a list, not {pairs!r}")
    found: list[tuple[Generator[Any], Prompt]] = []
    for number, pair in enumerate(several):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], Generator):  # pyright: ignore[reportUnknownArgumentType]
            raise OptionError(f"batch takes (generator, prompt) pairs, not {pair!r}")
        found.append((pair[0], check_prompt(pair[1], f"prompt {number}")))  # pyright: ignore[reportUnknownArgumentType]
    return found


def _around(options: AroundOptions) -> dict[str, Any]:
    """Return a generator's options about text around its answers. Raises OptionError, TypeError for unknown options."""
    for name in options:
        if name not in AroundOptions.__annotations__:
            raise TypeError(
                f"{name!r} is not an option of this constraint; after=, thinking= and frame= are options of all "
                "constraints"
            )
    return {
        "after": After.of(options.get("after"), options.get("thinking")),
        "frame": frame_of(options.get("frame", "auto")),
    }


def _check_contexts(contexts: Any) -> None:
    """Raise OptionError for contexts that cannot be quoted."""
    for name, context in (check_mapping(contexts, "contexts", "texts by name") or {}).items():
        if not isinstance(context, (str, Quote, Mapping)):
            check_texts(context, f"the context {name!r}", "document")
        elif isinstance(context, str):
            check_text(context, f"the context {name!r}")


def __getattr__(name: str) -> Any:
    raise elsewhere.missing(__name__, name, elsewhere.GENERATORS, __all__)
