"""GGUF files that were damaged at random: each loads, or raises a TrellmError; nothing else, and never much memory.

    python benchmarks/fuzz/gguf_files.py FILE [--cases 100000] [--whole 50] [--memory 4] [--seed 0] [--save]

FILE is a small one: tests/engine/models/gguf_files/tiny.py writes some of 50 KB. Of each case the header is read, by
turns for a model and for a vocabulary, and every so many cases the whole model is loaded, by turns as modules of
transformers and to read a few tokens. The process may take so many GiB of addresses.
"""

from __future__ import annotations

import argparse
import resource
import struct
import sys
import tempfile
import time
import warnings
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from trellm import models
from trellm.engine.models.gguf_files.file import GGUFFile
from trellm.engine.models.gguf_files.loading import load_gguf
from trellm.errors import TrellmError
from trellm.tokenizers_adapter.reading import read_file

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from kv_cache import Text
from recording import save, show

PACKAGES = ("trellm", "transformers", "tokenizers", "gguf")
_WORDS = (0, 1, 2, 31, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 1, 0x7FF0000000000000)


def damaged(data: bytes, head: int, random: Random) -> bytes:
    """A file with some bytes changed, put in, taken out or cut off, most of them in its header."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        at = random.randrange(head if random.random() < 0.95 else max(1, len(found)))
        at = min(at, max(0, len(found) - 1))
        match random.randrange(6):
            case 0:
                found[at : at + 1] = bytes([random.randrange(256)])
            case 1 if found:
                found[at] ^= 1 << random.randrange(8)
            case 2:
                found[at : at + 8] = struct.pack("<Q", random.choice(_WORDS))
            case 3:
                found[at : at + 4] = struct.pack("<I", random.choice(_WORDS) & 0xFFFFFFFF)
            case 4:
                del found[at : at + random.randrange(1, 9)]
            case _:
                found[at:at] = random.randbytes(random.randrange(1, 9)) if random.random() < 0.9 else b""
    return bytes(found[: random.randrange(len(found))] if found and random.random() < 0.05 else found)


def logits(path: Path) -> Any:
    """Logits of a few tokens, by the kernels that run it."""
    return Text(models.gguf(path), 8).read([1, 2, 3, 0, 2])


def header_size(path: Path) -> int:
    """Bytes before the tensors."""
    file = GGUFFile.open(path)
    return path.stat().st_size - sum(tensor.data.size for tensor in file.tensors.values())


def main() -> None:
    """Damage a file many times, and count what came of it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file", type=Path)
    parser.add_argument("--cases", type=int, default=100_000)
    parser.add_argument("--whole", type=int, default=50)
    parser.add_argument("--memory", type=float, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logits(given.file)
    limit = (
        int(given.memory * (1 << 30)) + int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    )
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    data, head, random = given.file.read_bytes(), header_size(given.file), Random(given.seed)
    headers: dict[str, Any] = {"header of a model": GGUFFile.open, "vocabulary": read_file}
    wholes: dict[str, Any] = {"modules": load_gguf, "tokens": logits}
    counts: dict[str, Counter[str]] = {kind: Counter() for kind in (*headers, *wholes)}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        for case in range(given.cases):
            path.write_bytes(damaged(data, head, random))
            turn, is_whole = divmod(case, given.whole)
            steps, number = (headers, case) if is_whole else (wholes, turn)
            kind = [*steps][number % 2]
            counts[kind]["cases"] += 1
            try:
                steps[kind](path)
                counts[kind]["loaded"] += 1
            except TrellmError as error:
                counts[kind]["refused"] += 1
                if str(path) not in str(error):
                    print(f"case {case:,} without its place: {error}")
                    counts[kind]["without a place"] += 1
            except Exception as error:  # what is looked for
                print(f"case {case:,}: {type(error).__name__}: {error}")
                counts[kind]["other errors"] += 1
    names = ("cases", "loaded", "refused", "without a place", "other errors")
    rows = [{"step": kind, **{name: count[name] for name in names}} for kind, count in counts.items()]
    show(rows)
    print(f"{given.cases:,} cases in {time.perf_counter() - began:.0f} s")
    if given.save:
        print(save("fuzz_gguf_files", [{"file": given.file.name, "seed": given.seed, **row} for row in rows], PACKAGES))


if __name__ == "__main__":
    main()
