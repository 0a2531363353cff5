"""Models: `transformers` for Hugging Face models, `gguf` for files, `pulled` for pulled names; `small` and `ziplm`.

`from_function` wraps any other model. It needs a vocabulary and a function from token ids to logits:

    vocabulary = Vocabulary([b"a", b"b", None], eos_ids=(2,))
    model = models.from_function(lambda ids: [0.5, 0.2, len(ids) / 10], vocabulary)
    generate.regex(model, "(ab)+")("")
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from ...checks import brief, check_bool
from ...elsewhere import LOADING, MODELS, missing, unknown_argument
from ...errors import OptionError
from ..downloads.registry import REGISTRY, pulled_file
from .function import FunctionModel
from .load_options import LoadOptions, lasting_place, path_of_file
from .protocol import Model, Tokenizer
from .zip_model import ZipModel

if TYPE_CHECKING:
    from ...tokenizers_adapter import Vocabulary
    from .decoder import DecoderModel
    from .encoder_decoder import EncoderDecoderModel

__all__ = ["Model", "Tokenizer", "from_function", "gguf", "pulled", "small", "transformers", "ziplm"]


class FileOptions(TypedDict, total=False):
    """Options of `gguf` and `pulled`."""

    cache: bool
    device: Any
    dtype: Any
    kv_cache_dtype: str


class ModelOptions(FileOptions, total=False):
    """Options of `transformers`."""

    revision: str | None
    device_map: Any
    attn_implementation: str | None
    quantization_config: Any
    trust_remote_code: bool
    adapter: Any
    adapters: Mapping[str, Any] | None
    weights: str | None


def transformers(
    model: Any, tokenizer: Any = None, **options: Unpack[ModelOptions]
) -> DecoderModel | EncoderDecoderModel:
    """Load a model of the transformers library by name or path, or a `.gguf` path, or wrap a loaded model.

    Decoder-only models continue the prompt; encoder-decoder models (T5, BART, Marian) read it separately. Models that
    read images or audio (LLaVA, Qwen-VL, Gemma 3, Qwen2-Audio) take a processor in place of a tokenizer; docs/media.md
    lists the supported ones.
    cache: False computes every step from the whole text: slow, but possible for any decoder-only architecture.

    The context is the model's number of positions. If rotary embeddings are rescaled for long texts (LongRoPE, dynamic
    NTK), it is the greatest length with the initial scaling.

    All other options except weights, kv_cache_dtype and adapters are for models given by name:
    device, dtype: device, by default the CPU, and dtype of the weights, by default that of the file
    device_map: instead of device, "auto" or a dict of devices by module names, or "disk", for weights spread over
        several devices; needs the package accelerate
    revision: a branch, a tag or a commit on the Hub
    attn_implementation: transformers' own attention, "sdpa" or "eager", for architectures that do not use ours
    quantization_config: such as `transformers.BitsAndBytesConfig(load_in_4bit=True)`; needs the package it names
    trust_remote_code: True to run Python code that comes with the model
    adapter: a PEFT adapter, a folder or a name on the Hub. It is merged into the weights, or runs beside quantized
        ones; the tokenizer stays the model's. Needs the package peft
    adapters: LoRA adapters by names of the caller's choice, folders or names on the Hub, beside the weights. A prompt's
        option adapter= chooses one; a batch may use several. For decoders with attention over blocks
    weights: "q8" or "q4" quantizes linear layers, embedding and head to GGUF formats, for our CPU kernels. For a model
        given by name, files in the user's cache keep the weights for the next load. Also for a loaded model. See
        docs/quantised.md. Needs the package gguf
    kv_cache_dtype: "float16" or "int8" stores the KV cache in that type for a model in float32 on a CPU: half or about
        a quarter of the memory. "auto" uses the model's dtype. Also for a loaded model

    A loaded model may have a PEFT adapter in its layers, be spread over devices by accelerate, or be a pipeline of
    transformers, which has a tokenizer.

    Raises OptionError for an unsupported architecture and for failed loading, VocabularyError for a tokenizer.
    """
    given: dict[str, Any] = {**options}
    if given.get("dtype") is None and "torch_dtype" in given:  # transformers' former name of dtype
        given["dtype"] = given.pop("torch_dtype")
    cache, load_options = _checked(given, ModelOptions)
    if all(hasattr(model, name) for name in ("model", "tokenizer", "task")):  # a pipeline
        model, tokenizer = model.model, model.tokenizer if tokenizer is None else tokenizer
    from .loading import load, wrap  # the first import takes two seconds

    if isinstance(model, str) or hasattr(model, "__fspath__"):
        arguments = {"model": lasting_place(model), "tokenizer": tokenizer, "cache": cache, **load_options.arguments}
        loaded, tokenizer = load(model, tokenizer, load_options)
        return wrap(loaded, tokenizer, load_options, cache=cache).made_by(transformers, arguments)
    by_name = [name for name in load_options.changed if name not in ("weights", "kv_cache_dtype", "adapters")]
    if by_name and hasattr(model, "config"):
        raise OptionError(
            f"{by_name[0]}= is for a model that is given by name; this one is loaded already, so load it as it "
            "is to be, or give its name"
        )
    return wrap(model, tokenizer, load_options, cache=cache, weights=load_options.weights)


def _checked(options: Mapping[str, Any], kind: Any) -> tuple[bool, LoadOptions]:
    """Return `cache` and the other options. kind: their TypedDict. Raises OptionError, also for unknown names."""
    possible = ["tokenizer", *kind.__annotations__]
    for name in options:
        if name not in possible:
            raise unknown_argument(name, LOADING, possible)
    cache = check_bool(options.get("cache", True), "cache")
    return cache, LoadOptions(**{name: value for name, value in options.items() if name != "cache"})


def gguf(path: Any, tokenizer: Any = None, **options: Unpack[FileOptions]) -> DecoderModel | EncoderDecoderModel:
    """Load a GGUF file, with its weights mapped in their own format: on a CPU, without a network.

    `models.transformers` also takes such paths, and `pulled` the name of a pulled file. Needs the package gguf;
    docs/quantised.md lists supported files.
    path: of the file
    tokenizer: replaces the file's tokenizer
    cache, kv_cache_dtype: as for `models.transformers`
    device, dtype: another device, such as "cuda", and dtype, there bfloat16 by default; all weights are then unpacked
        to that dtype

    Raises ModelError, with the path, for a file that is missing, damaged, or contains an unsupported model; OptionError
    for an invalid path and without the package, VocabularyError for a tokenizer.
    """
    place = path_of_file(path)
    return _of_file(gguf, {"path": place}, place, tokenizer, options)


def pulled(name: str, tokenizer: Any = None, **options: Unpack[FileOptions]) -> DecoderModel | EncoderDecoderModel:
    """Load a model that `trellm pull` has downloaded, such as "smollm2": a GGUF file, as by `gguf`, without a network.

    `models.transformers` also takes such names unless a folder has them; this function only searches pulled models.
    name: as for `trellm pull`, or `owner/repo:FILE.gguf` of a file in the Hugging Face Hub's cache
    tokenizer, cache, device, dtype, kv_cache_dtype: as for `gguf`

    Raises ModelError for a model that is not pulled, OptionError for an invalid name, and the errors of `gguf`.
    """
    place = pulled_file(name) if isinstance(name, str) else None  # pyright: ignore[reportUnnecessaryIsInstance]
    if place is None:
        raise OptionError(
            f"name={brief(name)}: no name of a pulled model; there are {', '.join(map(repr, REGISTRY))}, and "
            "'owner/repo:FILE.gguf' of the Hugging Face Hub; models.transformers takes other names, and folders"
        )
    return _of_file(pulled, {"name": name}, place, tokenizer, options)


def _of_file(
    maker: Callable[..., Any], arguments: dict[str, Any], place: str, tokenizer: Any, options: FileOptions
) -> DecoderModel | EncoderDecoderModel:
    """Load a GGUF file, and record the function `maker` and its arguments for copies. Raises OptionError."""
    from .loading import wrap_gguf

    cache, load = _checked(options, FileOptions)
    model = wrap_gguf(place, tokenizer, load, cache=cache)
    return model.made_by(maker, {**arguments, "tokenizer": tokenizer, "cache": cache, **load.arguments})


def from_function(
    logits: Callable[[Sequence[int]], Any],
    vocabulary: Vocabulary,
    tokenizer: Tokenizer | None = None,
    *,
    context: int | None = None,
    some_logits: Callable[[Sequence[int], Sequence[int]], Any] | None = None,
) -> FunctionModel:
    """Wrap a function from the token ids so far to V logits (list, NumPy array or tensor) as a model.

    tokenizer: anything with `encode(text) -> ids`; by default greedy longest match.
    some_logits: `some_logits(ids, tokens)` returns the logits of these tokens only, if that is cheaper.
    """
    model = FunctionModel(logits, vocabulary, tokenizer, context, some_logits)
    arguments = {"logits": logits, "vocabulary": vocabulary, "tokenizer": tokenizer, "context": context}
    return model.made_by(from_function, {**arguments, "some_logits": some_logits}, is_shared=False)


def small(*, device: Any = None) -> DecoderModel:
    """Load the package's small model: 3.6 million parameters, float32, without a network.

    It reads short English passages and copies from them: records as JSON, quotations, choices, dates and numbers in
    normal form, tool calls. docs/small-model.md describes its abilities and limits.
    device: device of the weights, by default the CPU
    """
    from .loading import load_decoder

    model = load_decoder(Path(__file__).with_name("small"), device=device, dtype="float32")
    return model.made_by(small, {"device": device})


def ziplm(text: str, *, alphabet: str | None = None, conversion: float = math.log(256)) -> ZipModel:
    """Return the gzip language model: characters that compress well after `text` + prompt are likely.

    alphabet: characters of the vocabulary, by default those of `text` and of printable ASCII.
    conversion: nats per compressed byte; a higher one makes sampling greedier.
    """
    arguments = {"text": text, "alphabet": alphabet, "conversion": conversion}
    return ZipModel(text, alphabet, conversion).made_by(ziplm, arguments)


def __getattr__(name: str) -> Any:
    raise missing("trellm.models", name, MODELS, __all__)
