"""Generators: `generate.X(model, ...)` says what may come out; call the result with prompts.

To editors, `generate.X` returns a `Generator[T]` of the type T that its values have: `generate.json(model, Person)`
gives a `Person` for a prompt, and a `list[Person]` for a list of prompts.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, cast, overload

from . import elsewhere, guides
from .checks import items_of, mapping_of, one_of, switch, text_in_file, text_of, texts_of, whole
from .engine.decode.frames import After, FrameOption, frame_of
from .engine.engine import run_together
from .engine.extraction import Extractor
from .engine.formats import format_of, natural_of, values_by_text, values_of_type
from .engine.generator import Embedder, Embedding, Generator
from .engine.models.protocol import Model, check_model
from .engine.options import CallOptions, Options
from .engine.prompts.description import describe as describe_schema
from .engine.prompts.given import Prompt, PromptParts, prompt_of
from .engine.results import values_of
from .engine.structures import structure_of
from .errors import OptionError, SchemaError, TrellmWarning
from .guides.limits import Limits
from .guides.quoting.quotation import Quote

if TYPE_CHECKING:
    from .guides.grammar import Grammar
    from .guides.json_guide import Escapes, JSONGuide, Order, Spelling, Unenforced, Whitespace
    from .guides.quoting.source import Boundary, Span, WhiteSpace

__all__ = ["Generator", "batch", "cfg", "choice", "embedding", "extract", "format", "fsm", "json", "regex", "text"]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


Around = tuple[str, str]
"""Text before an answer and behind it."""


class AroundOptions(TypedDict, total=False):
    """Types of the options of all constraints that are about text around them."""

    after: str | int | None
    thinking: int | None
    frame: Around | FrameOption | None


class JSONOptions(AroundOptions, total=False):
    """Types of the options of `json`."""

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
    describe: bool
    strict: bool
    limits: Limits | None


class QuoteOptions(AroundOptions, total=False):
    """Types of the options of `extract` that do not change what type its values have."""

    boundary: Boundary
    min_chars: int
    max_chars: int | None
    whitespace: WhiteSpace
    order: Literal["document", "score"]
    limits: Limits | None


def text(model: Model, *, limits: Limits | None = None, frame: Around | None = None) -> Generator[str]:
    """Free text, up to EOS, a stop string or max_tokens. Value: str. limits: of what `include` asks for.

    frame: see `regex`; its mark ends the text as a stop string does
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
    """Text that matches the whole pattern. Value: str. `Generation.captures` has what named groups have read.

    flags: of Python's `re`; dialect: "python" or "ecma"; limits: of work and memory, see `Limits`
    after, thinking: a marker such as "</think>", up to which there is free text first, of at most so many tokens, by
        default 1024; what comes of it is `Generation.thought`. max_tokens counts both. Without healing and `include`.
    frame: text before the answer, which the model reads as the beginning of it, and a mark behind, which ends it in
        place of EOS, such as ('The answer is "', '"'); no part of the value, nor of `Generation.text`. "sentence" for a
        sentence that names the answer; "reasoning" for free text of up to 256 tokens, of which the last one that it
        names is the answer; "auto", the default, is for answers to chats, unless there is `after`: choices,
        numbers and dates in a sentence, patterns of one line in quotation marks. None for the answer alone.
    Raises PatternError, LanguageError, LimitError.
    """
    check_model(model, "generate.regex", pattern)
    text_of(pattern, "generate.regex: the pattern")
    whole(flags, "flags", 0)
    one_of(dialect, "dialect", ("python", "ecma"))
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
    """One of the texts. Value: what it stands for. after, thinking, frame: see `regex`.

    choices: texts, which stand for themselves, or numbers and booleans, written as `str` does; a dict of values by
        text, such as {"yes": True, "no": False}; an Enum class or a Literal, whose values are written as `str` does and
        stand for the members, or the values
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
    texts = texts_of(choices if written is None else list(written), "choices", "choice")
    guide = guides.ChoiceGuide(texts, model.vocabulary, limits=limits)
    convert = None if written is None else written.__getitem__
    return Generator(model, guide, convert, limits=limits, **_around(around))


def fsm(model: Model, machine: Any, *, limits: Limits | None = None, **around: Unpack[AroundOptions]) -> Generator[str]:
    """Text that an `interegular` FSM accepts. Value: str. after, thinking, frame: see `regex`."""
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
    """A text of a context-free grammar. Value: str. after, thinking, frame: see `regex`.

    grammar: in Lark's language or llama.cpp's GBNF, as `syntax` says, by default as it looks, the path of a file as
    `pathlib.Path`, or read already; start: the rule that the whole text must match, "start" (Lark) or "root" (GBNF)
    if not given.
    contexts: texts that `quote(name)` in a Lark grammar quotes from, by name; `Generation.spans` has the places
    `Generation.captures` has what rules with `[capture]` have read.
    limits: of work and memory, see `Limits`
    Raises GrammarError, LanguageError, LimitError.
    """
    from .guides.grammar import Grammar

    check_model(model, "generate.cfg", grammar)
    if not isinstance(grammar, Grammar):
        grammar = text_in_file(grammar, "generate.cfg: the grammar") if isinstance(grammar, Path) else grammar
        text_of(grammar, "generate.cfg: the grammar")
    if start is not None:
        text_of(start, "start, the name of a rule,")
    one_of(syntax, "syntax", ("auto", "lark", "gbnf"))
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
    """A piece of a context, letter for letter, with its place. Value: Span. after, thinking: see `regex`.

    context: a text, or several; boundary, min_chars, max_chars, whitespace: what a piece is, see
        `guides.SubstringGuide`
    none_text: a refusal that may be generated instead; its value is None, also where the context contains it
    spans: up to how many spans each prompt gets that do not overlap, nor do any places of their texts; above 1 the
        value is a list of them, which ends early where nothing is left or the refusal is chosen. A search with n > 1
        gives distinct spans, which may overlap; samples that repeat one are drawn again from what overlaps with none,
        though not in `iter`, `generate.batch` and `Engine.submit`, where they are what was drawn.
    order: of several spans: "document", or "score", by what the model's own probabilities say of each text
    limits: of work and memory, see `Limits`
    frame: see `regex`; "auto" puts the answer to a chat into quotation marks, or other marks where the context has
        these, behind "The answer is", unless there is `after`; None for none
    Where a text stands several times in the context, the span is the place around which the most words of the prompt
    stand (see `engine.extraction.Extractor`), and `Span.occurrences` has all places.
    Raises OptionError, and LanguageError where there is nothing to quote.
    """
    check_model(model, "generate.extract", context)
    if not isinstance(context, str):
        texts_of(context, "the context", "document")
    if none_text is not None:
        text_of(none_text, "none_text")
    one_of(boundary, "boundary", ("word", "character", "sentence", "line"))
    one_of(whitespace, "whitespace", ("exact", "collapsed"))
    guide = guides.SubstringGuide(
        context,
        model.vocabulary,
        boundary=boundary,
        min_chars=whole(min_chars, "min_chars"),
        max_chars=None if max_chars is None else whole(max_chars, "max_chars"),
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
    """A value of a Python type: int, float, bool, date, time, datetime, UUID, an Enum class or Literal[...].

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
def json(
    model: Model,
    schema: Any,
    *,
    order: Order = "schema",
    whitespace: Whitespace = "flexible",
    indent: int = 2,
    escapes: Escapes = "canonical",
    spelling: Spelling = "plain",
    resources: Mapping[str, Any] | None = None,
    formats: bool = True,
    max_cases: int = 4096,
    contexts: Mapping[str, str | Sequence[str] | Quote] | None = None,
    unenforced: Unenforced = "refuse",
    describe: bool = False,
    strict: bool = False,
    limits: Limits | None = None,
    **around: Unpack[AroundOptions],
) -> Generator[Any]:
    """JSON text that satisfies a schema, parsed. Value: of the type asked for. after, thinking, frame: see `regex`.

    schema: a JSON Schema as a dict, as JSON text, as the path of a file, a `pathlib.Path`, or True (the value is what
        `json.loads` gives); a pydantic model, dataclass, TypedDict or other type that pydantic knows (an instance of
        it); a function (a dict of its arguments). What pydantic checks beyond its schema may still refuse an output:
        see `ConversionError`.
    order: "schema" writes members in the order of the schema, others after them; "any" in any order
    spelling: of numbers, "plain" as people write them and json.dumps does, or "any" that JSON allows
    whitespace, indent, escapes, resources, formats, max_cases, contexts: see `guides.JSONGuide`; `Generation.spans`
        has the places of quoted strings
    unenforced: "refuse", or "allow" keywords that cannot be enforced: `Generation.unenforced` says whether they hold
    describe: put the schema as `prompts.describe` writes it behind texts, and behind the last message of a user in
        chats; token ids are refused. `Generation.prompt` has what the model read
    strict: refuse keywords that JSON Schema does not have and that look like some that it has, and a schema without
        any, which is likely a value; else a `TrellmWarning` names them
    limits: of work and memory, see `Limits`
    Raises SchemaError, LimitError, OptionError.
    """
    check_model(model, "generate.json", schema)
    switch(describe, "describe")
    _check_contexts(contexts)
    structure = structure_of(text_in_file(schema, "generate.json: the schema") if isinstance(schema, Path) else schema)
    guide = guides.JSONGuide(
        structure.schema,
        model.vocabulary,
        order=order,
        whitespace=whitespace,
        indent=whole(indent, "indent", 0, 16),
        escapes=escapes,
        spelling=spelling,
        resources=resources,
        formats=formats,
        max_cases=whole(max_cases, "max_cases"),
        contexts=contexts,
        unenforced=unenforced,
        limits=limits,
    )
    _tell_strange(guide, strict)
    description = describe_schema(structure.schema) if describe else ""
    about: Any = {"description": description, "natural": natural_of(structure.schema)}
    return Generator(model, guide, structure.convert, limits, **about, **_around(around))


def _tell_strange(guide: JSONGuide, strict: bool) -> None:
    """Warn of keywords that look like those of JSON Schema. Raises SchemaError where they are refused."""
    switch(strict, "strict")
    for each in guide.strange_keywords:
        if strict:
            raise SchemaError(each.reason, each.pointer)
        warnings.warn(f"{each.reason} (at {each.pointer})", TrellmWarning, stacklevel=3)


def embedding(model: Model, *, dimensions: int | None = None) -> Generator[Embedding]:
    """No text, but prompts as directions. Value: a NumPy array, float32 [dimensions], of length 1.

    It is the final hidden state of the prompt's last token, behind the last norm, divided by its length, as vLLM has it
    of decoders; what is alike has a large product. Prompts are run as others are, in one batch with texts, and
    begin where prompts begin that were read before. Options are those about prompts: `tools`, `documents`,
    `chat_template_kwargs`, `batch_size`, `progress`. See docs/engine.md.
    dimensions: the first ones, which make sense alone where the model was trained so (Matryoshka); by default all
    Raises OptionError for models without hidden states: functions, encoder-decoders, and those with a head that is not
    apart.
    """
    check_model(model, "generate.embedding", dimensions)
    return Embedder(model, dimensions=dimensions)


def batch(pairs: Iterable[tuple[Generator[Any], Prompt | PromptParts]], **options: Unpack[CallOptions]) -> list[Any]:
    """Run different generators of one model in one batch: the value for each (generator, prompt).

    Options are those of a call. Raises ConversionError, with all results, where a type refuses an output.
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
        found.append((pair[0], prompt_of(pair[1], f"prompt {number}")))  # pyright: ignore[reportUnknownArgumentType]
    return found


def _around(given: AroundOptions) -> dict[str, Any]:
    """Options of a generator about text around its answers. Raises OptionError, TypeError for others."""
    for name in given:
        if name not in AroundOptions.__annotations__:
            raise TypeError(
                f"{name!r} is no option of this constraint; after=, thinking= and frame= are options of all"
            )
    return {
        "after": After.of(given.get("after"), given.get("thinking")),
        "frame": frame_of(given.get("frame", "auto")),
    }


def _check_contexts(contexts: Any) -> None:
    """Raise OptionError for what nothing can be quoted from."""
    for name, context in (mapping_of(contexts, "contexts", "texts by name") or {}).items():
        if not isinstance(context, (str, Quote, Mapping)):
            texts_of(context, f"the context {name!r}", "document")
        elif isinstance(context, str):
            text_of(context, f"the context {name!r}")


def __getattr__(name: str) -> Any:
    raise elsewhere.missing(__name__, name, elsewhere.GENERATORS, __all__)
