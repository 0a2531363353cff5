"""GGUF files with the weights of another one in another format, by the quantiser of llama.cpp, or as floats by gguf."""

from __future__ import annotations

import ctypes
import struct
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from trellm.engine.models.gguf_files.file import GGUFFile
from trellm.tokenizers_adapter.gguf import mapped, read_header

_ALIGNMENT = 32
_FLOATS = ("F32", "F16", "BF16")
_INSTEAD = {"Q4_K": "Q5_0"}
"""Formats that llama.cpp takes for rows whose width is no multiple of a block of 256."""


def requantize(source: Path, target: Path, kind: str) -> None:
    """Write `source` with all its quantised tensors in a format; all else stays as it is."""
    data, file, library = mapped(source), GGUFFile.open(source), import_module("gguf")
    numbers_of: Any = library.GGMLQuantizationType
    header = read_header(data)
    out = bytearray(data[: header.heads[0].place])
    tensors, offset = list[bytes](), 0
    for head in header.heads:
        number, tensor = head.kind, file.tensors[head.name]
        content = tensor.data.tobytes()
        if tensor.kind not in _FLOATS:
            numbers = library.dequantize(tensor.data, numbers_of[tensor.kind])
            number = numbers_of[_INSTEAD[kind] if kind in _INSTEAD and head.shape[-1] % 256 else kind]
            content = library.quantize(numbers, number).tobytes() if kind in _FLOATS else _quantized(numbers, number)
        name, shape = head.name.encode(), head.shape[::-1]
        out += struct.pack("<Q", len(name)) + name
        out += struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, number, offset)
        content += bytes(-len(content) % _ALIGNMENT)
        tensors.append(content)
        offset += len(content)
    out += bytes(-len(out) % _ALIGNMENT)
    target.write_bytes(b"".join([out, *tensors]))


def _quantized(numbers: NDArray[np.float32], number: Any) -> bytes:
    """Rows of float32 in the format of this number."""
    place = str(import_module("xllamacpp").__file__)
    quantize = ctypes.CDLL(str(next(Path(place).parent.glob("*.so")))).ggml_quantize_chunk
    quantize.argtypes = (ctypes.c_int, *[ctypes.c_void_p] * 2, *[ctypes.c_int64] * 3, ctypes.c_void_p)
    quantize.restype = ctypes.c_size_t
    block, size = import_module("gguf").GGML_QUANT_SIZES[number]
    rows, width = numbers.shape
    out = np.empty(numbers.size // block * size, np.uint8)
    given = np.ascontiguousarray(numbers)
    assert quantize(number, given.ctypes.data, out.ctypes.data, 0, rows, width, None) == out.size
    return out.tobytes()
