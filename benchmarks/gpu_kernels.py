"""How long a GPU takes for what a decoder's layer is made of: our kernels, and the same by torch.

    python benchmarks/gpu_kernels.py [--tiles] [--save]

In shapes of Qwen3 0.6B, 4B and 8B, bfloat16, with nothing of what is read in the device's caches: the kernels between
products for 1, 8, 64 and 256 tokens, beside the torch operations that they stand for (those for `place` would wait for
the device, and are left out); and the products of 1, 2 and 4
tokens, by our kernel and by torch's `linear`, with the bytes of weights read in a second. --tiles tries other ways to
cut the matrices, for one token.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import recording
import torch
from torch.nn.functional import linear
from trellm.kernels.decoder import plain, triton_decoder
from trellm.kernels.decoder.plain import HeadNorms, Heads
from triton.testing import do_bench

DTYPE = torch.bfloat16
PLACES = 16
TILES = [
    triton_decoder.Tile(*tile)
    for tile in ((1, 1024, 4, 4), (2, 512, 4, 4), (2, 1024, 4, 4), (4, 512, 4, 4), (4, 1024, 2, 8), (1, 2048, 2, 8))
]


class Shape(NamedTuple):
    """A model's sizes."""

    name: str
    width: int
    heads: Heads
    inner: int

    @property
    def products(self) -> dict[str, tuple[int, int]]:
        """The matrices [out, in] of a layer."""
        asked, kept = self.heads.queries * self.heads.size, self.heads.keys * self.heads.size
        return {
            "queries, keys, values": (asked + 2 * kept, self.width),
            "out": (self.width, asked),
            "gate, up": (2 * self.inner, self.width),
            "down": (self.width, self.inner),
        }


SHAPES = [
    Shape("0.6B", 1024, Heads(16, 8, 128), 3072),
    Shape("4B", 2560, Heads(32, 8, 128), 9728),
    Shape("8B", 4096, Heads(32, 8, 128), 12288),
]


def made(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=DTYPE)


def microseconds(call: Callable[[], Any]) -> float:
    """The median of about 20 ms of calls, the device's caches emptied before each."""
    found: Any = do_bench(call, warmup=3, rep=20, return_mode="median")
    return found * 1000


def between(shape: Shape) -> Iterator[dict[str, Any]]:
    """The kernels between products."""
    heads = shape.heads
    weight, norms = made(shape.width), HeadNorms(made(heads.size), made(heads.size), 1e-6)
    for tokens in (1, 8, 64, 256):
        residual, added = made(tokens, shape.width), made(tokens, shape.width)
        states = made(tokens, (heads.queries + 2 * heads.keys) * heads.size)
        angles = made(tokens, heads.size // 2), made(tokens, heads.size // 2)
        slots = torch.arange(tokens, device="cuda", dtype=torch.int32)
        stored = tuple(
            torch.zeros(1 + tokens // PLACES, heads.keys, PLACES, heads.size, device="cuda", dtype=DTYPE)
            for _ in range(2)
        )
        gates = made(tokens, 2 * shape.inner)
        calls: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None, tuple[Any, ...]]] = {
            "norm": (triton_decoder.norm, plain.norm, (residual, added, weight, 1e-6)),
            "place": (triton_decoder.place, None, (states, angles, norms, slots, stored, heads)),
            "gate": (triton_decoder.gate, plain.gate, (gates,)),
        }
        for name, (ours, torchs, arguments) in calls.items():
            yield {
                "model": shape.name,
                "what": name,
                "tokens": tokens,
                "ours, us": microseconds(lambda call=ours, given=arguments: call(*given)),
                "torch, us": torchs and microseconds(lambda call=torchs, given=arguments: call(*given)),
            }


def products(shape: Shape, tiles: bool) -> Iterator[dict[str, Any]]:
    """The products of a few tokens."""
    for name, (out, width) in shape.products.items():
        weight = made(out, width)
        for tokens in (1,) if tiles else (1, 2, 4):
            states = made(tokens, width)
            theirs = microseconds(lambda a=states, b=weight: linear(a, b))
            chosen = triton_decoder.tile_of(out, width, weight.element_size(), tokens)
            for tile in dict.fromkeys([chosen, *(TILES if tiles else ())]):
                found = triton_decoder.multiply(states, weight, tile=tile)
                torch.testing.assert_close(found, linear(states, weight), rtol=2e-2, atol=1)
                ours = microseconds(lambda a=states, b=weight, tile=tile: triton_decoder.multiply(a, b, tile=tile))
                yield {
                    "model": shape.name,
                    "what": name,
                    "tokens": tokens,
                    "tile": f"{tuple(tile)}{' *' if tile == chosen and tiles else ''}",
                    "ours, us": ours,
                    "torch, us": theirs,
                    "ours, GB/s": weight.nbytes / ours / 1000,
                    "torch, GB/s": weight.nbytes / theirs / 1000,
                }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", action="store_true", help="other ways to cut the matrices, for one token")
    parser.add_argument("--save", action="store_true", help="write the table to results/gpu_kernels.csv")
    given = parser.parse_args()
    begin = time.perf_counter()
    rows = [] if given.tiles else [row for shape in SHAPES for row in between(shape)]
    rows += [row for shape in SHAPES for row in products(shape, given.tiles)]
    device = torch.cuda.get_device_name()
    print(f"{device}, torch {torch.__version__}, {time.perf_counter() - begin:.0f} s")
    recording.show(rows)
    if given.save:
        stamped = [{**row, "device": device} for row in rows]
        print(recording.save(f"gpu_kernels{'_tiles' if given.tiles else ''}", stamped, ["torch", "triton"]))


if __name__ == "__main__":
    main()
