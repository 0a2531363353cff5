"""Loading of GGUF files: as modules of transformers with mapped weights, or as bare weights for kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from ....errors import ModelError, OptionError
from ....kernels.decoder.plain import HeadNorms
from ....kernels.quantized.formats import FORMATS
from ....kernels.quantized.products import QuantizedMatrix
from ..packed.architectures import ARCHITECTURES as DESCRIBED
from ..packed.architectures import NotDescribedError
from ..packed.description import DecoderDescription, DecoderWeights, LayerWeights, Norm, QuantizedProducts, Rotary
from ..quantized.modules import QuantizedEmbedding, QuantizedLinear
from ..stock import is_absent
from .architectures import ARCHITECTURES, LONG, SHORT, Architecture, ArchitectureMetadata
from .file import GGUFFile, GGUFTensor
from .network import GGUFNetwork
from .tokenizer import GGUFTokenizer, tokenizer_of

_EMBEDDING, _HEAD, _ROTARY_FACTORS = "token_embd", "output", "rope_freqs.weight"
_NAMES = {
    "queries": "attn_q", "keys": "attn_k", "values": "attn_v", "out": "attn_output", "gates": "ffn_gate",
    "up": "ffn_up", "down": "ffn_down",
}  # fmt: skip
"""Tensor names of a described decoder's products."""
_SOME = 1 << 20
"""Number of blocks whose scales are checked at a time."""


def load_gguf(
    path: str | Path, dtype: torch.dtype | None = None, *, for_kernels: bool = False
) -> tuple[Any, GGUFTokenizer]:
    """Return the model of a file, with mapped weights, and its tokenizer.

    dtype: dtype to which all weights are unpacked; None to map them
    for_kernels: True to return a GGUFNetwork if kernels run the model, rather than a model of transformers
    Raises ModelError for an invalid file, OptionError without the package gguf.
    """
    path = Path(path)
    if find_spec("gguf") is None:
        raise OptionError(f"{str(path)!r} needs the package gguf, which is not installed: pip install 'trellm[gguf]'")
    if path.is_dir():
        found = sorted(file.name for file in path.glob("*.gguf"))
        raise ModelError(f"{path} is a folder; give the file: {', '.join(found[:9]) or 'it has no .gguf'}")
    file = GGUFFile.open(path)
    if file.metadata.get("split.count", 0) not in (0, 1):
        raise ModelError(
            f"{path} is one of {file.metadata['split.count']!r:.20} files of a model; join them with "
            "`llama-gguf-split --merge` first"
        )
    tokenizer = tokenizer_of(file)
    return _Loader(file, tokenizer, dtype).model(for_kernels), tokenizer


class _Loader:
    """Loader of one file. It records which tensors are used, since all must be."""

    def __init__(self, file: GGUFFile, tokenizer: GGUFTokenizer, dtype: torch.dtype | None) -> None:
        self._file = file
        self._tokenizer = tokenizer
        self._dtype = dtype
        self._used: set[str] = set()

    def model(self, for_kernels: bool) -> Any:
        """Return the model with all weights. Raises ModelError."""
        name: str = self._file.need("general.architecture", str)
        architecture = ARCHITECTURES.get(name)
        if architecture is None:
            raise self._error(f"general.architecture is {name!r:.60}; read are {', '.join(ARCHITECTURES)}")
        facts = ArchitectureMetadata(self._file, name)
        options = architecture.options(facts)
        facts.check_all_read()
        layers: int = options["num_hidden_layers"]
        if layers > len(self._file.tensors):
            raise self._error(f"{layers:,} layers of {len(self._file.tensors):,} tensors; fetch the file again")
        config = self._config(architecture, options)
        description = self._description(config) if for_kernels else None
        if description is not None:
            network = self._network(architecture, config, description)
            self._check_all_used()
            return network
        model = self._empty_model(architecture, config)
        names: Any = import_module("gguf")
        number = next(key for key, known in names.MODEL_ARCH_NAMES.items() if known == name)
        self._fill(model, architecture, names.get_tensor_name_map(number, layers))
        self._set_rotary(model, options)
        self._check_all_used()
        if is_absent(model) or any(buffer.device.type == "meta" for buffer in model.buffers()):
            raise self._error(f"{architecture.network} of this version of transformers has parts that no tensor fills")
        return (model if self._dtype is None else model.to(self._dtype)).eval()

    def _config(self, architecture: Architecture, options: dict[str, Any]) -> Any:
        """Return the configuration of the model."""
        words = self._tensor(f"{_EMBEDDING}.weight")
        if len(words.shape) != 2 or words.shape[0] < len(self._tokenizer):
            raise self._error(
                f"tensor {words.name!r} of shape {words.shape} has no row for each of {len(self._tokenizer):,} tokens"
            )
        ids = self._tokenizer
        try:
            return getattr(transformers, architecture.config)(
                **options, vocab_size=words.shape[0], tie_word_embeddings=f"{_HEAD}.weight" not in self._file.tensors,
                bos_token_id=ids.bos_token_id, eos_token_id=ids.eos_token_id, pad_token_id=ids.pad_token_id,
                name_or_path=str(self._file.path),
            )  # fmt: skip
        except Exception as error:  # configurations and modules raise various exceptions
            raise self._no_config(architecture, error) from error

    def _no_config(self, architecture: Architecture, error: Exception) -> ModelError:
        return self._error(f"no {architecture.config} can be made of the metadata: {error}")

    def _generation_config(self) -> Any:
        ids, library = self._tokenizer, cast("Any", transformers)
        return library.GenerationConfig(
            bos_token_id=ids.bos_token_id, eos_token_id=ids.end_ids or None, pad_token_id=ids.pad_token_id
        )

    def _description(self, config: Any) -> DecoderDescription | None:
        """Return the description for kernels; None if there is none, or the file has biases that it lacks.

        `_network` checks the other tensors' names and shapes against it.
        """
        tensors, architecture = self._file.tensors, DESCRIBED.get(config.model_type)
        if architecture is None:
            return None
        try:
            description = architecture.describe(config)
        except NotDescribedError:
            return None
        biases = {name for name in tensors if name.endswith(".bias")}
        described = {
            f"blk.{layer}.{_NAMES[name]}.bias" for layer in range(description.layers) for name in description.biases
        }
        return description if biases <= described else None

    def _network(self, architecture: Architecture, config: Any, description: DecoderDescription) -> GGUFNetwork:
        """Return the model as bare weights."""
        words = self._take(f"{_EMBEDDING}.weight", (description.vocabulary, description.hidden))
        embedding = QuantizedEmbedding(_matrix(words))
        head = embedding.matrix
        if not description.tied_head:
            head, _ = self._product(_HEAD, description.vocabulary, description.hidden)
        layers = [self._layer(f"blk.{number}", architecture, description) for number in range(description.layers)]
        rotary = self._rotary(config, description.heads.size)
        last = self._plain_norm("output_norm", description.hidden)
        return GGUFNetwork(
            config, self._generation_config(), description, DecoderWeights(embedding, None, rotary, layers, last),
            QuantizedLinear(head), partial(_load_model, self._file.path),
        )  # fmt: skip

    def _layer(
        self, name: str, architecture: Architecture, description: DecoderDescription
    ) -> LayerWeights[QuantizedProducts]:
        heads = {"queries": description.heads.queries, "keys": description.heads.keys} if architecture.in_pairs else {}
        shapes, hidden, size = description.products, description.hidden, description.heads.size

        def product(*names: str) -> QuantizedProducts:
            found = [
                self._product(f"{name}.{_NAMES[role]}", *shapes[role], role in description.biases, heads.get(role))
                for role in names
            ]
            return QuantizedProducts([matrix for matrix, _ in found], [bias for _, bias in found])

        norms = None
        if description.head_norms:
            query, key = (self._plain_norm(f"{name}.{role}", size).weight for role in ("attn_q_norm", "attn_k_norm"))
            norms = HeadNorms(query, key, description.norm_eps)
        return LayerWeights(
            self._plain_norm(f"{name}.attn_norm", hidden), product("queries", "keys", "values"), norms, product("out"),
            self._plain_norm(f"{name}.ffn_norm", hidden), product("gates", "up"), product("down"),
        )  # fmt: skip

    def _plain_norm(self, name: str, width: int) -> Norm:
        return Norm(torch.as_tensor(self._reals(f"{name}.weight", (width,))), None)

    def _rotary(self, config: Any, size: int) -> Rotary:
        """Return rotary frequencies as in transformers, for heads that are rotated as a whole."""
        rope: dict[str, Any] = config.rope_parameters
        if rope["rope_type"] == "default":
            return Rotary(self._divide(1.0 / rope["rope_theta"] ** (torch.arange(0, size, 2).float() / size)), 1.0)
        frequencies, scaling = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
        return Rotary(self._divide(frequencies), scaling)

    def _empty_model(self, architecture: Architecture, config: Any) -> Any:
        """Return the model of transformers on the meta device."""
        try:
            with torch.device("meta"):
                model = getattr(transformers, architecture.network)(config)
        except Exception as error:  # as for configurations
            raise self._no_config(architecture, error) from error
        model.generation_config = self._generation_config()
        return model

    def _fill(self, model: Any, architecture: Architecture, names: Any) -> None:
        """Assign weights to all modules with parameters."""
        words = self._take(f"{_EMBEDDING}.weight", model.model.embed_tokens.weight.shape)
        model.model.embed_tokens = embedding = self._embedding(model.model.embed_tokens, words)
        config = model.config
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
        for path, module in list(model.named_modules()):
            parent, leaf = model.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2]
            if path == "lm_head":
                if config.tie_word_embeddings:
                    model.lm_head = self._tied_head(embedding)
                else:
                    model.lm_head = self._linear(_HEAD, module)
            elif type(module) is nn.Linear:
                pairs = heads.get(leaf) if architecture.in_pairs else None
                setattr(parent, leaf, self._linear(self._name(names, path), module, pairs))
            elif module is not embedding and [*module.parameters(recurse=False)]:
                self._norm(self._name(names, path), module, architecture.added)

    def _name(self, names: Any, path: str) -> str:
        found: str | None = names.get_name(path)
        if found is None:
            raise self._error(f"{path} has no name in GGUF; another version of the package gguf may have one")
        return found

    def _embedding(self, empty: Any, words: GGUFTensor) -> nn.Module:
        scale = float(getattr(empty, "scalar_embed_scale", 1.0))
        if self._dtype is None:
            return QuantizedEmbedding(_matrix(words), scale)
        empty.weight = self._unpack(_matrix(words))
        if "embed_scale" in dict(empty.named_buffers(recurse=False)):
            empty.embed_scale = torch.tensor(scale)
        return empty

    def _tied_head(self, embedding: Any) -> nn.Module:
        """Return a head with the embedding's weights."""
        if isinstance(embedding, QuantizedEmbedding):
            return QuantizedLinear(embedding.matrix)
        head = nn.Linear(*reversed(embedding.weight.shape), bias=False, device="meta")
        head.weight = embedding.weight
        return head

    def _linear(self, name: str, empty: nn.Linear, heads: int | None = None) -> nn.Module:
        """Return a linear layer. heads: as for `_product`"""
        rows, width = empty.out_features, empty.in_features
        needs = "bias" in dict(empty.named_parameters()) or f"{name}.bias" in self._file.tensors
        matrix, bias = self._product(name, rows, width, needs, heads)
        if self._dtype is None:
            return QuantizedLinear(matrix, bias)
        linear = nn.Linear(width, rows, bias=False, device="meta")
        linear.weight = self._unpack(matrix)
        if bias is not None:
            linear.bias = nn.Parameter(bias, requires_grad=False)
        return linear

    def _product(
        self, name: str, rows: int, width: int, has_bias: bool = False, heads: int | None = None
    ) -> tuple[QuantizedMatrix, Tensor | None]:
        """Return the weights of a product and its bias.

        heads: number of heads whose rows are interleaved in pairs
        """
        found = self._take(f"{name}.weight", (rows, width))
        bias = self._reals(f"{name}.bias", (rows,)) if has_bias else None
        order = None if heads is None else _pair_permutation(rows, heads)
        if bias is not None and order is not None:
            bias = bias[order]
        return _matrix(found, order), None if bias is None else torch.as_tensor(bias)

    def _unpack(self, matrix: QuantizedMatrix) -> nn.Parameter:
        """Return the values of a matrix in the requested dtype."""
        data = matrix.data if matrix.order is None else matrix.data[matrix.order]
        gguf: Any = import_module("gguf")
        numbers = gguf.quants.dequantize(data, gguf.GGMLQuantizationType[matrix.kind])
        return nn.Parameter(torch.tensor(numbers, dtype=self._dtype), requires_grad=False)

    def _norm(self, name: str, module: nn.Module, added: float) -> None:
        for parameter, empty in list(module.named_parameters(recurse=False)):
            numbers = torch.as_tensor(self._reals(f"{name}.{parameter}", empty.shape)) - added
            setattr(module, parameter, nn.Parameter(numbers, requires_grad=False))

    def _set_rotary(self, model: Any, options: dict[str, Any]) -> None:
        """Create the model's rotary embeddings, with frequencies divided by the file's factors."""
        empty = model.model.rotary_emb
        if options["rope_parameters"].get("rope_type") == "longrope":
            for name in (LONG, SHORT):
                self._take(name, empty.inv_freq.shape)
        model.model.rotary_emb = rotary = type(empty)(model.config)
        if _ROTARY_FACTORS in self._file.tensors and hasattr(rotary, "inv_freq"):
            rotary.inv_freq = self._divide(rotary.inv_freq)
            rotary.original_inv_freq = rotary.inv_freq.clone()

    def _divide(self, frequencies: Tensor) -> Tensor:
        """Return frequencies divided by the file's factors, if it has some."""
        if _ROTARY_FACTORS not in self._file.tensors:
            return frequencies
        factors = torch.as_tensor(self._reals(_ROTARY_FACTORS, frequencies.shape))
        if not bool((factors > 0).all()):
            raise self._error(f"tensor {_ROTARY_FACTORS!r} has numbers that are not above 0")
        return frequencies / factors

    def _tensor(self, name: str) -> GGUFTensor:
        found = self._file.tensors.get(name)
        if found is None:
            raise self._error(f"the tensor {name!r} is missing; convert the model again, or fetch the file again")
        return found

    def _take(self, name: str, shape: Sequence[int]) -> GGUFTensor:
        """Return a tensor after checks of its shape and values."""
        found = self._tensor(name)
        if found.shape != tuple(shape):
            raise self._error(f"the tensor {name!r} has the shape {found.shape}; {tuple(shape)} is expected")
        if not _is_finite(found):
            raise self._error(f"the tensor {name!r} has numbers that are infinite or NaN; fetch the file again")
        self._used.add(name)
        return found

    def _reals(self, name: str, shape: Sequence[int]) -> NDArray[np.float32]:
        """Return the values of a tensor that is not quantized."""
        self._take(name, shape)
        return self._file.reals(name)

    def _check_all_used(self) -> None:
        left = [name for name in self._file.tensors if name not in self._used]
        if left:
            more = f" and {len(left) - 3:,} more" if len(left) > 3 else ""
            raise self._error(
                f"the architecture has no use for the tensors {', '.join(map(repr, left[:3]))}{more}; the model "
                "computes something else than this architecture does"
            )

    def _error(self, what: str) -> ModelError:
        return ModelError(f"{self._file.path}: {what}")


def _load_model(path: Path) -> Any:
    """Return a file's model as a model of transformers."""
    return load_gguf(path)[0]


def _matrix(tensor: GGUFTensor, order: NDArray[np.int64] | None = None) -> QuantizedMatrix:
    return QuantizedMatrix(tensor.kind, tensor.shape[-1], tensor.data, order)


def _pair_permutation(rows: int, heads: int) -> NDArray[np.int64]:
    """Return the permutation of rows from interleaved pairs to transformers' two halves of each head."""
    return np.arange(rows).reshape(heads, rows // heads // 2, 2).swapaxes(1, 2).reshape(-1)


def _is_finite(tensor: GGUFTensor) -> bool:
    """Test whether all values are finite; for quantized tensors, all scales."""
    form = FORMATS[tensor.kind]
    flat = tensor.data.reshape(-1)
    count = flat.size // form.size
    for at in form.halves:
        scales = np.ndarray((count,), np.dtype("<u2"), flat, at, (form.size,))
        for begin in range(0, count, _SOME):
            if ((scales[begin : begin + _SOME] & form.exponent) == form.exponent).any():
                return False
    return True
