"""`trellm serve`: models behind OpenAI's API."""

from __future__ import annotations

import gc
import json
import os
import re
import socket
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click

from ..engine.loading_options import LoadingOptions
from ..errors import OptionError
from .ending import interruptible
from .flags import NumberType, SizeType, grouped
from .models import SMALL, ZIP, check_model, is_small, known_bytes, load_model, loading_options, threads_option
from .warmup import warm

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from ..engine.models import Model
    from ..serve.settings import Settings

LOCAL = ("localhost",)
LORA_FIELDS = {"name", "path", "base_model_name"}
SWITCH_SECONDS = 5e-4
"""Switch interval in seconds, after which a thread yields the GIL."""
NEEDED = ("starlette", "uvicorn", "httptools", "pydantic", "prometheus_client")


def _is_local(host: str) -> bool:
    """Test whether an address is only reachable from this machine."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class NamedModel:
    """A model of the command line. text: its source, None for the package's small model"""

    name: str
    text: str | None

    @classmethod
    def of(cls, argument: str) -> NamedModel:
        """Parse NAME=MODEL, or MODEL, which is also its name. An existing path is a MODEL."""
        name, sign, text = argument.partition("=")
        if not sign or argument.startswith(ZIP) or os.path.exists(os.path.expanduser(argument)):
            name = text = argument
        if not (name and text):
            raise click.UsageError(f"{argument!r}: expected MODEL or NAME=MODEL, as in chat=Qwen/Qwen3-8B")
        return cls(name, None if is_small(text) else text)


def _named_models(arguments: tuple[str, ...], name: str | None) -> list[NamedModel]:
    """Return the models of the command line. name: name of the first one"""
    models = [NamedModel.of(each) for each in arguments or (SMALL,)]
    if name is not None and arguments and models[0].name != arguments[0]:
        raise click.UsageError(f"--name {name} and {arguments[0]}: both name the first model; leave one out")
    return models if name is None else [replace(models[0], name=name), *models[1:]]


def _adapters(arguments: tuple[str, ...], models: list[NamedModel]) -> dict[str, dict[str, str]]:
    """Return the paths of adapters by model and name."""
    adapters: dict[str, dict[str, str]] = {}
    for each in arguments:
        base, name, place = _adapter(each, models)
        if not (name and place) or any(name in paths for paths in adapters.values()):
            raise click.UsageError(
                f"--lora-modules {each!r}: expected NAME=PLACE, as in sql=adapters/sql, with each name once"
            )
        if base not in [model.name for model in models]:
            raise click.UsageError(f"--lora-modules {each!r}: there is no model {base!r}")
        adapters.setdefault(base, {})[name] = place
    return adapters


def _adapter(value: str, models: list[NamedModel]) -> tuple[str, str, str]:
    """Return model, name and path of an adapter, given as NAME=PLACE or as JSON in vLLM's format."""
    is_json = value.startswith("{")
    if not is_json and len(models) > 1:
        example = '{"name": "sql", "path": "adapters/sql", "base_model_name": "chat"}'
        raise click.UsageError(
            f"--lora-modules {value!r}: with several models expected JSON with the adapter's model, as in '{example}'"
        )
    if not is_json:
        name, _, place = value.partition("=")
        return models[0].name, name, place
    try:
        fields: dict[str, Any] = json.loads(value)
        if not all(isinstance(each, str) for each in fields.values()) or fields.keys() - LORA_FIELDS:
            raise ValueError
        return fields.get("base_model_name", models[0].name if len(models) == 1 else ""), fields["name"], fields["path"]
    except (ValueError, KeyError):
        raise click.UsageError(
            f"--lora-modules {value!r}: expected JSON with the strings name, path and base_model_name"
        ) from None


def _replicas(context: click.Context, parameter: click.Parameter, value: str | None) -> int | tuple[int, int] | None:
    """Parse a number, or a range."""
    if value is None:
        return None
    match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", value)
    if match is None or int(match[2] or match[1]) < max(1, int(match[1])):
        raise click.BadParameter(f"{value!r}: expected a number, such as 2, or a range, such as 1-8")
    return int(match[1]) if match[2] is None else (int(match[1]), int(match[2]))


def _settings(
    name: str,
    host: str,
    *,
    api_key_file: str | None,
    hosts: tuple[str, ...],
    max_image: int,
    max_image_pixels: int,
    max_audio: int,
    max_audio_seconds: int,
    fetch_media: bool,
    max_work: int | None,
    max_constraint_memory: int | None,
    **others: Any,
) -> Settings:
    """Return the settings of the options. others: options with the names of settings. Raises OptionError."""
    from ..engine.media.audio import AudioLimits
    from ..engine.media.image import ImageLimits
    from ..guides.limits import Limits
    from ..serve.media.fetching import MediaFetcher
    from ..serve.settings import Settings, keys_of

    limits = Limits(memory=max_constraint_memory or 256 << 20)
    return Settings(
        name=name,
        keys=() if api_key_file is None else keys_of(api_key_file),
        hosts=hosts or (LOCAL if _is_local(host) else ()),
        image_limits=ImageLimits(file_bytes=max_image, pixels=max_image_pixels),
        audio_limits=AudioLimits(file_bytes=max_audio, seconds=max_audio_seconds),
        fetcher=MediaFetcher() if fetch_media else None,
        limits=limits if max_work is None else replace(limits, work=max_work),
        **others,
    )


_REPLICAS = (
    click.option("--ray", is_flag=True, help="Serve by Ray: replicas of the model, on all machines of its cluster."),
    click.option(
        "--replicas",
        metavar="N | MIN-MAX",
        callback=_replicas,
        help="With --ray: the number of replicas, or a range from which Ray chooses by load. [default: 1]",
    ),
    click.option(
        "--cpus", type=NumberType(0), help="With --ray: CPUs reserved for each replica, such as 4 or 0.5. [default: 1]"
    ),
    click.option("--gpus", type=NumberType(0), help="With --ray: GPUs reserved for each replica, such as 1 or 0.5."),
)


@dataclass(frozen=True)
class Replicas:
    """Options of replicas: their number and resources; None if not given."""

    ray: bool
    replicas: int | tuple[int, int] | None
    cpus: float | None
    gpus: float | None

    def is_enabled(self, is_alone: bool) -> bool:
        """Test whether to serve with Ray. Raises UsageError for conflicting options.

        is_alone: True for one model without a budget
        """
        if self.ray and not is_alone:
            raise click.UsageError("--ray serves one model, without --memory-budget; start a server for each model")
        if not self.ray and any(each is not None for each in (self.replicas, self.cpus, self.gpus)):
            raise click.UsageError("--replicas, --cpus and --gpus need --ray")
        return self.ray

    def serve(
        self, model: str | None, settings: Settings, host: str, port: int, memory: int | None, loading: LoadingOptions
    ) -> int:
        """Serve with Ray Serve until a signal stops it."""
        from ..serve.ray import deployment, run

        if port == 0:
            raise click.UsageError("--port 0 is not possible with --ray; give the number of a port")
        if model is not None and model.startswith(ZIP):
            raise click.UsageError(
                f"{model} is not possible with --ray; replicas only load models of transformers, or the small model"
            )
        app = deployment(
            model, settings, replicas=self.replicas or 1, cpus=1 if self.cpus is None else self.cpus,
            gpus=self.gpus or 0, memory=memory, queued=settings.texts, **loading.changed,
        )  # fmt: skip
        click.echo(f"{settings.name} at http://{host}:{port}/v1, as soon as replicas are ready", err=True)
        run(app, host=host, port=port)
        return 0


@click.command()
@click.argument("models", nargs=-1, metavar="[[NAME=]MODEL]...")
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="The port to listen on; 0 for any free one.",
)
@click.option("--name", help="The name by which clients request the first model. [default: MODEL]")
@click.option(
    "--alias", "aliases", multiple=True, metavar="NAME", help="A further name of the first model; repeatable."
)
@click.option(
    "--memory", type=SizeType(), help="Size of the KV cache, such as 20GB; by default half of the free memory."
)
@click.option(
    "--memory-budget", type=SizeType(), metavar="SIZE", help="Memory for weights and KV caches of all loaded models; "
    "the least recently used one is unloaded for another. [default: the free memory, with several models]",
)  # fmt: skip
@loading_options
@click.option(
    "--lora-modules", multiple=True, metavar="NAME=PLACE | JSON", help="A LoRA adapter, a folder or a name on the Hub, "
    "that clients request as model NAME; with several models JSON names its base model; repeatable.",
)  # fmt: skip
@threads_option
@click.option(
    "--api-key-file", metavar="FILE", help="File of API keys, one on each line; every request needs one of them."
)
@click.option(
    "--cors", "origins", multiple=True, metavar="ORIGIN", help="Allow requests of web pages of this origin; repeatable."
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name that requests may use, besides localhost "
    "and IP addresses; repeatable. [default: any, unless --host is a loopback address]",
)  # fmt: skip
@click.option(
    "--max-body",
    "body_bytes",
    type=SizeType(),
    help="Most bytes of a request. [default: 4MiB, or 32MiB if the model reads images or audio]",
)
@click.option("--max-image", type=SizeType(), default="20MiB", show_default=True, help="Most bytes of an image's file.")
@click.option(
    "--max-image-pixels", type=click.IntRange(1), default=1 << 24, show_default=True, help="Most pixels of an image."
)
@click.option("--max-audio", type=SizeType(), default="20MiB", show_default=True, help="Most bytes of an audio file.")
@click.option(
    "--max-audio-seconds", type=click.IntRange(1), default=600, show_default=True, help="Most seconds of an audio file."
)
@click.option(
    "--media-memory",
    "media_bytes",
    type=SizeType(),
    default="1GiB",
    show_default=True,
    help="Most memory of decoded images and audio of all running requests; beyond it requests get 429.",
)
@click.option(
    "--fetch-media",
    "--fetch-images",
    "fetch_media",
    is_flag=True,
    help="Fetch images and audio that requests name by http:// and https:// addresses of the internet.",
)
@click.option(
    "--max-texts",
    "texts",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Most sequences, running and waiting; beyond it requests get 429.",
)
@click.option(
    "--max-gap-ms",
    type=NumberType(0, above=True),
    help="Longest gap between two tokens of a sequence while prompts of others are read. [default: 100 on a CPU]",
)
@click.option("--priorities", is_flag=True, help="Accept priorities in requests; lower numbers run first.")
@click.option(
    "--max-output",
    "output_tokens",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    help="Most tokens of an output whose request has no max_tokens.",
)
@click.option("--max-work", type=click.IntRange(1), help="Most steps of work of a constraint in one call.")
@click.option("--max-constraint-memory", type=SizeType(), help="Most memory of a constraint. [default: 256MiB]")
@click.option(
    "--kept-constraints",
    "kept_bytes",
    type=SizeType(),
    default="1GiB",
    show_default=True,
    help="Most memory of compiled constraints that are kept for later requests.",
)
@click.option(
    "--kept-responses",
    "response_bytes",
    type=SizeType(0),
    default="64MiB",
    show_default=True,
    help="Most memory of stored answers of /v1/responses, for previous_response_id; 0 for none.",
)
@click.option(
    "--compile-seconds",
    type=NumberType(0, above=True),
    default=10.0,
    show_default=True,
    help="Longest time that a constraint may take to compile.",
)
@click.option(
    "--drain-seconds",
    type=NumberType(0, above=True),
    default=30.0,
    show_default=True,
    help="How long running requests may continue after SIGTERM.",
)
@click.option(
    "--otlp-traces-endpoint", metavar="URL", help="Send a trace of each request to this OpenTelemetry collector, "
    "such as http://localhost:4318/v1/traces.",
)  # fmt: skip
@click.option("--access-log", is_flag=True, help="Write a line for each request to standard error.")
@grouped(Replicas, "replicas", _REPLICAS)
def serve(
    models: tuple[str, ...],
    host: str,
    port: int,
    name: str | None,
    memory: int | None,
    memory_budget: int | None,
    loading: LoadingOptions,
    lora_modules: tuple[str, ...],
    replicas: Replicas,
    **settings_options: Any,
) -> int:
    """Serve MODELS over HTTP behind OpenAI's API; by default the small model of the package.

    \b
        trellm serve
        trellm serve Qwen/Qwen3-8B --memory 20GB --api-key-file keys.txt
        trellm serve small chat=Qwen/Qwen3-8B code=coder.gguf --memory-budget 24GiB
        trellm serve Qwen/Qwen3-8B --ray --replicas 1-8 --gpus 1

    The first model is loaded at once, others on their first request. The server answers /v1/chat/completions,
    /v1/completions, /v1/embeddings, /v1/models, /tokenize, /health, /metrics and /openapi.json, for this machine only
    unless --host says otherwise. docs/serve.md describes all of it, and docs/scale.md the use of --ray.
    """
    try:
        from ..serve.asgi import application
        from ..serve.hosting.hosted import ServedModel
        from ..serve.server import listen
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise click.UsageError(f"{error.name} is absent; a server needs it: pip install 'trellm[serve]'") from None
    named = _named_models(models, name)
    adapters = _adapters(lora_modules, named)
    options = [replace(loading, adapters=adapters.get(each.name)) for each in named]
    for each, own_loading in zip(named, options, strict=True):
        check_model(each.text, own_loading)
    settings = _settings(named[0].name, host, **settings_options)
    if replicas.is_enabled(len(named) == 1 and memory_budget is None):
        return replicas.serve(named[0].text, settings, host, port, memory, options[0])
    first, *more = [
        ServedModel(
            name=each.name,
            model=partial(_load, each.text, own_loading),
            adapters=tuple(own_loading.adapters or ()),
            weight_bytes=known_bytes(each.text),
        )
        for each, own_loading in zip(named, options, strict=True)
    ]
    app = application(first.model, settings, memory=memory, memory_budget=memory_budget, others=more)
    with listen(host, port) as listener:
        warm(lambda name, seconds: None)
        with tuned_process():
            app.state.models.preload()
            address = f"[{host}]" if ":" in host else host
            names = ", ".join(each.name for each in named)
            click.echo(f"{names} at http://{address}:{listener.getsockname()[1]}/v1", err=True)
            return _run_server(app, settings, listener)


def _run_server(app: Starlette, settings: Settings, listener: socket.socket) -> int:
    """Run until a signal stops the server. Return the exit code."""
    from ..serve.server import run

    with interruptible() as end:
        try:
            run(app, settings, listener)
        except KeyboardInterrupt:  # by either signal, after running requests are done
            return end.code
    return 0


def _load(text: str | None, loading: LoadingOptions) -> Model:
    """Load a model. Raises OptionError, which is also reported to requests."""
    try:
        return load_model(text, loading)
    except click.UsageError as error:
        raise OptionError(error.message.removeprefix("--model ")) from None  # which is an argument here


@contextmanager
def tuned_process() -> Generator[None]:
    """Set interpreter-wide options for a process that only serves, within a block.

    Garbage collection skips the modules loaded before: a full collection through them blocks all requests for up to a
    second. Models are loaded inside the block, so that unloaded ones are collected. The switch interval is shorter than
    Python's default, since the engine's thread requests the GIL several times per token.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)
