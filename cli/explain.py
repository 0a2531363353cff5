"""`trellm explain`: what a JSON Schema comes to."""

from __future__ import annotations

from typing import Any

import click

from .constraint import structure_options


@click.command()
@structure_options
@click.option("--limit", type=int, default=100, show_default=True, help="Describe at most this many parts.")
def explain(structure: Any, limit: int) -> None:
    """Say which values satisfy a JSON Schema, part by part, with all its rules worked out.

    Lines that begin with "cost:" tell what takes more time or memory than plain types do. Parts are named by
    the JSON pointer of the schema they come from.

    \b
        trellm explain --schema person.schema.json
    """
    from ..engine.structures import structure_of
    from ..guides.json_schema import CompiledSchema
    from ..guides.json_schema.outline import Outline

    if structure is None:
        raise click.UsageError("give a schema: --schema or --pydantic")
    if limit < 1:
        raise click.UsageError(f"--limit must be at least 1, not {limit}")
    written: Any = structure_of(structure).schema
    schema = CompiledSchema(written)
    schema.check_has_instance()
    click.echo(str(Outline(schema, limit)))
