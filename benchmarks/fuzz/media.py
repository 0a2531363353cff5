"""Files of images and audio, damaged at random or made to take long: each is read, or raises its own error.

    python benchmarks/fuzz/media.py [--cases 10000] [--seed 0] [--workers 2] [--save]

A case is a file of a random format and kind, most of them with random changes behind which its checksums and lengths
are right again, or one of the hostile kinds: parts without end, bombs, claims of sizes. It is bad where anything else
is raised, and where what is refused takes more than a second of the processor's time or 256 MiB beyond what the process
had before; what files take that are read is told.
"""

from __future__ import annotations

import argparse
import ctypes
import io
import re
import struct
import sys
import time
import warnings
import wave
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import PIL.Image
from trellm import Audio, AudioError, Image, ImageError

sys.path.append(str(Path(__file__).resolve().parents[1]))

from recording import save, show

BYTES = 256 << 20
AT_A_TIME = 250
_WORDS = (0, 1, 2, 7, 31, 255, 256, 4096, 1 << 14, (1 << 14) + 1, (1 << 16) - 1, 1 << 24, (1 << 31) - 1, (1 << 32) - 1)


@dataclass(frozen=True)
class Outcome:
    """Result of a case. said: how it ended, "read" or "refused" where it is fine"""

    case: int
    kind: str
    said: str
    seconds: float
    bytes: int

    def is_bad(self, seconds: float) -> bool:
        """Tell whether it must not be."""
        return self.said != "read" and (self.said != "refused" or self.seconds > seconds or self.bytes > BYTES)


def sounding(channels: int, width: int, frames: int) -> bytes:
    """A WAV file of noise."""
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setparams((channels, width, 8000, frames, "NONE", ""))
        writer.writeframes(np.random.default_rng(0).bytes(channels * width * frames))
    return file.getvalue()


def written(image: PIL.Image.Image, form: str, **options: Any) -> bytes:
    """The file of an image."""
    file = io.BytesIO()
    further = {name: [each.copy() for each in options[name]] for name in ("append_images",) if name in options}
    image.copy().save(file, form, **options | further)  # which leaves its encoder's options in an image
    return file.getvalue()


@cache
def seeds() -> dict[str, list[bytes]]:
    """Whole files of every format in its kinds, some of 4,096 x 4,096 pixels, and audio of 500 seconds."""
    pick = np.random.default_rng(0)
    small = PIL.Image.fromarray(pick.integers(0, 256, (31, 45, 3), np.uint8))
    large = PIL.Image.fromarray(pick.integers(0, 256, (64, 64, 3), np.uint8)).resize((4096, 4096), 0)
    gray = PIL.Image.fromarray(pick.integers(0, 1 << 16, (31, 45), np.uint16))
    exif = PIL.Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a picture"
    frames: dict[str, Any] = {"save_all": True, "append_images": [small.rotate(90), small.rotate(180)]}
    modes = {mode: small.convert(mode) for mode in ("1", "L", "LA", "P", "RGBA", "CMYK", "F")}
    kinds: dict[str, list[tuple[PIL.Image.Image, dict[str, Any]]]] = {
        "PNG": [
            *((each, {}) for each in (modes["1"], modes["L"], modes["LA"], modes["P"], modes["RGBA"], gray, large)),
            *((small, {"exif": exif, "icc_profile": bytes(500), "dpi": (72, 72)}), (small, frames)),
        ],
        "JPEG": [
            *((large, {}), (small, {"quality": 80}), (modes["CMYK"], {}), (modes["L"], {})),
            *((small, {"progressive": True, "exif": exif}), (large, {"progressive": True})),
        ],
        "MPO": [(small, frames)],
        "WEBP": [
            *((small, {}), (modes["RGBA"], {"exif": exif}), (small, {"lossless": True}), (small, frames)),
            (large, {"lossless": True, "method": 0}),
        ],
        "GIF": [(large, {}), (small, {}), (small, {"interlace": 0, "comment": b"a"}), (small, frames)],
        "BMP": [*((each, {}) for each in (small, modes["1"], modes["L"], modes["P"], modes["RGBA"], large))],
        "TIFF": [
            *((small, {"compression": name}) for name in ("raw", "tiff_lzw", "tiff_adobe_deflate", "packbits", "jpeg")),
            *((each, {}) for each in (modes["1"], modes["P"], gray, modes["CMYK"], modes["F"])),
            *((large, {"compression": "tiff_lzw"}), (small, frames)),
        ],
    }
    found = {form: [written(image, form, **options) for image, options in several] for form, several in kinds.items()}
    return found | {"WAV": [*(sounding(2, width, 400) for width in (1, 2, 3, 4)), sounding(1, 1, 4_000_000)]}


def damaged(data: bytes, random: Random) -> bytes:
    """A file with some bytes changed, put in, taken out, said twice or cut off, most of them near its beginning."""
    found = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4, 16))):
        if not found:
            break
        at = random.randrange(min(len(found), 400 if random.random() < 0.8 else len(found)))
        match random.randrange(7):
            case 0:
                found[at] = random.randrange(256)
            case 1:
                found[at] ^= 1 << random.randrange(8)
            case 2 | 3:
                word = struct.pack(random.choice("<>") + "I", random.choice(_WORDS))
                found[at : at + 4] = word[: random.choice((2, 4))] if random.random() < 0.5 else word
            case 4:
                del found[at : at + random.randrange(1, 9)]
            case 5:
                found[at:at] = random.randbytes(random.randrange(1, 9))
            case _:
                found[at:at] = found[at : at + random.randrange(1, 400)] * random.choice((1, 2, 50))
    return bytes(found[: random.randrange(len(found))] if found and random.random() < 0.1 else found)


def mended(data: bytes, form: str) -> bytes:
    """The same with checksums and lengths that are right, by which readers would tell at once."""
    if form in ("WEBP", "WAV") and len(data) > 12:
        return data[:4] + struct.pack("<I", len(data) - 8) + data[8:]
    if form != "PNG":
        return data
    found, at = bytearray(data), 8
    while at + 12 <= len(found):
        end = at + 8 + int.from_bytes(found[at : at + 4], "big")
        found[end : end + 4] = struct.pack(">I", zlib.crc32(found[at + 4 : end]))
        at = end + 4
    return bytes(found[: len(data)])


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _png(width: int, height: int, rest: bytes) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + rest


def _tiff(entries: list[tuple[int, int, int, int]], rest: bytes = b"") -> bytes:
    fields = b"".join(struct.pack("<HHII", *each) for each in sorted(entries))
    return b"II*\0" + struct.pack("<IH", 8, len(entries)) + fields + bytes(4) + rest


def _hostile_png(many: int, side: int) -> list[bytes]:
    zeros = zlib.compress(bytes(1 << 24), 9)
    animation = _chunk(b"acTL", struct.pack(">II", many, 0)) + _chunk(b"fcTL", bytes(26)) * (many // 10)
    return [
        _png(side, side, _chunk(b"IDAT", zeros)),
        _png(4096, 4096, _chunk(b"IDAT", zeros) * 4 + _chunk(b"IEND", b"")),
        *(_png(8, 8, _chunk(kind, b"") * many) for kind in (b"teSt", b"IDAT")),
        *(_png(8, 8, _chunk(kind, b"a\0\0" + zeros) * 99) for kind in (b"zTXt", b"iTXt", b"iCCP")),
        _png(8, 8, _chunk(b"tEXt", b"a\0" + bytes(1000)) * (many // 100)),
        _png(8, 8, animation),
        seeds()["PNG"][0][:8] + seeds()["JPEG"][1],
    ]


def _hostile_jpeg(many: int, side: int) -> list[bytes]:
    whole, progressive = seeds()["JPEG"][0], seeds()["JPEG"][5]
    at, last = whole.index(b"\xff\xda"), progressive.rindex(b"\xff\xda")
    circle = b"Exif\0\0" + _tiff([(330, 4, 60_000, 8), (34665, 4, 1, 8)])
    return [
        b"\xff\xd8" + b"\xff\xe1\0\2" * many,
        b"\xff\xd8" + (b"\xff\xe1\xff\xff" + bytes(65_533)) * 200,
        b"\xff\xd8\xff\xe1" + struct.pack(">H", len(circle) + 2) + circle + whole[2:],
        progressive[:-2] + progressive[last:-2] * min(50, many // 1000),
        whole[:-2] + whole[at : at + 200] * (many // 1000),
        whole[:at] + b"\xff" * (many * 4) + whole[at:],
    ]


def _hostile_gif(many: int, side: int) -> list[bytes]:
    head = b"GIF89a\1\0\1\0\0\0\0"
    large = struct.pack("<HH", side & 0xFFFF, 4096)
    return [
        head + b"!\xfe" + (b"\xff" + bytes(255)) * (many // 50),
        head + b"!\xff\x0bNETSCAPE2.0" + b"\1\0" * many,
        head + b"!\xf9\4\0\0\0\0\0" * many,
        b"GIF89a" + large + b"\0\0\0," + bytes(4) + large + b"\0\2" + b"\1\0" * many,
        head + b"," + bytes(4) + large + b"\0\2" + b"\1\0" * many,
        seeds()["GIF"][0] + seeds()["WEBP"][0] + b"<svg/>",
    ]


def _hostile_tiff(many: int, side: int) -> list[bytes]:
    head = [(256, 4, 1, 4096), (257, 4, 1, 4096), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (277, 3, 1, 1)]
    tiles = [(322, 3, 1, 16), (323, 3, 1, 16), (324, 4, 65_536, 8), (325, 4, 65_536, 8)]
    return [
        _tiff([*head, (273, 4, many, 8), (279, 4, many, 8)], bytes(min(4 * many, 1 << 22))),
        _tiff([*head, *tiles], bytes(1 << 19)),
        _tiff([(256, 4, 1, side), (257, 4, 1, side), *head[2:], (273, 4, 1, 8), (278, 4, 1, side)]),
        _tiff([*head, (34665, 4, 1, 8), (330, 4, 60_000, 8), (700, 1, 1 << 24, 8)], bytes(1 << 20)),
        _tiff([(number, 2, 1 << 20, 8) for number in range(1000, 7000)], bytes(1 << 20)),
    ]


def _hostile_wav(many: int, side: int) -> list[bytes]:
    head, claimed = b"RIFF\xff\xff\xff\xffWAVE", struct.pack("<I", side & 0xFFFFFFFF)
    shapes = [(1, 0, 8000, 2), (1, 1, 0, 2), (1, 1, 8000, 0), (1, 65_535, 8000, 1), (3, 1, 8000, 4), (1, 1, side, 1)]
    forms = [
        struct.pack("<HHIIHH", form, count, rate, 0, count * width & 0xFFFF, 8 * width)
        for form, count, rate, width in shapes
    ]
    return [
        *(head + b"fmt " + struct.pack("<I", 16) + form + b"data" + claimed + bytes(many) for form in forms),
        head + b"junk\0\0\0\0" * (many // 4),
        head + b"LIST" + claimed + bytes(many),
    ]


def _hostile_others(many: int, side: int) -> list[bytes]:
    wide = (side - 1 & 0xFFFFFF).to_bytes(3, "little")
    runs = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 0, 0, 0, 54, 40, 4096, 4096, 1, 8, 1, 0, 0, 0, 0, 0)
    plain = struct.pack("<2sIHHIIIIHHI", b"BM", 0, 0, 0, 54, 40, side, side, 1, 24, 0)
    return [
        *(plain + bytes(many), runs + b"\1\1" * many),
        b"RIFF\0\0\1\0WEBPVP8X\x0a\0\0\0\2\0\0\0" + wide + wide + (b"ANMF" + bytes(20)) * (many // 20),
        b"RIFF\0\0\1\0WEBPVP8L\x20\0\0\0\x2f" + bytes([255] * 4) + bytes(1000),
        b"RIFF\0\0\1\0WEBPVP8 \x20\0\0\0\0\0\0\x9d\1\x2a\xff\x3f\xff\x3f" + bytes(1000),
        *(b"<svg/>", b"%PDF-1.7", b"\0\0\1\0", b"8BPS", b"P6 9 9 255 ", b"\0\0\0\x20ftypavif"),
    ]


@cache
def hostile() -> list[bytes]:
    """Files that a reader could be kept with for very long, or that claim to be very large."""
    makers = (_hostile_png, _hostile_jpeg, _hostile_gif, _hostile_tiff, _hostile_wav, _hostile_others)
    sizes = ((1000, 4096), (100_000, 16_384), (1_000_000, 1 << 20), (4_000_000, (1 << 31) - 1))
    return [data for many, side in sizes for make in makers for data in make(many, side)]


def case_of(number: int, seed: int) -> tuple[str, bytes]:
    """Kind of a case's file, and the file."""
    random = Random(f"{seed} {number}")
    if random.random() < 0.15:
        data = random.choice(hostile())
        return "hostile", damaged(data, random) if random.random() < 0.3 else data
    form = random.choice(tuple(seeds()))
    data = random.choice(seeds()[form])
    data = data if random.random() < 0.05 else damaged(data, random)
    return form, mended(data, form) if random.random() < 0.8 else data


def outcome_of(number: int, seed: int) -> Outcome:
    """Try a case in this process."""
    kind, data = case_of(number, seed)
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # by which the peak begins anew
    before, began = _status("VmRSS"), time.process_time()
    try:
        (Audio if data[8:12] == b"WAVE" else Image).of(data)
        said = "read"
    except (AudioError, ImageError):
        said = "refused"
    except BaseException as error:  # what is looked for
        said = f"{type(error).__name__}: {error}"
    return Outcome(number, kind, said, time.process_time() - began, _status("VmHWM") - before)


def _status(name: str) -> int:
    found = re.search(rf"{name}:\s+(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


def several(begin: int, end: int, seed: int) -> list[Outcome]:
    """Outcomes of some cases, without what Pillow warns of."""
    warnings.simplefilter("ignore")
    return [outcome_of(number, seed) for number in range(begin, end)]


def outcomes(cases: int, seed: int, workers: int) -> Iterator[Outcome]:
    """Outcomes of all cases."""
    with ProcessPoolExecutor(workers) as pool:
        begins = range(0, cases, AT_A_TIME)
        ends = [min(begin + AT_A_TIME, cases) for begin in begins]
        for chunk in pool.map(partial(several, seed=seed), begins, ends):
            yield from chunk


def main() -> None:
    """Try all cases, and count what came of them; the exit status is 1 where one is bad."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    worst: dict[tuple[str, str], tuple[float, int]] = defaultdict(lambda: (0.0, 0))
    for each in outcomes(given.cases, given.seed, given.workers):
        said = "bad" if each.is_bad(given.seconds) else each.said
        before = worst[each.kind, said]
        counts[each.kind][said] += 1
        worst[each.kind, said] = max(before[0], each.seconds), max(before[1], each.bytes)
        if said == "bad":
            print(f"case {each.case:,}, {each.kind}: {each.said[:200]}; {each.seconds:.2f} s, {each.bytes >> 20} MiB")
    rows = [
        {
            "files": kind,
            **{said: counts[kind][said] for said in ("read", "refused", "bad")},
            **{f"{said}_seconds": round(worst[kind, said][0], 2) for said in ("read", "refused")},
            **{f"{said}_mib": worst[kind, said][1] >> 20 for said in ("read", "refused")},
        }
        for kind in sorted(counts)
    ]
    show(rows)
    if given.save:
        save("fuzz_media", rows, ["trellm", "pillow", "numpy"])
    if any(each["bad"] for each in counts.values()):
        sys.exit(1)


if __name__ == "__main__":
    main()
