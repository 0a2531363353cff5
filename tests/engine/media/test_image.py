"""Images from files, data URLs and PIL: pixels as Pillow has them, and hostile files refused before decoding."""

import base64
import io
import pickle
import struct
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import numpy as np
import PIL.Image
import pytest
from trellm import Image, ImageError, ImageLimits, OptionError

RNG = np.random.default_rng(7)
COLOURS = RNG.integers(0, 256, (23, 41, 3), np.uint8)
LOSSLESS: dict[str, dict[str, Any]] = {
    "PNG": {}, "BMP": {}, "TIFF": {"compression": "tiff_lzw"}, "WEBP": {"lossless": True},
}  # fmt: skip


def written(image: PIL.Image.Image, form: str, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def picture() -> PIL.Image.Image:
    return PIL.Image.fromarray(COLOURS)


def peers(data: bytes) -> np.ndarray:
    """The pixels as Pillow's own way has them."""
    return np.asarray(PIL.Image.open(io.BytesIO(data)).convert("RGB"))


@pytest.mark.parametrize("form", LOSSLESS)
def test_a_file_gives_its_pixels(form: str) -> None:
    found = Image.of(written(picture(), form, **LOSSLESS[form]))
    assert (found.width, found.height) == (41, 23)
    assert (found.pixels == COLOURS).all()
    assert found == Image.of(picture())


@pytest.mark.parametrize(
    ("mode", "form"),
    [
        *((mode, "PNG") for mode in ("1", "L", "LA", "P", "RGBA")),
        *((mode, "JPEG") for mode in ("L", "RGB", "CMYK", "YCbCr")),
        *((mode, "TIFF") for mode in ("1", "L", "P", "RGBA", "CMYK", "YCbCr", "LAB")),
        *(("P", "GIF"), ("RGBA", "WEBP"), ("P", "BMP"), ("L", "BMP")),
    ],
)
def test_every_mode_is_what_pillow_makes_of_it(mode: str, form: str) -> None:
    source = PIL.Image.merge("LAB", picture().split()) if mode == "LAB" else picture().convert(mode)
    data = written(source, form)
    assert (Image.of(data).pixels == peers(data)).all()


def test_transparency_is_dropped_and_a_palette_with_it_is_read() -> None:
    clear = picture().convert("RGBA")
    clear.putalpha(0)
    assert (Image.of(clear).pixels == COLOURS).all()
    palette = picture().quantize(16)
    data = written(palette, "PNG", transparency=bytes(range(16)))
    assert (Image.of(data).pixels == np.asarray(palette.convert("RGB"))).all()


def test_of_16_bits_the_upper_8_are_taken() -> None:
    grey = np.arange(12, dtype=np.uint16).reshape(3, 4) * 5000
    for source in (PIL.Image.fromarray(grey), written(PIL.Image.fromarray(grey), "PNG")):
        assert (Image.of(source).pixels == (grey >> 8)[:, :, None]).all()


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_without_a_range_are_refused(mode: str) -> None:
    with pytest.raises(ImageError, match="32 bits a pixel"):
        Image.of(PIL.Image.new(mode, (3, 2)))


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
def test_the_orientation_of_exif_is_done(orientation: int, form: str) -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    data = written(picture(), form, exif=exif, **LOSSLESS.get(form, {}))
    kept = peers(data)
    turned = {
        1: kept,
        2: kept[:, ::-1],
        3: kept[::-1, ::-1],
        4: kept[::-1],
        5: kept.swapaxes(0, 1),
        6: kept.swapaxes(0, 1)[:, ::-1],
        7: kept.swapaxes(0, 1)[::-1, ::-1],
        8: kept.swapaxes(0, 1)[::-1],
    }[orientation]
    assert (Image.of(data).pixels == turned).all()


@pytest.mark.parametrize("form", ["GIF", "WEBP", "PNG", "TIFF"])
def test_of_an_animation_it_is_the_first_frame(form: str) -> None:
    frames = [PIL.Image.new("RGB", (8, 6), colour) for colour in ((255, 0, 0), (0, 255, 0), (0, 0, 255))]
    data = written(frames[0], form, save_all=True, append_images=frames[1:], **LOSSLESS.get(form, {}))
    assert (Image.of(data).pixels == (255, 0, 0)).all()


def test_an_image_of_pil_stays_as_it_is() -> None:
    exif = PIL.Image.Exif()
    exif[0x0112] = 6
    source = PIL.Image.open(io.BytesIO(written(picture(), "PNG", exif=exif)))
    assert Image.of(source).width == 23
    assert source.size == (41, 23)


def test_sources(tmp_path: Path) -> None:
    data = written(picture(), "PNG")
    path = tmp_path / "picture.of.a.wrong.name.jpg"
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    broken = "\n".join(text[at : at + 76] for at in range(0, len(text), 76))
    sources: list[Any] = [
        *(data, bytearray(data), memoryview(data), path, picture(), Image.of(data)),
        *(f"data:image/png;base64,{text}", f"data:;base64,{text}", f"data:image/jpeg;charset=x;base64,{broken}"),
        f"DATA:IMAGE/PNG;BASE64,{text.rstrip('=')}",
    ]
    assert {Image.of(source) for source in sources} == {Image.of(picture())}


def test_an_image_cannot_be_changed_and_can_be_sent() -> None:
    image = Image.of(picture())
    with pytest.raises(ValueError, match="read-only"):
        image.pixels[0] = 0
    sent = pickle.loads(pickle.dumps(image))
    assert sent == image and hash(sent) == hash(image) and not sent.pixels.flags.writeable
    assert repr(image) == "Image(41 x 23)"
    assert (np.asarray(image.to_pil()) == COLOURS).all()
    own = COLOURS.copy()
    taken = Image(own)
    own[:] = 0
    assert taken == image
    with pytest.raises(OptionError, match="uint8"):
        Image(COLOURS[:, :, 0])
    for other in (None, "cat.png", b"\x89PNG", COLOURS.tolist()):
        with pytest.raises(OptionError, match="expected a NumPy array"):
            Image(cast("Any", other))


def test_digests_tell_size_and_pixels_apart() -> None:
    zeros = [Image(np.zeros((height, width, 3), np.uint8)) for height, width in ((2, 6), (6, 2), (3, 4))]
    assert len({image.digest for image in [*zeros, Image(np.ones((2, 6, 3), np.uint8))]}) == 4


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"/>'


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width: int, height: int, rest: bytes = b"") -> bytes:
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + rest


def riff(kind: bytes, body: bytes) -> bytes:
    return b"RIFF" + struct.pack("<I", len(body) + 12) + b"WEBP" + kind + struct.pack("<I", len(body)) + body


def tiff(kind: int, count: int) -> bytes:
    return b"II*\0" + struct.pack("<IHHHII", 8, 1, 324, kind, count, 8) + bytes(4)


WIDE = (16382).to_bytes(3, "little")
HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "svg": (SVG, "unknown format"),
    "text": (b"hello", "unknown format"),
    "eps": (b"%!PS-Adobe-3.0 EPSF-3.0\n", "unknown format"),
    "icon": (b"\0\0\1\0", "unknown format"),
    "bigtiff": (b"II\x2b\0\x08\0\0\0", "unknown format"),
    "long": (png(50_000, 1, chunk(b"IDAT", b"")), "50,000 x 1 pixels, but the limit of a side is 16,384"),
    "bomb": (png(16_000, 16_000, chunk(b"IDAT", zlib.compress(bytes(1 << 20)))), "the limit is 16,777,216"),
    "nothing": (png(0, 7), "damaged|at least one"),
    "short": (written(picture(), "PNG")[:-200], "PNG file that is damaged or cut off"),
    "cut jpeg": (written(picture(), "JPEG")[:-200], "JPEG file that is damaged or cut off"),
    "cut gif": (written(picture(), "GIF")[:200], "GIF file that is damaged or cut off"),
    "cut webp": (written(picture(), "WEBP")[:-200], "WebP file that is damaged or cut off"),
    "cut tiff": (written(picture(), "TIFF")[:-300], "TIFF file that is damaged or cut off"),
    "cut bmp": (written(picture(), "BMP")[:-200], "BMP file that is damaged or cut off"),
    "webp bomb": (riff(b"VP8X", bytes(4) + WIDE + WIDE), "the limit is 16,777,216"),
    "lossless webp bomb": (riff(b"VP8L", b"\x2f" + b"\xff" * 9), "the limit is 16,777,216"),
    "lossy webp bomb": (riff(b"VP8 ", bytes(3) + b"\x9d\x01\x2a" + b"\xff\x3f\xff\x3f"), "the limit is 16,777,216"),
    "unknown webp": (riff(b"VP9 ", bytes(20)), "WebP file that is damaged"),
    "gif of a large frame": (b"GIF89a\1\0\1\0\0\0\0," + b"\0\0\0\0\0\x50\1\0\0\2\0", "20,480 x 1 pixels"),
    "scans": (written(picture(), "JPEG") + b"\xff\xda" * 100, "more than 64 scans"),
    "tiles": (tiff(4, 1 << 20), "more than 65,536 parts"),
    "segments": (b"\xff\xd8" + b"\xff\xe1\0\2" * 100_000, "JPEG file that is damaged"),
    "chunks": (png(2, 2, chunk(b"teSt", b"") * 100_000), "PNG file that is damaged"),
    "comments": (b"GIF89a\1\0\1\0\0\0\0" + b"!\xfe" + (b"\xff" + bytes(255)) * 40_000, "GIF file that is damaged"),
    "deep text": (png(2, 2, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(1 << 24)))), "PNG file that is damaged"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(ImageError, match=message):
        Image.of(data)


def test_run_lengths_of_bmp_are_refused() -> None:
    head = struct.pack("<2sIHHIIiiHHIIiiII", b"BM", 100, 0, 0, 54, 40, 4, 4, 1, 8, 1, 0, 0, 0, 0, 0)
    with pytest.raises(ImageError, match="run-length"):
        Image.of(head + bytes(1024))


def test_a_file_may_have_anything_behind_it() -> None:
    for form in LOSSLESS:
        data = written(picture(), form, **LOSSLESS[form])
        assert (Image.of(data + SVG).pixels == COLOURS).all()


LIMITS: list[tuple[ImageLimits, str]] = [
    (ImageLimits(file_bytes=100), r"more than 100 bytes; compress it, or raise ImageLimits\(file_bytes=...\)"),
    (ImageLimits(pixels=942), r"41 x 23 pixels, but the limit is 942; .* ImageLimits\(pixels=...\)"),
    (ImageLimits(side=40), r"41 x 23 pixels, but the limit of a side is 40; .* ImageLimits\(side=...\)"),
]


@pytest.mark.parametrize(("limits", "message"), LIMITS)
def test_limits(limits: ImageLimits, message: str, tmp_path: Path) -> None:
    data = written(picture(), "PNG")
    (tmp_path / "it.png").write_bytes(data)
    text = f"data:image/png;base64,{base64.b64encode(data).decode()}"
    sources: list[Any] = [data, tmp_path / "it.png", text, *([picture()] if "pixels," in message else [])]
    for source in sources:
        with pytest.raises(ImageError, match=message):
            Image.of(source, limits=limits)
    assert Image.of(data, limits=ImageLimits(file_bytes=len(data), pixels=943, side=41)).width == 41


def test_limits_are_positive_numbers() -> None:
    with pytest.raises(OptionError, match=r"limits=3: expected an ImageLimits"):
        Image.of(b"", limits=3)  # type: ignore[arg-type]
    for name in ("file_bytes", "pixels", "side"):
        with pytest.raises(OptionError, match=f"ImageLimits.{name}=0"):
            ImageLimits(**{name: 0})


URLS: list[tuple[str, type[Exception], str]] = [
    ("data:image/png,AAAA", ImageError, "without ;base64"),
    ("data:image/png;base64", ImageError, "an invalid data URL"),
    ("data:image png;base64,AAAA", ImageError, "an invalid data URL"),
    (f"data:{'x' * 300};base64,AAAA", ImageError, "an invalid data URL"),
    ("data:image/png;base64,AA!A", ImageError, "not valid base64"),
    ("data:image/png;base64,AAA\u0391", ImageError, "not valid base64"),
    ("data:image/png;base64,A", ImageError, "not valid base64"),
    ("data:image/png;base64,AA=A", ImageError, "not valid base64"),
    ("data:audio/wav;base64,AAAA", ImageError, "of the type audio/wav"),
    ("data:image/svg+xml;base64," + base64.b64encode(SVG).decode(), ImageError, "unknown format"),
    ("https://example.org/it.png", OptionError, "download a web address"),
    ("it.png", OptionError, r"a path as pathlib.Path\(...\)"),
]


@pytest.mark.parametrize(("url", "kind", "message"), URLS)
def test_other_texts_are_refused_without_their_data(url: str, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=f"(?i)^it is .*{message}") as caught:
        Image.of(url, "It")
    assert "AAA" not in str(caught.value)


def paths(folder: Path) -> list[tuple[Path, str]]:
    return [(folder / "none.png", "No such file"), (folder, "not a file"), (Path("/dev/zero"), "not a file")]


@pytest.mark.parametrize("number", range(3))
def test_paths_that_are_no_files_are_refused(number: int, tmp_path: Path) -> None:
    path, message = paths(tmp_path)[number]
    with pytest.raises(ImageError, match=message):
        Image.of(path)


@pytest.mark.parametrize("source", [3, None, [1], {"url": "x"}, "", object])
def test_anything_else_is_refused(source: Any) -> None:
    with pytest.raises(OptionError, match=r"the image is .*give a PIL image"):
        Image.of(source)


def test_without_pillow_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(OptionError, match=r"pip install 'trellm\[images\]'"):
        Image.of(b"")


def changed(data: bytes, change: Callable[[bytearray], None]) -> bytes:
    found = bytearray(data)
    change(found)
    return bytes(found)


@pytest.mark.parametrize("form", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF"])
def test_damaged_files_are_read_or_refused(form: str) -> None:
    """Nothing but an image or an ImageError, whichever byte is another; the fuzzer tries far more."""
    data = written(PIL.Image.fromarray(COLOURS[:9, :7]), form)
    for at in range(0, min(len(data), 240)):
        damaged = changed(data, lambda found, at=at: found.__setitem__(at, found[at] ^ 0xFF))
        try:
            assert Image.of(damaged, limits=ImageLimits(pixels=1 << 16)).pixels.dtype == np.uint8
        except ImageError as error:
            assert "the image" in str(error)
