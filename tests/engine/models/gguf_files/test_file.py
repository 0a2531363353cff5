"""Files of GGUF: what is read of whole ones, and what is said of damaged ones."""

from __future__ import annotations

import struct
import tracemalloc
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import ModelError

from ..support import GGUFFile, load_gguf
from .tiny import add_value, finish, network_of, write_model

gguf = pytest.importorskip("gguf")

VALUES = {
    "a.text": "naïve 漢字 😀", "a.empty": "", "a.yes": True, "a.whole": 7, "a.real": 0.5, "a.texts": ["x", "", "é"],
    "a.numbers": [1, -2, 3], "a.reals": [0.5, 1.5],
}  # fmt: skip


@pytest.fixture(scope="module")
def small(tmp_path_factory: Any) -> Path:
    """A file of some values and two tensors."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    for key, value in VALUES.items():
        add_value(writer, key, value)
    random = np.random.default_rng(0)
    packed = gguf.quantize(random.normal(0, 1, (3, 64)).astype(np.float32), gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("packed.weight", packed, raw_dtype=gguf.GGMLQuantizationType.Q4_1)
    writer.add_tensor("plain.weight", random.normal(0, 1, 5).astype(np.float32))
    finish(writer)
    return path


@pytest.fixture(scope="module")
def model(tmp_path_factory: Any) -> Path:
    """A model."""
    path = tmp_path_factory.mktemp("gguf") / "model.gguf"
    write_model(path, "llama", network_of("llama"), "Q4_1")
    return path


def written(folder: Path, data: bytes) -> Path:
    path = folder / "damaged.gguf"
    path.write_bytes(data)
    return path


def test_a_file_is_read_as_its_own_library_does(small: Path, model: Path) -> None:
    for path in (small, model):
        file, own = GGUFFile.open(path), import_module("gguf.gguf_reader").GGUFReader(path)
        fields = {name: field for name, field in own.fields.items() if not name.startswith("GGUF.")}
        assert file.metadata.keys() == fields.keys()
        for name, field in fields.items():
            value = file.metadata[name]
            assert (value.tolist() if isinstance(value, np.ndarray) else value) == field.contents()
        assert list(file.tensors) == [tensor.name for tensor in own.tensors]
        for tensor in own.tensors:
            found = file.tensors[tensor.name]
            assert found.kind == tensor.tensor_type.name
            assert found.shape == tuple(tensor.shape[::-1])
            assert found.data.tobytes() == tensor.data.tobytes()


def test_a_file_that_ends_anywhere_is_refused(small: Path, tmp_path: Path) -> None:
    data = small.read_bytes()
    last = GGUFFile.open(small).tensors["plain.weight"].data.tobytes()
    whole = data.index(last) + len(last)  # behind it there is padding
    for size in range(whole):
        with pytest.raises(ModelError, match=r"damaged\.gguf"):
            GGUFFile.open(written(tmp_path, data[:size]))


def test_a_damaged_model_is_refused_or_loads_and_takes_little_memory(model: Path, tmp_path: Path) -> None:
    data, random = model.read_bytes(), Random(0)
    head = len(data) - sum(tensor.data.size for tensor in GGUFFile.open(model).tensors.values())
    words = (0, 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1)
    load_gguf(model)
    tracemalloc.start()
    refused = 0
    for _ in range(300):
        found, at = bytearray(data), random.randrange(head)
        if random.random() < 0.5:
            found[at] ^= 1 << random.randrange(8)
        else:
            found[at : at + 8] = struct.pack("<Q", random.choice(words))
        try:
            load_gguf(written(tmp_path, bytes(found)))
        except ModelError as error:
            assert "damaged.gguf" in str(error)
            refused += 1
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert refused > 100
    assert peak < 64 << 20


def header(values: bytes = b"", tensors: bytes = b"", *, version: int = 3, counts: tuple[int, int] = (0, 0)) -> bytes:
    """A header with so many tensors and values."""
    return b"GGUF" + struct.pack("<IQQ", version, *counts) + values + tensors


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def tensor(name: str = "x", shape: tuple[int, ...] = (4,), kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


HUGE = 1 << 63
DAMAGED = {
    "empty": (b"", "cannot be read"),
    "another beginning": (b"GGML" + bytes(60), "at byte 0: a GGUF file begins with 'GGUF'"),
    "version 1": (header(version=1), "at byte 4: version 1 of GGUF"),
    "big-endian": (header(version=3 << 24), "it is big-endian"),
    "many tensors": (header(counts=(HUGE, 0)), f"at byte 8: {HUGE:,} tensors do not fit"),
    "many values": (header(counts=(0, HUGE)), f"at byte 16: {HUGE:,} values of metadata do not fit"),
    "a long key": (header(struct.pack("<Q", HUGE) + bytes(40), counts=(0, 1)), f"{HUGE:,} bytes are expected"),
    "a long array": (header(text("k") + struct.pack("<IIQ", 9, 4, HUGE), counts=(0, 1)), "values of 'k' do not fit"),
    "many texts": (header(text("k") + struct.pack("<IIQ", 9, 8, HUGE), counts=(0, 1)), "strings of 'k' do not fit"),
    "arrays of arrays": (header(text("k") + struct.pack("<IIQ", 9, 9, 0), counts=(0, 1)), "array of the unknown type"),
    "another type": (header(text("k") + struct.pack("<IQ", 99, 0), counts=(0, 1)), "'k' has the unknown type 99"),
    "no UTF-8": (header(struct.pack("<Q", 1) + b"\xff" + bytes(12), counts=(0, 1)), "a string that is not UTF-8"),
    "a key twice": (header(2 * (text("key") + struct.pack("<II", 4, 0)), counts=(0, 2)), "the key 'key' a second time"),
    "a tensor twice": (header(b"", 2 * tensor(), counts=(2, 0)) + bytes(99), "the tensor 'x' a second time"),
    "no dimension": (header(b"", tensor(shape=()) + bytes(8), counts=(1, 0)), "has 0 dimensions"),
    "many dimensions": (header(b"", tensor(shape=(1,) * 5), counts=(1, 0)), "has 5 dimensions"),
    "a size of 0": (header(b"", tensor(shape=(4, 0)), counts=(1, 0)), "(0, 4); all sizes are to be above 0"),
    "half a block": (header(b"", tensor(shape=(40,), kind=2), counts=(1, 0)), "Q4_0 packs 32 in a row"),
    "a huge shape": (header(b"", tensor(shape=(HUGE,) * 4), counts=(1, 0)) + bytes(99), "is not within the file"),
    "a far offset": (header(b"", tensor(offset=HUGE), counts=(1, 0)) + bytes(99), "is not within the file"),
    "a crooked offset": (header(b"", tensor(offset=4), counts=(1, 0)) + bytes(99), "is not within the file"),
    "a type that is not read": (header(b"", tensor(kind=19), counts=(1, 0)), "has the type IQ1_S; read are F32, F16"),
    "an unknown type": (header(b"", tensor(kind=77), counts=(1, 0)), "has the type of number 77"),
    "an alignment of 3": (
        header(text("general.alignment") + struct.pack("<II", 4, 3), counts=(0, 1)), "general.alignment=3"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGED)
def test_what_is_wrong_is_said_with_its_place(case: str, tmp_path: Path) -> None:
    data, said = DAMAGED[case]
    path = written(tmp_path, data)
    with pytest.raises(ModelError) as raised:
        GGUFFile.open(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert said in str(raised.value)


def test_tokens_that_are_not_utf8_are_refused_by_their_number(model: Path, tmp_path: Path) -> None:
    data = model.read_bytes()
    path = written(tmp_path, data.replace("Ġthe".encode(), b"\xff\xfethe", 1))
    with pytest.raises(ModelError, match=r"damaged\.gguf: .*'tokenizer\.ggml\.tokens' has a text, number 258, that"):
        load_gguf(path)


def test_no_file_and_a_folder_of_several(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.gguf: cannot be read"):
        load_gguf(tmp_path / "none.gguf")
    with pytest.raises(ModelError, match=r"it has no \.gguf"):
        load_gguf(tmp_path)
    for name in ("b.gguf", "a.gguf"):
        (tmp_path / name).write_bytes(model.read_bytes())
    with pytest.raises(ModelError, match=r"is a folder; give the file: a\.gguf, b\.gguf"):
        load_gguf(tmp_path)
