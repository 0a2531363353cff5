"""`trellm check`: tests a text against a constraint, and explains a mismatch."""

from __future__ import annotations

import json as json_module
from typing import Any, TextIO

import click

from ..engine.structures import structure_of
from ..errors import LimitError
from .constraint import ConstraintOptions, constraint_options, vocabulary_of
from .flags import TextType

MISMATCH = 1


@click.command()
@constraint_options
@click.option("--text", "-t", type=TextType(), help="The text to check.")
@click.option(
    "--json", type=click.File(encoding="utf-8"), help="A file with JSON in any layout, for --schema or --pydantic."
)
@click.option("--file", "-f", type=click.File(encoding="utf-8"), help="A file with the text; - is standard input.")
@click.option("--tokenizer", metavar="NAME", help="A tokenizer, a name or folder, for token ids in --grammar.")
@click.option(
    "--spans",
    is_flag=True,
    help="Add the places of quotations (--schema, --pydantic or --grammar) and of captures (--grammar or --regex).",
)
def check(
    constraint: ConstraintOptions,
    text: str | None,
    json: TextIO | None,
    file: TextIO | None,
    tokenizer: str | None,
    spans: bool,
) -> int:
    """Test whether a text meets a constraint. If not, show how far it gets and what was expected there.

    For JSON that does not satisfy its schema, name the violated keyword and its place.
    The exit code is 0 if the text meets the constraint, and 1 if not.

    \b
        trellm check --regex '[0-9]{4}-[0-9]{2}' --text 2024/05
        trellm check --schema person.schema.json --json person.json
        trellm check --extract report.txt --text 'both lungs'
        trellm check --schema finding.schema.json --context report=report.txt --spans --json finding.json

    With --text or --file, JSON must be written as `trellm generate` writes it. With --json its member order, white
    space, escapes and number spelling do not matter, unless --order, --whitespace, --escapes or --spelling are given.
    If --grammar names a special token, such as <|im_end|>, that name in a text means the token.
    """
    from ..guides.explain import explain
    from ..guides.protocol import Findings
    from ..tokenizers_adapter.marked import pieces_of

    if constraint.is_free:
        raise click.UsageError(
            "no constraint is given: use --regex, --choice, --format, --grammar, --schema or --extract"
        )
    if json is not None and constraint.structure is None:
        raise click.UsageError("--json belongs to --schema or --pydantic, which are missing")
    if spans and not constraint.may_quote and constraint.pattern is None:
        raise click.UsageError("--spans belongs to --schema, --pydantic, --grammar or --regex, which are missing")
    if (text is not None) + (json is not None) + (file is not None) != 1:
        raise click.UsageError("give exactly one of --text, --file and --json")
    if text is None:
        file = file or json
        assert file is not None
        try:
            text = file.read()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{file.name} is not text in UTF-8 ({error.reason} at byte {error.start})") from None
    vocabulary = None if tokenizer is None else vocabulary_of(tokenizer)
    guide = constraint.guide_of_text(vocabulary, as_read=json is not None)
    verdict = explain(guide, text)
    click.echo(str(verdict))
    if not verdict.matches and constraint.structure is not None:
        click.echo(_violation_line(constraint, text), nl=False)
    data = b"".join(piece for _, piece in pieces_of(guide.vocabulary, text))
    findings = Findings.of(guide if spans and verdict.matches else None, text, data)
    for place, span in findings.spans.items():
        click.echo(f"  {place}: {span.text!r}, characters {span.start} to {span.end} of document {span.document}")
    for name, captures in findings.captures.items():
        for each in captures:
            click.echo(f"  {name}: {each.text!r}, characters {each.start} to {each.end}")
    return 0 if verdict.matches else MISMATCH


def _violation_line(constraint: ConstraintOptions, text: str) -> str:
    """Return a line about the violated keyword; "" if the text is not JSON."""
    from ..guides.quoting.quotation import Quote
    from .violation import violation

    try:
        value: Any = json_module.loads(text, parse_constant=_refuse_constant)
        quotes = {name: Quote.of(context) for name, context in constraint.contexts.items()}
        found = violation(structure_of(constraint.structure).schema, value, constraint.resources, quotes)
    except (ValueError, RecursionError, LimitError):
        return ""
    if found is not None:
        return f"the value breaks {found}\n"
    return (
        "the value satisfies the schema, but not the layout that `trellm generate` writes: use --json for any "
        "layout, or change --order, --whitespace, --escapes or --spelling\n"
    )


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is no JSON number")
