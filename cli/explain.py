"""`trellm explain`: the meaning of a constraint, and its expected input in a state or after a text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .. import guides
from ..engine.structures import structure_of
from ..errors import LimitError
from .constraint import ConstraintOptions, constraint_options, vocabulary_of
from .flags import TextType, in_flags

if TYPE_CHECKING:
    from ..guides.protocol import Mask
    from ..guides.regular_guide import RegularGuide
    from ..tokenizers_adapter import Vocabulary

MAX_TOKENS = 40


@click.command()
@constraint_options
@click.option(
    "--limit", type=int, default=100, show_default=True, help="Show at most this many parts, states or rules."
)
@click.option("--state", type=int, help="Show what a state expects, by its number in the picture.")
@click.option("--after", metavar="TEXT", type=TextType(), help="Show what is expected after this text.")
@click.option(
    "--tokenizer",
    metavar="NAME",
    help="Also list the tokens of this tokenizer, a name or folder, allowed there; --grammar may name some by ids.",
)
@click.option(
    "--picture", metavar="FILE", help="Draw the automaton, rules or parts: FILE.svg, FILE.mmd (Mermaid) or FILE.dot."
)
@click.option(
    "--keywords",
    is_flag=True,
    help="List every keyword of a schema, and whether it is enforced, an annotation, or refused.",
)
def explain(
    constraint: ConstraintOptions,
    limit: int,
    state: int | None,
    after: str | None,
    tokenizer: str | None,
    picture: str | None,
    keywords: bool,
) -> None:
    """Explain a constraint: the values of a schema, the rules of a grammar, or the states of an automaton.

    For a JSON Schema: the values that satisfy it, part by part, with all its rules combined. A line that begins with
    "cost:" names parts that take more time or memory than plain types. Parts are named by the JSON pointer of the
    schema
    they come from. For a regular constraint: the states of its automaton.

    \b
        trellm explain --schema person.schema.json
        trellm explain --schema person.schema.json --keywords
        trellm explain --regex '[0-9]+(\\.[0-9]+)?' --picture number.svg
        trellm explain --regex '[0-9]+(\\.[0-9]+)?' --state 2 --tokenizer Qwen/Qwen3-0.6B
        trellm explain --grammar arithmetic.lark --after '(1+'
    """
    if constraint.is_free:
        raise click.UsageError("no constraint is given: use --regex, --choice, --format, --grammar, --schema ...")
    if keywords and constraint.structure is None:
        raise click.UsageError("--keywords belongs to --schema or --pydantic, which are missing")
    if limit < 1:
        raise click.UsageError(f"--limit must be at least 1, not {limit}")
    if state is not None and after is not None:
        raise click.UsageError("--state and --after exclude each other: both name a state")
    if tokenizer is not None and state is None and after is None and constraint.grammar is None:
        raise click.UsageError("--tokenizer belongs to --state, --after or --grammar, which are missing")
    try:
        vocabulary = None if tokenizer is None else vocabulary_of(tokenizer)
        if picture is not None:
            _draw(constraint.guide_of_text(vocabulary), Path(picture), limit)
        if state is not None or after is not None:
            click.echo("\n".join(_state_lines(constraint, state, after, vocabulary, limit)))
        elif keywords:
            click.echo(_keywords(constraint))
        elif picture is None:
            click.echo(_overview(constraint, vocabulary, limit))
    except LimitError as error:
        raise click.UsageError(in_flags(str(error))) from None


def _keywords(constraint: ConstraintOptions) -> str:
    guide = replace(constraint, unenforced="allow").guide_of_text()
    assert isinstance(guide, guides.JSONGuide)
    return "\n".join(map(str, guide.coverage))


def _overview(constraint: ConstraintOptions, vocabulary: Vocabulary | None, limit: int) -> str:
    from ..guides.json_schema import CompiledSchema
    from ..guides.json_schema.outline import Outline
    from ..guides.regular_guide import RegularGuide

    if constraint.structure is not None:
        source: Any = structure_of(constraint.structure).schema
        schema = CompiledSchema(source, constraint.resources)
        schema.check_has_instance()
        return str(Outline(schema, limit))
    guide = constraint.guide_of_text(vocabulary)
    if isinstance(guide, guides.CFGGuide):
        return str(guide.grammar).rstrip("\n")
    assert isinstance(guide, RegularGuide)
    states = range(len(guide.minimal(limit).dfa))
    return "\n".join(line for state in states for line in _regular_lines(guide, state, limit)[:-1])


def _state_lines(
    constraint: ConstraintOptions, state: int | None, after: str | None, vocabulary: Vocabulary | None, limit: int
) -> list[str]:
    from ..guides.explain import explain as verdict_on
    from ..guides.regular_guide import RegularGuide
    from ..tokenizers_adapter.marked import pieces_of

    guide = constraint.guide_of_text(vocabulary, as_read=after is not None)
    if after is None:
        if not isinstance(guide, RegularGuide):
            raise click.UsageError(
                "--state needs a regular constraint; states of other constraints have no numbers, use --after"
            )
        assert state is not None
        lines = _regular_lines(guide, state, limit)
        state = guide.minimal(limit).states[state]
    else:
        state = guide.automaton.read(guide.start, b"".join(data for _, data in pieces_of(guide.vocabulary, after)))
        if state < 0:
            raise click.UsageError(f"--after: {verdict_on(guide, after)}".split("\n")[0])
        lines = [f"expected: {guide.describe(state)}"]
    return lines if vocabulary is None else [*lines, _tokens(guide.mask(state), vocabulary)]


def _regular_lines(guide: RegularGuide, state: int, limit: int) -> list[str]:
    """Describe a state of the minimal automaton: a head, a line for each transition, and the expected input."""
    from ..guides.pictures.automata import edge_labels

    minimal = guide.minimal(limit)
    if not 0 <= state < len(minimal.dfa):
        raise click.UsageError(f"--state {state}: the states are 0 to {len(minimal.dfa) - 1}")
    ends = ", where the text may end" if minimal.dfa.is_accepting(state) else ""
    transitions = [f"  {label} -> {target}" for target, label in edge_labels(minimal.dfa, state)]
    return [f"state {state}{ends}", *transitions, f"expected: {guide.describe(minimal.states[state])}"]


def _tokens(mask: Mask, vocabulary: Vocabulary) -> str:
    from ..guides.explain import visible
    from ..guides.pictures.automata import tokens_in
    from ..guides.protocol import tokens_of

    count = len(tokens_of(mask))
    return f"{count:,} of {vocabulary.size:,} tokens are allowed: {visible(tokens_in(mask, vocabulary, MAX_TOKENS))}"


def _draw(guide: Any, path: Path, limit: int) -> None:
    picture = guide.picture(max_states=limit)
    writers = {".svg": picture.to_svg, ".mmd": picture.to_mermaid, ".dot": picture.to_dot}
    if path.suffix not in writers:
        raise click.UsageError(f"--picture {path}: the name must end in .svg, .mmd or .dot")
    text = writers[path.suffix]()
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--picture {path} cannot be written: {error.strerror}") from None
