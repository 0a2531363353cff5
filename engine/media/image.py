"""Images of prompts: decoding to RGB pixels, with a digest. Sizes are checked before decoding.

Files are untrusted. Their first bytes determine the format, and only Pillow's reader of that format runs. Files that
could take long despite few pixels are refused: many chunks, many scans, large tables.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ...checks import shown
from ...errors import ImageError, OptionError
from .files import FileLimits, MediaBase

if TYPE_CHECKING:
    import PIL.Image

FORMATS = "PNG, JPEG, WebP, GIF, BMP or TIFF"
_MAX_READS = 4096
_BYTES_A_READ = 256
"""A file is read in at most this many pieces, plus one per `_BYTES_A_READ` bytes, since Pillow parses each in
Python."""
_ROWS = 256
"""Rows of pixels that Pillow converts at a time, so that only these have temporary copies."""
_MAX_SCANS = 64
"""Greatest number of scans of a JPEG file. Each covers all pixels; encoders write about ten."""
_MAX_VALUES = 1 << 16
"""Greatest number of values of a numeric TIFF field, such as tile offsets."""


@dataclass(frozen=True, slots=True)
class ImageLimits(FileLimits):
    """Bounds of an image, checked before it is decoded. Exceeding one raises ImageError.

    file_bytes: size of a file; pixels: width times height; side: width or height

    Decoding the default 16,777,216 pixels takes up to 180 MiB, or 270 MiB from WebP. Raises OptionError unless all are
    positive integers.
    """

    kind = "image"
    formats = FORMATS
    accepted = "a PIL image, a pathlib.Path, the bytes of a file, or a data URL"
    error = ImageError

    pixels: int = 1 << 24
    side: int = 1 << 14

    def check(self, size: tuple[int, int], what: str) -> None:
        """Raise ImageError for a width and height that exceed the bounds."""
        width, height = size
        if min(size) < 1:
            raise ImageError(f"{what} has {width:,} x {height:,} pixels; it must have at least one")
        if max(size) > self.side:
            raise ImageError(
                f"{what} has {width:,} x {height:,} pixels, but the limit of a side is {self.side:,}; make it smaller, "
                "or raise ImageLimits(side=...)"
            )
        if width * height > self.pixels:
            raise ImageError(
                f"{what} has {width:,} x {height:,} pixels, but the limit is {self.pixels:,}; make it smaller, or "
                "raise ImageLimits(pixels=...)"
            )


class Image(MediaBase):
    """An image of a prompt: pixels as a read-only array, uint8 [height, width, 3], red, green and blue.

    digest: SHA-256 of size and pixels, in hex; images with equal digests are equal
    """

    kind = "image"

    __slots__ = ("pixels",)

    def __init__(self, pixels: NDArray[np.uint8]) -> None:
        """pixels: uint8 [height, width, 3]; copied unless read-only already. Raises OptionError."""
        if not isinstance(pixels, np.ndarray):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"pixels={shown(pixels)}: expected a NumPy array, uint8 [height, width, 3]; Image.of(...) reads files"
            )
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[2] != 3 or not pixels.size:
            raise OptionError(
                f"pixels of {pixels.dtype} and the shape {pixels.shape}: expected uint8 [height, width, 3]"
            )
        if pixels.flags.writeable or not pixels.flags.c_contiguous:
            pixels = np.array(pixels, order="C")
            pixels.flags.writeable = False
        self.pixels = pixels
        found = hashlib.sha256(f"{self.width}x{self.height}:".encode())
        found.update(pixels.data)
        self.digest = found.hexdigest()

    @classmethod
    def of(cls, source: Any, what: str = "the image", limits: ImageLimits | None = None) -> Image:
        """Read an image: a PIL image, a pathlib.Path, the bytes of a file, or a data URL.

        what: its name at the start of error messages. Animations give their first frame. The EXIF orientation is
            applied.
        Pillow's conversion to RGB drops transparency; of 16 bits the upper 8 are kept. Raises ImageError for a file
        that cannot be decoded or is too large, OptionError for other types and if Pillow is missing.
        """
        chosen = ImageLimits.of(limits)
        if isinstance(source, Image):
            return source
        if find_spec("PIL") is None:
            raise OptionError(f"{what} needs the package Pillow, which is not installed: pip install 'trellm[images]'")
        data = chosen.data_of(source, what)
        if data is not None:
            return _decode(data, what, chosen)
        import PIL.Image

        if isinstance(source, PIL.Image.Image):
            chosen.check(source.size, what)
            return _convert(source, "an image of PIL", what, copies=True)
        raise OptionError(f"{what} is {shown(source)}; give {chosen.accepted}")

    @property
    def nbytes(self) -> int:
        """The size of the pixels in bytes."""
        return self.pixels.nbytes

    @property
    def width(self) -> int:
        """Pixels in a row."""
        return self.pixels.shape[1]

    @property
    def height(self) -> int:
        """Number of rows."""
        return self.pixels.shape[0]

    def to_pil(self) -> PIL.Image.Image:
        """Return the image as a PIL image."""
        import PIL.Image

        return PIL.Image.fromarray(self.pixels)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return (self.pixels,)

    def __repr__(self) -> str:
        return f"Image({self.width} x {self.height})"


class _CountedFile(io.BytesIO):
    """A file in memory with a bounded number of reads."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._left = _MAX_READS + len(data) // _BYTES_A_READ

    def read(self, size: int | None = -1, /) -> bytes:
        self._left -= 1
        if self._left < 0:
            raise ValueError("too many parts")
        return super().read(size)


def _decode(data: bytes, what: str, limits: ImageLimits) -> Image:
    """Decode an image file. Raises ImageError."""
    if not data:
        raise ImageError(f"{what} is empty; expected {FORMATS}")
    entry = next((each for each in _READERS if re.match(each[0], data, re.DOTALL)), None)
    if entry is None:
        raise ImageError(f"{what} is in an unknown format; supported are {FORMATS}")
    _, name, module, reader, check = entry
    named = f"a {name} file"
    try:
        if check is not None:
            check(data, what, limits)
        opened = getattr(import_module(f"PIL.{module}"), reader)(_CountedFile(data), "")
        limits.check(opened.size, what)
        if opened.info.get("compression") in _SLOW:
            raise ImageError(f"{what} is {named} with run-length compression, which is not supported; save it without")
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # decoders raise any exception on damaged files
        raise _damaged_error(what, named) from error
    return _convert(opened, named, what, copies=False)


def _damaged_error(what: str, named: str) -> ImageError:
    return ImageError(f"{what} is {named} that is damaged or cut off; save it again, or give another")


def _convert(image: PIL.Image.Image, named: str, what: str, *, copies: bool) -> Image:
    """Convert a PIL image. named: format, for errors; copies: True if the caller owns the image. Raises ImageError."""
    from PIL import ImageOps

    try:
        image.load()
        if copies:
            image = ImageOps.exif_transpose(image)
        else:
            ImageOps.exif_transpose(image, in_place=True)
        if image.mode in ("I", "F"):
            raise ImageError(f"{what} is {named} of 32 bits a pixel, whose range is unknown; convert it to RGB")
        return Image(_pixels_of(image))
    except (ImageError, MemoryError):
        raise
    except Exception as error:  # decoders raise any exception on damaged files
        raise _damaged_error(what, named) from error


def _pixels_of(image: PIL.Image.Image) -> NDArray[np.uint8]:
    """Return the pixels of an image of any mode, converted a few rows at a time."""
    width, height = image.size
    found = np.empty((height, width, 3), np.uint8)
    for top in range(0, height, _ROWS):
        bottom = min(top + _ROWS, height)
        rows = image.crop((0, top, width, bottom))
        if rows.mode.startswith("I;16"):
            found[top:bottom] = (np.asarray(rows) >> 8)[:, :, None]
            continue
        if rows.mode == "P" and "transparency" in rows.info:
            rows = rows.convert("RGBA")  # direct conversion to RGB would emit a warning
        found[top:bottom] = np.asarray(rows.convert("RGB"))
    found.flags.writeable = False
    return found


def _check_webp(data: bytes, what: str, limits: ImageLimits) -> None:
    """Check the size of a WebP file, since the reader allocates its frames at once. Raises ImageError."""
    kind, body = data[12:16], data[20:30]
    if kind == b"VP8X":
        limits.check((_little_endian(body[4:7]) + 1, _little_endian(body[7:10]) + 1), what)
    elif kind == b"VP8L":
        bits = _little_endian(body[1:5])
        limits.check(((bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1), what)
    elif kind == b"VP8 ":
        limits.check((_little_endian(body[6:8]) & 0x3FFF, _little_endian(body[8:10]) & 0x3FFF), what)
    else:
        raise _damaged_error(what, "a WebP file")


def _little_endian(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _check_jpeg(data: bytes, what: str, limits: ImageLimits) -> None:
    """Check the number of scans of a JPEG file. Raises ImageError."""
    if data.count(b"\xff\xda") > _MAX_SCANS:
        raise ImageError(f"{what} is a JPEG file of more than {_MAX_SCANS} scans; save it again")


def _check_tiff(data: bytes, what: str, limits: ImageLimits) -> None:
    """Check the fields of the first image of a TIFF file, since the reader converts them to lists. Raises
    ImageError."""
    order: Any = "little" if data[:2] == b"II" else "big"
    begin = int.from_bytes(data[4:8], order)
    count = int.from_bytes(data[begin : begin + 2], order)
    for place in range(begin + 2, begin + 2 + 12 * count, 12):
        kind = int.from_bytes(data[place + 2 : place + 4], order)
        if kind not in _TEXTS and int.from_bytes(data[place + 4 : place + 8], order) > _MAX_VALUES:
            raise ImageError(f"{what} is a TIFF file with more than {_MAX_VALUES:,} parts; save it again")


_TEXTS = (1, 2, 6, 7)
"""TIFF field types that the reader keeps as bytes."""
_SLOW = (1, 2)
"""Run-length compressions of BMP files, which Pillow decodes in Python. Other formats name compressions by strings."""
_READERS: tuple[tuple[bytes, str, str, str, Callable[[bytes, str, ImageLimits], None] | None], ...] = (
    (rb"\x89PNG\r\n\x1a\n", "PNG", "PngImagePlugin", "PngImageFile", None),
    (rb"\xff\xd8\xff", "JPEG", "JpegImagePlugin", "JpegImageFile", _check_jpeg),
    (rb"RIFF....WEBP", "WebP", "WebPImagePlugin", "WebPImageFile", _check_webp),
    (rb"GIF8[79]a", "GIF", "GifImagePlugin", "GifImageFile", None),
    (rb"BM", "BMP", "BmpImagePlugin", "BmpImageFile", None),
    (rb"II\*\0|MM\0\*", "TIFF", "TiffImagePlugin", "TiffImageFile", _check_tiff),
)
"""Signature, format, and Pillow's reader of it with a check to run before."""
