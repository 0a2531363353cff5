"""Command-line options of constraints, shared by subcommands."""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import os
import re
import sys
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, cast

import click

from .. import guides
from ..engine.formats import format_of, natural_of
from ..engine.structures import structure_of
from ..errors import GrammarError
from .files import json_of, read_file
from .flags import NumberType, TextType, WhitespaceType, with_options
from .models import SMALL_FOLDER, is_small

if TYPE_CHECKING:
    from ..engine.formats import NaturalSpelling
    from ..guides.json_guide import Escapes, Order, Spelling, Unenforced, Whitespace
    from ..guides.lift.lifted_guide import LiftedGuide
    from ..guides.limits import Limits
    from ..guides.quoting.source import Boundary
    from ..guides.substring_guide import SubstringGuide
    from ..guides.tagged import TaggedGuide
    from ..tokenizers_adapter import Vocabulary

_KINDS: dict[str, Literal["json", "lark", "gbnf", "regex"]] = {
    ".json": "json", ".lark": "lark", ".gbnf": "gbnf", ".regex": "regex",
}  # fmt: skip
_TEXT = TextType()


@dataclass(frozen=True)
class TagOption:
    """Two markers, and the constraint of the text between them: a JSON Schema, a grammar or a pattern, by `kind`."""

    begin: str
    kind: Literal["json", "lark", "gbnf", "regex"]
    text: str
    end: str

    def guide(self, vocabulary: Vocabulary, limits: Limits | None) -> Any:
        """Return the guide of the text between the markers."""
        if self.kind == "json":
            return guides.JSONGuide(json.loads(self.text), vocabulary, limits=limits)
        if self.kind == "regex":
            return guides.RegexGuide(self.text, vocabulary, limits=limits)
        return guides.CFGGuide(self.text, vocabulary, None, self.kind, limits=limits)


def read_tags(
    context: click.Context, parameter: click.Parameter, values: Sequence[tuple[str, str, str]]
) -> tuple[TagOption, ...]:
    """Read the tags of --tag BEGIN FILE END."""
    tags: list[TagOption] = []
    for begin, path, end in values:
        first, last = (_TEXT.convert(marker, parameter, context) for marker in (begin, end))
        kind = _KINDS.get(Path(path).suffix.lower())
        if kind is None:
            names = "a schema in .json, a grammar in .lark or .gbnf, a pattern in .regex"
            raise click.BadParameter(f"{path!r} has an unknown suffix; expected {names}")
        text = read_file(context, parameter, path) or ""
        if kind == "json":
            json_of(text, path)
        tags.append(TagOption(first, kind, text.removesuffix("\n") if kind == "regex" else text, last))
    return tuple(tags)


def guide_of(
    tags: Sequence[TagOption],
    vocabulary: Vocabulary,
    limits: Limits | None,
    special: Callable[[str], int | None] | None,
) -> TaggedGuide:
    """Return the guide of free text with tags. special: resolves a marker to a special token, or None"""
    from ..guides.tagged import TaggedGuide

    def marker(text: str) -> str | int:
        token = None if special is None or not text else special(text)
        return text if token is None else token

    guided_tags = [(marker(tag.begin), tag.guide(vocabulary, limits), marker(tag.end)) for tag in tags]
    return TaggedGuide(guided_tags, vocabulary, limits=limits)


P = ParamSpec("P")
R = TypeVar("R")

FORMATS: dict[str, Any] = {
    "int": int,
    "float": float,
    "bool": bool,
    "date": datetime.date,
    "time": datetime.time,
    "datetime": datetime.datetime,
    "uuid": uuid.UUID,
}
_LETTERS = {"i": re.I, "s": re.S, "m": re.M, "x": re.X, "a": re.A}


@dataclass(frozen=True)
class ConstraintOptions:
    """The constraint options. At most one of pattern, choices, kind, grammar, structure, documents and tags is given.

    pattern: a regular expression, with `flags` and `dialect`; choices: texts; kind: a name in FORMATS
    grammar: the text of a grammar, with its `syntax` and its `start` rule
    structure: the text of a JSON Schema, or a type, with the `order` of members, `whitespace`, `escapes`, the
        `spelling` of numbers, `resources`, further schemas by URI, and the treatment of `unenforced` keywords
    contexts: texts that a structure or a grammar quotes from, by name
    documents: texts to quote from, with the `boundary` of quotations and the `none_text`
    document_field: field of each prompt's line that contains the texts to quote from
    tags: markers in free text, with the constraints between them
    limits: bounds of the guide, None for the default
    """

    pattern: str | None
    choices: tuple[str, ...]
    kind: str | None
    flags: int
    dialect: Literal["python", "ecma"]
    grammar: str | None
    syntax: Literal["lark", "gbnf"] | None
    start: str | None
    structure: Any = None
    order: Order | None = None
    whitespace: Whitespace | None = None
    escapes: Escapes | None = None
    spelling: Spelling | None = None
    resources: Mapping[str, Any] = field(default_factory=dict[str, Any])
    contexts: Mapping[str, str] = field(default_factory=dict[str, str])
    unenforced: Unenforced | None = None
    documents: tuple[str, ...] = ()
    document_field: str | None = None
    boundary: Boundary | None = None
    none_text: str | None = None
    tags: tuple[TagOption, ...] = ()
    limits: Limits | None = None

    def __post_init__(self) -> None:
        options = {
            "--regex": self.pattern,
            "--choice": self.choices or None,
            "--format": self.kind,
            "--grammar": self.grammar,
            "--schema or --pydantic": self.structure,
            "--extract": self.documents or None,
            "--extract-field": self.document_field,
            "--tag": self.tags or None,
        }
        present = [name for name, value in options.items() if value is not None]
        if len(present) > 1:
            raise click.UsageError(f"{' and '.join(present)} exclude each other: a text has one constraint")
        if self.pattern is None and (self.flags or self.dialect != "python"):
            raise click.UsageError("--flags and --dialect belong to --regex, which is missing")
        if self.grammar is None and (self.syntax or self.start):
            raise click.UsageError("--syntax and --start belong to --grammar, which is missing")
        if self.structure is None and any(
            (self.order, self.whitespace is not None, self.escapes, self.spelling, self.resources, self.unenforced)
        ):
            names = "--order, --whitespace, --escapes, --spelling, --resources and --unenforced"
            raise click.UsageError(f"{names} belong to --schema or --pydantic, which are missing")
        if self.contexts and not self.may_quote:
            raise click.UsageError("--context belongs to --schema, --pydantic or --grammar, which are missing")
        if not self.documents and self.document_field is None and (self.boundary or self.none_text is not None):
            raise click.UsageError("--boundary and --none-text belong to --extract, which is missing")

    @property
    def is_free(self) -> bool:
        """True if no constraint is given."""
        options = (self.pattern, self.kind, self.grammar, self.structure, self.document_field)
        return options == (None,) * 5 and not self.choices and not self.documents and not self.tags

    @property
    def may_quote(self) -> bool:
        """True if parts of the text may be quotations with positions."""
        return self.structure is not None or self.grammar is not None

    @property
    def natural(self) -> NaturalSpelling | None:
        """Natural spelling of the format's values, or of those of a scalar schema."""
        if self.kind is not None:
            return format_of(FORMATS[self.kind]).natural
        return None if self.structure is None else natural_of(structure_of(self.structure).schema)

    def guide_of_text(
        self, tokenizer: Vocabulary | None = None, *, as_read: bool = False
    ) -> LiftedGuide | SubstringGuide:
        """Return the guide that checks texts. Raises UsageError for token ids without a tokenizer.

        tokenizer: its vocabulary; by default single bytes and the special tokens named in grammars
        """
        from ..guides.grammar.special_tokens import names_in
        from ..tokenizers_adapter import Vocabulary

        if tokenizer is not None:
            return self.guide(tokenizer, as_read=as_read)
        grammars = [self.grammar or "", *(tag.text for tag in self.tags if tag.kind in ("lark", "gbnf"))]
        names = list(dict.fromkeys(name for grammar in grammars for name in names_in(grammar)))
        try:
            return self.guide(Vocabulary.from_bytes(names), as_read=as_read)
        except GrammarError as error:
            if error.text.startswith("<[", error.offset):
                message = f"{error.reason}; token ids need a tokenizer, give --tokenizer"
                raise click.UsageError(message) from None
            raise

    def guide(
        self, vocabulary: Vocabulary, *, as_read: bool = False, special: Callable[[str], int | None] | None = None
    ) -> LiftedGuide | SubstringGuide:
        """Return the guide of the constraint, which must not be free.

        as_read: accept any equivalent JSON, unless options say otherwise
        special: resolves a marker to a special token, or None
        """
        limits = self.limits
        if self.tags:
            return guide_of(self.tags, vocabulary, limits, special)
        if self.documents:
            boundary = self.boundary or "word"
            return guides.SubstringGuide(
                self.documents, vocabulary, boundary=boundary, none_text=self.none_text, limits=limits
            )
        if self.structure is not None:
            default = "any" if as_read else "flexible"
            return guides.JSONGuide(
                structure_of(self.structure).schema,
                vocabulary,
                order=self.order or ("any" if as_read else "schema"),
                whitespace=default if self.whitespace is None else self.whitespace,  # may be 0
                escapes=self.escapes or ("any" if as_read else "canonical"),
                spelling=self.spelling or ("any" if as_read else "plain"),
                resources=self.resources,
                contexts=self.contexts,
                unenforced=self.unenforced or "refuse",
                limits=limits,
            )
        if self.grammar is not None:
            return guides.CFGGuide(
                self.grammar, vocabulary, self.start, self.syntax or "auto", self.contexts or None, limits=limits
            )
        if self.pattern is not None:
            return guides.RegexGuide(self.pattern, vocabulary, self.flags, self.dialect, limits=limits)
        if self.kind is None:
            return guides.ChoiceGuide(self.choices, vocabulary, limits=limits)
        value_format = format_of(FORMATS[self.kind])
        if value_format.pattern is None:
            return guides.ChoiceGuide(value_format.choices, vocabulary, limits=limits)
        return guides.RegexGuide(value_format.pattern, vocabulary, limits=limits)


_MAX_WORK = "Most steps of work that the constraint may take at a time; 60 million, the default, are about a second."
_MAX_MEMORY = "Most memory that the constraint may take. [default: 512]"
_MAX_SECONDS = "Longest time that the constraint may take for one token. [default: no limit]"


def _limits(work: int | None, memory: int | None, seconds: float | None) -> Limits | None:
    bounds = {"work": work, "memory": None if memory is None else memory << 20, "seconds": seconds}
    chosen: dict[str, Any] = {name: value for name, value in bounds.items() if value is not None}
    if not chosen:
        return None
    from ..guides.limits import Limits

    return Limits(**chosen)


def vocabulary_of(name: str) -> Vocabulary:
    """Return the vocabulary of a tokenizer, named by model or folder; "small" is the package's. Raises UsageError."""
    import transformers

    from ..tokenizers_adapter import Vocabulary

    hub: Any = transformers
    try:
        place = SMALL_FOLDER if is_small(name) else name
        return Vocabulary.from_tokenizer(hub.AutoTokenizer.from_pretrained(place))
    except (OSError, ValueError) as error:
        first = [*str(error).strip().splitlines(), "no reason given"][0]
        raise click.UsageError(f"the tokenizer {name!r} cannot be loaded ({first}); give a name or a folder") from None


def _python_type(context: click.Context, parameter: click.Parameter, name: str | None) -> Any:
    if name is None:
        return None
    module, _, path = name.partition(":")
    if not module or not path:
        raise click.BadParameter(f"{name!r} names no type; write MODULE:CLASS, such as app.types:Person")
    # A script imports modules beside it, the command those in the working directory.
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except Exception as error:  # importing runs the module, which may raise any exception
        reason = error if isinstance(error, (ImportError, AttributeError)) else f"{type(error).__name__}: {error}"
        raise click.BadParameter(f"{name!r} cannot be imported: {reason}") from None


def _flags(context: click.Context, parameter: click.Parameter, letters: str) -> int:
    unknown = sorted(set(letters) - set(_LETTERS))
    if unknown:
        raise click.BadParameter(f"there is no flag {unknown[0]!r}; the flags are i, s, m, x and a")
    return int(functools.reduce(lambda left, right: left | right, (_LETTERS[letter] for letter in letters), 0))


def _read_resources(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    for argument in values:
        uri, _, path = argument.rpartition("=")
        schema: Any = json_of(read_file(context, parameter, path) or "", path)
        named = cast("dict[str, Any]", schema) if isinstance(schema, dict) else {}
        uri = uri or named.get("$id") or named.get("id") or ""
        if not isinstance(uri, str) or not uri:
            raise click.BadParameter(
                f"the schema in {path!r} has no $id, or one that is not a string; write URI={path}"
            )
        resources[uri] = schema
    return resources


def _read_contexts(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, str]:
    contexts: dict[str, str] = {}
    for argument in values:
        name, equals, path = argument.partition("=")
        if not equals or not name or name in contexts:
            raise click.BadParameter(f"{argument!r} is not NAME=FILE, or repeats a name")
        contexts[name] = read_file(context, parameter, path) or ""
    return contexts


def _read_files(context: click.Context, parameter: click.Parameter, paths: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(read_file(context, parameter, path) or "" for path in paths)


_OPTIONS = (
    click.option(
        "--regex",
        "-r",
        "pattern",
        metavar="PATTERN",
        type=TextType(),
        help="The text matches this regular expression as a whole.",
    ),
    click.option(
        "--choice",
        "-c",
        "choices",
        metavar="TEXT",
        type=TextType(),
        multiple=True,
        help="The text is one of these; repeatable.",
    ),
    click.option("--format", "kind", type=click.Choice(list(FORMATS)), help="The text is a value of this type."),
    click.option(
        "--flags",
        metavar="LETTERS",
        default="",
        callback=_flags,
        help="Flags of --regex: i (ignore case), s (dot takes newlines), m (^ and $ at lines), x (verbose), a (ASCII).",
    ),
    click.option(
        "--dialect",
        type=click.Choice(["python", "ecma"]),
        default="python",
        show_default=True,
        help="The syntax of --regex: Python's re, or JavaScript's with its u flag, as in JSON Schema.",
    ),
    click.option("--grammar", metavar="FILE", callback=read_file, help="The text follows the grammar in this file."),
    click.option(
        "--syntax",
        type=click.Choice(["lark", "gbnf"]),
        help="The language of --grammar: Lark's or llama.cpp's GBNF. [default: GBNF where a rule has ::=]",
    ),
    click.option(
        "--start",
        metavar="RULE",
        type=TextType(),
        help="The rule of --grammar for the whole text. [default: start or root]",
    ),
    click.option(
        "--schema", metavar="FILE", callback=read_file, help="JSON that satisfies the JSON Schema in this file."
    ),
    click.option(
        "--pydantic", metavar="MODULE:CLASS", callback=_python_type, help="JSON of this pydantic model or type."
    ),
    click.option("--order", type=click.Choice(["schema", "any"]), help="The order of an object's members."),
    click.option(
        "--whitespace",
        type=WhitespaceType(["flexible", "compact", "pretty", "any"]),
        help="The white space in JSON; a number N allows any, up to N characters between two tokens.",
    ),
    click.option(
        "--escapes",
        type=click.Choice(["canonical", "any"]),
        help="Escapes in JSON strings: only necessary ones, or any.",
    ),
    click.option(
        "--spelling",
        type=click.Choice(["plain", "any"]),
        help="Numbers in JSON: in usual notation, or in any that JSON allows.",
    ),
    click.option(
        "--resources",
        metavar="[URI=]FILE",
        multiple=True,
        callback=_read_resources,
        help="A schema that --schema refers to, under this URI or its own $id; repeatable.",
    ),
    click.option(
        "--context",
        "contexts",
        metavar="NAME=FILE",
        multiple=True,
        callback=_read_contexts,
        help="A text that x-quote in --schema or quote(NAME) in --grammar quotes; repeatable.",
    ),
    click.option(
        "--unenforced",
        type=click.Choice(["refuse", "allow"]),
        help="Refuse keywords of --schema that cannot be enforced, or check them at the end.",
    ),
    click.option(
        "--extract",
        "documents",
        metavar="FILE",
        multiple=True,
        callback=_read_files,
        help="The text is an exact substring of this file; repeatable.",
    ),
    click.option(
        "--boundary",
        type=click.Choice(["word", "character", "sentence", "line"]),
        help="The unit of which the substring of --extract consists. [default: word]",
    ),
    click.option(
        "--none-text", metavar="TEXT", type=TextType(), help="A fixed text that --extract also allows, for no answer."
    ),
    click.option(
        "--tag",
        "tags",
        nargs=3,
        metavar="BEGIN FILE END",
        multiple=True,
        callback=read_tags,
        help="Free text with constrained parts between these markers; FILE has the constraint: a schema in .json, a "
        'grammar in .lark or .gbnf, a pattern in .regex; "" for no marker at the end; repeatable.',
    ),
    click.option("--max-work", metavar="STEPS", type=click.IntRange(1), help=_MAX_WORK),
    click.option("--max-memory", metavar="MIB", type=click.IntRange(1), help=_MAX_MEMORY),
    click.option("--max-seconds", metavar="SECONDS", type=NumberType(0, above=True), help=_MAX_SECONDS),
)
_CONSTRAINT_NAMES = tuple(each.name for each in fields(ConstraintOptions) if each.name not in ("structure", "limits"))


def constraint_options(function: Callable[Concatenate[ConstraintOptions, P], R]) -> Callable[P, R]:
    """Add the constraint options to a subcommand, which gets a ConstraintOptions as its first argument."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **options: P.kwargs) -> R:
        remaining: Any = options
        schema, python_type = remaining.pop("schema"), remaining.pop("pydantic")
        if schema is not None and python_type is not None:
            raise click.UsageError("--schema and --pydantic exclude each other: a text has one constraint")
        limits = _limits(remaining.pop("max_work"), remaining.pop("max_memory"), remaining.pop("max_seconds"))
        chosen = {name: remaining.pop(name) for name in _CONSTRAINT_NAMES if name in remaining}
        structure = python_type if schema is None else schema
        return function(ConstraintOptions(**chosen, structure=structure, limits=limits), *args, **options)

    return with_options(wrapped, _OPTIONS)
