"""Models: `transformers` for Hugging Face models, `gguf` for files, `pulled` by a name, `small` and `ziplm` for play.

`from_function` is for any other.

Bringing your own model takes a vocabulary and a function from token ids to logits:

    vocabulary = Vocabulary([b"a", b"b", None], eos_ids=(2,))
    model = models.from_function(lambda ids: [0.5, 0.2, len(ids) / 10], vocabulary)
    generate.regex(model, "(ab)+")("")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ...checks import brief, switch
from ...elsewhere import LOADING, MODELS, missing, unknown_argument
from ...errors import OptionError
from .protocol import Model, Tokenizer

if TYPE_CHECKING:
    from ...tokenizers_adapter import Vocabulary
    from .decoder import DecoderModel
    from .encoder_decoder import EncoderDecoderModel
    from .function import FunctionModel
    from .zip_model import ZipModel

__all__ = ["Model", "Tokenizer", "from_function", "gguf", "pulled", "small", "transformers", "ziplm"]


def transformers(
    model: Any,
    tokenizer: Any = None,
    *,
    cache: bool = True,
    device: Any = None,
    dtype: Any = None,
    revision: str | None = None,
    device_map: Any = None,
    attn_implementation: str | None = None,
    quantization_config: Any = None,
    trust_remote_code: bool = False,
    adapter: Any = None,
    adapters: Mapping[str, Any] | None = None,
    weights: str | None = None,
    kv_cache_dtype: str = "auto",
    **others: Any,
) -> DecoderModel | EncoderDecoderModel:
    """A model of the transformers library: its name or path, or the loaded model and tokenizer; or a path in `.gguf`.

    Decoder-only models continue the prompt; encoder-decoder models (T5, BART, Marian) read it apart. Models that read
    images or audio (LLaVA, Qwen-VL, Gemma 3, Qwen2-Audio) have a processor in place of a tokenizer: docs/media.md
    says which are run.
    cache: False computes every step from the whole text; slow, but for any decoder-only architecture.
    A text may be as long as the model's positions go; with rotary embeddings that are scaled anew for long texts
    (LongRoPE, dynamic NTK), as long as the scaling stays the same.

    All others but weights, kv_cache_dtype and adapters are of a model that is given by name:
    device, dtype: where it goes, by default the CPU, and the type of its weights, by default the one they were saved in
    device_map: instead of device, "auto" or a dict of devices by the names of modules, or "disk", for weights that
        are spread over several; needs the package accelerate
    revision: a branch, a tag or a commit on the Hub
    attn_implementation: transformers' own attention, "sdpa" or "eager", for architectures that do not run on ours
    quantization_config: such as `transformers.BitsAndBytesConfig(load_in_4bit=True)`; needs the package that it names
    trust_remote_code: whether to run Python code that comes with the model
    adapter: an adapter of PEFT for it, a folder or a name on the Hub. It is added to the weights, or runs beside them
        where they are quantized; the tokenizer stays the model's. Needs the package peft
    adapters: adapters of LoRA by names of their own, folders or names on the Hub, beside the weights: each prompt has
        the one that its option adapter= names, or none, all in one batch. Of decoders of attention over blocks
    weights: "q8" or "q4" quantizes linear layers, embedding and head as GGUF files have them, for kernels of ours on a
        CPU, and saves them in the user's cache, from where they are mapped the next time. Of a loaded model, too, of
        which nothing is saved. docs/quantised.md has more. Needs the package gguf
    kv_cache_dtype: "float16" or "int8" keeps keys and values so where a model runs in float32 on a CPU: a text takes
        half or about a quarter of the memory. "auto" keeps them in the type of the model. Of a loaded model, too

    A loaded model may be wrapped by PEFT, its adapter in the layers, or spread by accelerate; or be a pipeline of
    transformers, which has its tokenizer.
    Raises OptionError for an architecture that cannot be run, and for what cannot be loaded, VocabularyError for a
    tokenizer.
    """
    switch(cache, "cache")
    if others.keys() == {"torch_dtype"} and dtype is None:  # as transformers called it
        dtype = others.pop("torch_dtype")
    for name in others:
        raise unknown_argument(name, LOADING, [*signature(transformers).parameters][1:-1])
    if all(hasattr(model, name) for name in ("model", "tokenizer", "task")):  # a pipeline
        model, tokenizer = model.model, model.tokenizer if tokenizer is None else tokenizer
    from .load_options import LoadOptions, lasting_place
    from .loading import adapted, load  # which takes two seconds the first time

    options = LoadOptions(
        device=device, dtype=dtype, revision=revision, device_map=device_map, attn_implementation=attn_implementation,
        quantization_config=quantization_config, trust_remote_code=trust_remote_code, adapter=adapter,
        adapters=adapters, weights=weights, kv_cache_dtype=kv_cache_dtype,
    )  # fmt: skip
    if isinstance(model, str) or hasattr(model, "__fspath__"):
        asked = {"model": lasting_place(model), "tokenizer": tokenizer, "cache": cache, **options.asked}
        loaded, tokenizer = load(model, tokenizer, options)
        made = adapted(loaded, tokenizer, cache=cache, kv_cache_dtype=kv_cache_dtype, adapters=options.adapters)
        return made.made_by(transformers, asked)
    by_name = [name for name in options.given if name not in ("weights", "kv_cache_dtype", "adapters")]
    if by_name and hasattr(model, "config"):
        raise OptionError(
            f"{by_name[0]}= is for a model that is given by name; this one is loaded already, so load it as it "
            "is to be, or give its name"
        )
    return adapted(
        model, tokenizer, cache=cache, weights=options.weights, kv_cache_dtype=kv_cache_dtype, adapters=options.adapters
    )


class FileOptions(TypedDict, total=False):
    """Options of models in files that `transformers` has too."""

    cache: bool
    device: Any
    dtype: Any
    kv_cache_dtype: str


def gguf(path: Any, tokenizer: Any = None, **options: Unpack[FileOptions]) -> DecoderModel | EncoderDecoderModel:
    """The model in a GGUF file, whose weights stay as they are in it, and mapped: on a CPU, without a network.

    `models.transformers` takes such a path too, and `pulled` the name of a file that was pulled. Needs the package
    gguf; docs/quantised.md says which files are read.
    path: of the file
    tokenizer: another one than that of the file
    cache, kv_cache_dtype: as for `models.transformers`
    device, dtype: where it runs instead, such as "cuda", and in which type, there bfloat16 unless given; then all
        weights are unpacked into that type

    Raises ModelError, with the path, for a file that is not there, is damaged, or has another model than those that are
    read; OptionError for what is no path and where the package is absent, VocabularyError for a tokenizer.
    """
    from .load_options import path_of_file

    place = path_of_file(path)
    return _of_file(gguf, {"path": place}, place, tokenizer, options)


def pulled(name: str, tokenizer: Any = None, **options: Unpack[FileOptions]) -> DecoderModel | EncoderDecoderModel:
    """A model that `trellm pull` has fetched, such as "smollm2": a GGUF file, loaded without a network as by `gguf`.

    `models.transformers` takes such a name too, where no folder has it; this looks nowhere but among pulled models.
    name: as `trellm pull` takes it, or `owner/repo:FILE.gguf` of a file in the Hugging Face Hub's cache
    tokenizer, cache, device, dtype, kv_cache_dtype: as for `gguf`

    Raises ModelError for a model that has not been pulled, OptionError for a name that is none, and as `gguf` does.
    """
    from ..downloads.registry import REGISTRY, pulled_file

    place = pulled_file(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if place is None:
        raise OptionError(
            f"name={brief(name)}: no name of a pulled model; there are {', '.join(map(repr, REGISTRY))}, and "
            "'owner/repo:FILE.gguf' of the Hugging Face Hub; models.transformers takes other names, and folders"
        )
    return _of_file(pulled, {"name": name}, place, tokenizer, options)


def _of_file(
    maker: Callable[..., Any], asked: dict[str, Any], place: str, tokenizer: Any, options: FileOptions
) -> DecoderModel | EncoderDecoderModel:
    """The model in a GGUF file, as a function makes it of what it is asked for. Raises OptionError."""
    possible = ["tokenizer", *FileOptions.__annotations__]
    for name in options:
        if name not in possible:
            raise unknown_argument(name, LOADING, possible)
    cache = switch(options.get("cache", True), "cache")
    from .load_options import LoadOptions
    from .loading import loaded_gguf

    load = LoadOptions(**{name: value for name, value in options.items() if name != "cache"})
    model = loaded_gguf(place, tokenizer, load, cache=cache)
    return model.made_by(maker, {**asked, "tokenizer": tokenizer, "cache": cache, **load.asked})


def from_function(
    logits: Callable[[Sequence[int]], Any],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer | None = None,
    *,
    context: int | None = None,
    some_logits: Callable[[Sequence[int], Sequence[int]], Any] | None = None,
) -> FunctionModel:
    """A model from any function of the token ids so far to V logits (list, NumPy array or tensor).

    tokenizer: anything with `encode(text) -> ids`; by default the longest tokens that fit.
    some_logits: `some_logits(ids, tokens)` returns the logits of these tokens only, where that is cheaper.
    """
    from .function import FunctionModel

    made = FunctionModel(logits, vocabulary, tokenizer, context, some_logits)
    asked = {"logits": logits, "vocabulary": vocabulary, "tokenizer": tokenizer, "context": context}
    return made.made_by(from_function, {**asked, "some_logits": some_logits}, is_shared=False)


def small(*, device: Any = None) -> DecoderModel:
    """The small model that lies in the package: 3.6 million parameters, loaded in float32, without a network.

    It reads short English passages and copies from them: records as JSON, quotations, one of several choices, dates and
    numbers in their normal form, calls of tools. docs/small-model.md says what it can and cannot do.
    device: where to load it, by default the CPU
    """
    from pathlib import Path

    from .loading import load_decoder

    made = load_decoder(Path(__file__).with_name("small"), device=device, dtype="float32")
    return made.made_by(small, {"device": device})


def ziplm(text: str, *, alphabet: str | None = None, conversion: float = math.log(256)) -> ZipModel:
    """The gzip language model over single characters: likely is what makes `text` + prompt compress well.

    alphabet: the characters it may write, by default those of `text` and of printable ASCII.
    conversion: nats per compressed byte; a higher one makes sampling greedier.
    """
    from .zip_model import ZipModel

    asked = {"text": text, "alphabet": alphabet, "conversion": conversion}
    return ZipModel(text, alphabet, conversion).made_by(ziplm, asked)


def __getattr__(name: str) -> Any:
    raise missing("trellm.models", name, MODELS, __all__)
