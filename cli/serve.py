"""`trellm serve`: a model behind the API of OpenAI."""

from __future__ import annotations

import gc
import re
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click

from .ending import ending
from .flags import NumberType, SizeType
from .models import ZIP, Loading, check_model, load_model, loading_options, threads_option
from .warmup import warm

if TYPE_CHECKING:
    from ..serve.settings import Settings

LOCAL = ("localhost",)
SWITCH_SECONDS = 5e-4
"""So long a thread keeps the interpreter where another one wants it."""
NEEDED = ("starlette", "uvicorn", "httptools", "pydantic", "prometheus_client")


def _is_local(host: str) -> bool:
    """Tell whether only this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _adapters(given: tuple[str, ...]) -> dict[str, str] | None:
    """Places of adapters by their names; None for no adapters."""
    found: dict[str, str] = {}
    for each in given:
        name, sign, place = each.partition("=")
        if not (name and sign and place) or name in found:
            raise click.UsageError(
                f"--lora-modules {each!r}: a name and a place, as in sql=adapters/sql, each name once"
            )
        found[name] = place
    return found or None


def _replicas(context: click.Context, parameter: click.Parameter, given: str | None) -> int | tuple[int, int] | None:
    """A number, or the least and the most."""
    if given is None:
        return None
    read = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", given)
    if read is None or int(read[2] or read[1]) < max(1, int(read[1])):
        raise click.BadParameter(f"{given!r}: how many, such as 2, or the least and the most, such as 1-8")
    return int(read[1]) if read[2] is None else (int(read[1]), int(read[2]))


@click.command()
@click.argument("model", required=False)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on; 0.0.0.0 for all.")
@click.option("--port", type=click.IntRange(0, 65535), default=8000, show_default=True, help="0 for any that is free.")
@click.option("--name", help="What clients call the model. [default: as it was given here]")
@click.option(
    "--alias", "aliases", multiple=True, metavar="NAME", help="A further name of the model; repeat the option."
)
@click.option("--memory", type=SizeType(), help="For keys and values, such as 20GB; by default half of what is free.")
@loading_options
@click.option(
    "--lora-modules", multiple=True, metavar="NAME=PLACE", help="An adapter of LoRA, a folder or a name on the Hub, "
    "that requests name as their model; repeat the option.",
)  # fmt: skip
@threads_option
@click.option("--api-key-file", metavar="FILE", help="Every request must have one of the keys in this file.")
@click.option(
    "--cors", "origins", multiple=True, metavar="ORIGIN", help="Web pages of this origin may ask; repeat the option."
)
@click.option(
    "--allow-host", "hosts", multiple=True, metavar="NAME", help="A host name of the server, besides localhost and "
    "addresses; repeat the option. [default: any where --host is not of this machine alone]",
)  # fmt: skip
@click.option(
    "--max-body",
    "body_bytes",
    type=SizeType(),
    help="Most bytes of a request. [default: 4MiB, or 32MiB where the model reads images]",
)
@click.option("--max-image", type=SizeType(), default="20MiB", show_default=True, help="Most bytes of an image's file.")
@click.option(
    "--max-image-pixels", type=click.IntRange(1), default=1 << 24, show_default=True, help="Most pixels of an image."
)
@click.option(
    "--image-memory",
    "image_bytes",
    type=SizeType(),
    default="1GiB",
    show_default=True,
    help="Most memory of the pixels of all requests on their way; then 429.",
)
@click.option(
    "--fetch-images", is_flag=True, help="Requests may name images by http:// and https:// addresses of the internet."
)
@click.option(
    "--max-texts",
    "texts",
    type=click.IntRange(1),
    default=1024,
    show_default=True,
    help="Most texts on their way; then 429.",
)
@click.option(
    "--max-gap-ms",
    type=NumberType(0, above=True),
    help="Longest time between two tokens of a text while prompts of others are read. [default: 100 on a CPU]",
)
@click.option("--priorities", is_flag=True, help="Requests may say their priority; the lowest numbers come first.")
@click.option(
    "--max-output",
    "output_tokens",
    type=click.IntRange(1),
    default=4096,
    show_default=True,
    help="Most tokens of a text whose request does not say.",
)
@click.option("--max-work", type=click.IntRange(1), help="Most steps of work of a constraint at a time.")
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
    help="Most memory of answers of /v1/responses that are kept to go on from; 0 for none.",
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
    help="How long requests may go on after SIGTERM.",
)
@click.option(
    "--otlp-traces-endpoint", metavar="URL", help="Send a trace of each request to this collector of OpenTelemetry, "
    "such as http://localhost:4318/v1/traces.",
)  # fmt: skip
@click.option("--access-log", is_flag=True, help="Write a line for each request to standard error.")
@click.option("--ray", is_flag=True, help="Serve by Ray: replicas of the model, on all machines of its cluster.")
@click.option(
    "--replicas",
    metavar="N | LEAST-MOST",
    callback=_replicas,
    help="With --ray: the number of replicas, or a range for Ray to choose by load. [default: 1]",
)
@click.option(
    "--cpus", type=NumberType(0), help="With --ray: CPUs reserved for each replica, such as 4 or 0.5. [default: 1]"
)
@click.option("--gpus", type=NumberType(0), help="With --ray: GPUs reserved for each replica, such as 1 or 0.5.")
def serve(
    model: str | None,
    host: str,
    port: int,
    name: str | None,
    memory: int | None,
    loading: Loading,
    lora_modules: tuple[str, ...],
    api_key_file: str | None,
    hosts: tuple[str, ...],
    max_image: int,
    max_image_pixels: int,
    fetch_images: bool,
    max_work: int | None,
    max_constraint_memory: int | None,
    ray: bool,
    replicas: int | tuple[int, int] | None,
    cpus: float | None,
    gpus: float | None,
    **others: Any,
) -> int:
    """Serve MODEL over HTTP behind OpenAI's API; by default the small model of the package.

    \b
        trellm serve
        trellm serve Qwen/Qwen3-8B --memory 20GB --api-key-file keys.txt
        trellm serve Qwen/Qwen3-8B --ray --replicas 1-8 --gpus 1

    The server answers /v1/chat/completions, /v1/completions, /v1/embeddings, /v1/models, /tokenize,
    /health, /metrics and /openapi.json, to this machine alone unless --host says otherwise. docs/serve.md
    has all of it, and docs/scale.md what is to be known of --ray.
    """
    try:
        from ..serve.asgi import application
        from ..serve.media.fetching import ImageFetcher
        from ..serve.server import listen, run
        from ..serve.settings import Settings, keys_of
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in NEEDED:
            raise
        raise click.UsageError(f"{error.name} is absent; a server needs it: pip install 'trellm[serve]'") from None
    from ..engine.media.image import ImageLimits
    from ..guides.limits import Limits

    loading = replace(loading, adapters=_adapters(lora_modules))
    check_model(model, loading)
    given = {"work": max_work, "memory": max_constraint_memory or 256 << 20}
    settings = Settings(
        name=name or model or "small",
        keys=() if api_key_file is None else keys_of(api_key_file),
        hosts=hosts or (LOCAL if _is_local(host) else ()),
        image_limits=ImageLimits(file_bytes=max_image, pixels=max_image_pixels),
        fetcher=ImageFetcher() if fetch_images else None,
        limits=Limits(**{name: value for name, value in given.items() if value is not None}),
        **others,  # options that have the names of settings
    )
    if ray:
        reserved = 1 if cpus is None else cpus, gpus or 0
        return _by_ray(model, settings, host, port, replicas or 1, reserved, memory, loading)
    if any(each is not None for each in (replicas, cpus, gpus)):
        raise click.UsageError("--replicas, --cpus and --gpus are for replicas of Ray; add --ray")
    listening = listen(host, port)
    warm(lambda name, seconds: None)
    loaded = load_model(model, loading)
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"{settings.name} at http://{shown}:{listening.getsockname()[1]}/v1", err=True)
    with ending() as end:
        try:
            with tuned_process():
                run(application(loaded, settings, memory=memory), settings, listening)
        except KeyboardInterrupt:  # of either signal, once all that ran is done
            return end.code
    return 0


@contextmanager
def tuned_process() -> Generator[None]:
    """A block in which the process does nothing but serve: settings that are the interpreter's, and so the command's.

    The collector leaves out what is there before, the model and the modules: a full collection through them takes up to
    a second, in which nobody is answered. Threads give the interpreter up sooner than by Python's default, since the
    engine's asks for it several times a token.
    """
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(interval)


def _by_ray(
    model: str | None,
    settings: Settings,
    host: str,
    port: int,
    replicas: int | tuple[int, int],
    reserved: tuple[float, float],
    memory: int | None,
    loading: Loading,
) -> int:
    """The same behind Ray Serve, until a signal ends it."""
    from ..serve.ray import deployment, run

    if port == 0:
        raise click.UsageError("--port 0 with --ray: Ray needs to be told a port")
    if model is not None and model.startswith(ZIP):
        raise click.UsageError(f"{model} with --ray: replicas load models of transformers, or the small one")
    cpus, gpus = reserved
    made = deployment(
        model, settings, replicas=replicas, cpus=cpus, gpus=gpus, memory=memory, queued=settings.texts,
        **asdict(loading),
    )  # fmt: skip
    click.echo(f"{settings.name} at http://{host}:{port}/v1, as soon as replicas are ready", err=True)
    run(made, host=host, port=port)
    return 0
