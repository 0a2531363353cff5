"""Audio from files, data URLs and arrays: samples as written, rates as scipy has them, and hostile files refused."""

import base64
import io
import pickle
import struct
import sys
import wave
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from trellm import Audio, AudioError, AudioLimits, OptionError

RNG = np.random.default_rng(7)
MONO = RNG.uniform(-1, 1, 500).astype(np.float32)


def wav(samples: np.ndarray, rate: int = 8000, width: int = 2) -> bytes:
    """A file of PCM of samples [frames] or [frames, channels]."""
    scaled = np.round(samples.astype(np.float64) * (1 << 8 * width - 1)).clip(
        -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1
    )
    whole = scaled.astype("<i8") + (128 if width == 1 else 0)
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1 if samples.ndim == 1 else samples.shape[1])
        writer.setsampwidth(width)
        writer.setframerate(rate)
        writer.writeframes(whole.reshape(-1, 1).view(np.uint8)[:, :width].tobytes())
    return file.getvalue()


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_pcm_of_every_width(width: int) -> None:
    found = Audio.of(wav(MONO, 11025, width))
    assert (found.rate, found.samples.dtype, len(found.samples)) == (11025, np.float32, 500)
    assert np.abs(found.samples - MONO).max() <= 2.0 ** (1 - 8 * width) + 1e-7


@pytest.mark.parametrize("width", [1, 2, 3, 4])
def test_channels_become_their_mean(width: int) -> None:
    several = RNG.uniform(-1, 1, (300, 3))
    assert np.abs(Audio.of(wav(several, width=width)).samples - several.mean(1)).max() <= 2.0 ** (1 - 8 * width) + 1e-6


EXTENSIBLE = struct.pack("<HHI", 22, 20, 0) + bytes.fromhex("0100000000001000800000aa00389b71")


@pytest.mark.parametrize("width", [2, 3, 4])
def test_extensible_pcm_is_pcm(width: int) -> None:
    """The form in which 24 bits are usually written; with 20 bits in as many bytes as they are given."""
    plain = wav(MONO, width=width)
    found = Audio.of(head(1, 8000, width, 500 * width, plain[44:], 0xFFFE, EXTENSIBLE))
    assert found == Audio.of(plain)


@pytest.mark.parametrize("claimed", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000])
def test_streams_that_say_no_length_are_read_to_their_end(claimed: int) -> None:
    """What programs write into a pipe."""
    plain = wav(MONO)
    assert Audio.of(head(1, 8000, 2, claimed, plain[44:] + b"\1")) == Audio.of(plain)
    with pytest.raises(AudioError, match=r"takes 2 seconds, but the limit is 1"):
        Audio.of(head(1, 8000, 2, claimed, bytes(32_000)), limits=AudioLimits(seconds=1))


def direct(samples: np.ndarray, rate: int, to: int) -> np.ndarray:
    """The definition: each sample of the result is a sum over all, weighed by the windowed sinc at its distance."""
    wide = max(rate, to)
    taps = np.arange(-10 * wide, 10 * wide + 1)
    filtered = np.sinc(taps / wide) * np.kaiser(len(taps), 5.0)
    filtered *= to / filtered.sum()
    count = -(-len(samples) * to // rate)
    distance = np.arange(count)[:, None] * rate - np.arange(len(samples)) * to + 10 * wide
    inside = (distance >= 0) & (distance < len(taps))
    return (np.where(inside, filtered[distance.clip(0, len(taps) - 1)], 0) * samples).sum(1)


@pytest.mark.parametrize(("rate", "to"), [(3000, 2000), (2000, 3000), (4000, 1000), (1001, 1000)])
@pytest.mark.parametrize("count", [1, 2, 97, 400])
def test_resampling_is_its_definition(rate: int, to: int, count: int) -> None:
    found = Audio(MONO[:count], rate).at(to)
    step = int(np.gcd(rate, to))
    assert np.abs(found - direct(MONO[:count], rate // step, to // step)).max() < 1e-6


@pytest.mark.parametrize(("rate", "to"), [(44100, 16000), (48000, 16000), (8000, 16000), (16001, 24000)])
def test_resampling_is_that_of_scipy(rate: int, to: int) -> None:
    signal = pytest.importorskip("scipy.signal")
    samples = RNG.uniform(-1, 1, 200_011).astype(np.float32)
    step = int(np.gcd(rate, to))
    wanted = signal.resample_poly(samples.astype(np.float64), to // step, rate // step)
    found = Audio(samples, rate).at(to)
    assert len(found) == len(wanted) and np.abs(found - wanted).max() < 1e-6


def test_resampling_keeps_tones_and_drops_those_above() -> None:
    at = np.arange(48000) / 48000
    for frequency, amplitude in ((440, 1.0), (12_000, 0.0)):
        found = Audio(np.sin(2 * np.pi * frequency * at).astype(np.float32), 48000).at(16000)[100:-100]
        wanted = amplitude * np.sin(2 * np.pi * frequency * np.arange(100, 15900) / 16000)
        assert np.abs(found - wanted).max() < 5e-3


def test_sources(tmp_path: Path) -> None:
    data = wav(MONO)
    path = tmp_path / "sound.of.a.wrong.name.mp3"
    path.write_bytes(data)
    text = base64.b64encode(data).decode()
    sources: list[Any] = [
        data,
        bytearray(data),
        memoryview(data),
        path,
        Audio.of(data),
        Audio(Audio.of(data).samples, 8000),
    ]
    sources += [f"data:audio/wav;base64,{text}", f"data:;base64,{text}"]
    assert {Audio.of(source) for source in sources} == {Audio.of(data)}


def test_audio_cannot_be_changed_and_can_be_sent() -> None:
    own = MONO.copy()
    audio = Audio(own, 8000)
    own[:] = 0
    assert (audio.samples == MONO).all()
    with pytest.raises(ValueError, match="read-only"):
        audio.samples[0] = 0
    sent = pickle.loads(pickle.dumps(audio))
    assert sent == audio and hash(sent) == hash(audio) and not sent.samples.flags.writeable
    assert repr(audio) == "Audio(0.06 s, 8,000 a second)" and audio.nbytes == 2000
    assert Audio(MONO.astype(np.float64), 8000) == audio
    assert Audio(MONO, 8001) != audio != Audio(MONO[1:], 8000)


GIVEN: list[tuple[Any, Any, type[Exception], str]] = [
    (MONO.reshape(2, -1), 8000, OptionError, "one-dimensional"),
    ((MONO * 32767).astype(np.int16), 8000, OptionError, "samples / 32768"),
    ([0.0, 1.0], 8000, OptionError, "NumPy array"),
    (MONO, 8000.5, OptionError, "rate"),
    (MONO, 10, OptionError, "rate"),
    (MONO, 1 << 40, OptionError, "rate"),
    (MONO[:0], 8000, AudioError, "no samples"),
    (np.array([0, np.nan], np.float32), 8000, AudioError, "finite"),
    (np.array([0, -np.inf], np.float32), 8000, AudioError, "finite"),
    (np.array([0, 1e300]), 8000, AudioError, "finite"),
    (MONO * 32767, 8000, AudioError, "full scale 1"),
]


@pytest.mark.parametrize(("samples", "rate", "kind", "message"), GIVEN)
def test_arrays_that_are_no_audio(samples: Any, rate: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        Audio(samples, rate)


def head(
    channels: int, rate: int, width: int, claimed: int, rest: bytes = bytes(64), form: int = 1, more: bytes = b""
) -> bytes:
    shape = struct.pack(
        "<HHIIHH", form, channels, rate, rate * width & 0xFFFFFFFF, channels * width & 0xFFFF, 8 * width
    )
    shape = struct.pack("<I", 16 + len(more)) + shape + more
    return b"RIFF\xff\xff\xff\xffWAVEfmt " + shape + b"data" + struct.pack("<I", claimed) + rest


HOSTILE: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "is empty"),
    "text": (b"hello", "unknown format"),
    "image": (b"\x89PNG\r\n\x1a\n", "unknown format"),
    "head alone": (b"RIFF\0\0\0\0WAVE", "damaged or cut off"),
    "claims 2 GB": (head(1, 8000, 2, 2_000_000_000), r"takes 125,000 seconds, but the limit is 600"),
    "claims 2 GB at a high rate": (head(1, 192_000, 4, 2_000_000_000), "takes 2,604.167 seconds, but the limit is 150"),
    "claims more than it has": (head(1, 8000, 2, 1000), "damaged or cut off"),
    "no channels": (head(0, 8000, 2, 64), "damaged or cut off"),
    "no bytes a sample": (head(1, 8000, 0, 64), "damaged or cut off"),
    "no rate": (head(1, 0, 2, 64), "sample rate of 0"),
    "a rate beyond all": (head(1, 0xFFFFFFFF, 2, 64), "sample rate of 4,294,967,295"),
    "nothing": (head(1, 8000, 2, 0, b""), "no samples"),
    "frames of another size": (wav(MONO.reshape(-1, 2)).replace(b"\4\0\x10", b"\5\0\x10", 1), "damaged or cut off"),
    "more bits than bytes": (wav(MONO).replace(b"\2\0\x10\0", b"\2\0\x11\0", 1), "damaged or cut off"),
    "no bits": (wav(MONO).replace(b"\2\0\x10\0", b"\2\0\0\0", 1), "damaged or cut off"),
    "no format": (wav(MONO).replace(b"fmt ", b"junk", 1), "damaged or cut off"),
    "wide": (head(1, 8000, 8, 64), "damaged or cut off|not PCM"),
    "chunks": (head(1, 8000, 2, 64)[:12] + b"junk\0\0\0\0" * 300_000, "damaged or cut off"),
    "cut": (wav(MONO)[:-3], "damaged or cut off"),
    "ten hours": (head(1, 1000, 1, 36_000_000, bytes(1 << 20)), "takes 36,000 seconds"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str) -> None:
    data, message = HOSTILE[name]
    with pytest.raises(AudioError, match=message):
        Audio.of(data)


def test_limits(tmp_path: Path) -> None:
    data = wav(RNG.uniform(-1, 1, 16001))
    with pytest.raises(AudioError, match=r"more than 100 bytes; compress it, or raise AudioLimits\(file_bytes=...\)"):
        Audio.of(data, limits=AudioLimits(file_bytes=100))
    with pytest.raises(AudioError, match=r"takes 2.000125 seconds, but the limit is 2 .* AudioLimits\(seconds=...\)"):
        Audio.of(data, limits=AudioLimits(seconds=2))
    assert Audio.of(data, limits=AudioLimits(file_bytes=len(data), seconds=3)).rate == 8000
    with pytest.raises(OptionError, match="limits=3: expected an AudioLimits"):
        Audio.of(data, limits=3)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match=r"AudioLimits\.seconds=0"):
        AudioLimits(seconds=0)
    with pytest.raises(AudioError, match="No such file"):
        Audio.of(tmp_path / "none.wav")


@pytest.mark.parametrize("source", [3, None, [1], {"url": "x"}, "", "it.wav"])
def test_anything_else_is_refused(source: Any) -> None:
    with pytest.raises(OptionError, match=r"the audio is .*give an Audio, such as Audio\(samples, 16000\)"):
        Audio.of(source)
    with pytest.raises(AudioError, match="of the type image/png"):
        Audio.of("data:image/png;base64,AAAA")


def test_other_formats_need_soundfile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "soundfile", None)
    for begin, name in ((b"fLaC", "a FLAC"), (b"OggS", "an OGG"), (b"ID3", "an MP3")):
        with pytest.raises(AudioError, match=rf"is {name} file.*pip install 'trellm\[audio\]'\); or give PCM WAV"):
            Audio.of(begin + bytes(99))
    with pytest.raises(AudioError, match="WAV file that is not PCM"):
        Audio.of(head(1, 8000, 4, 64, form=3))


@pytest.mark.parametrize(("form", "kind", "error"), [
    ("FLAC", "PCM_16", 1e-4), ("FLAC", "PCM_24", 1e-6), ("WAV", "FLOAT", 1e-7), ("OGG", "VORBIS", 0.2),
    ("MP3", None, 0.2),
])  # fmt: skip
def test_what_soundfile_reads(form: str, kind: str | None, error: float) -> None:
    soundfile = pytest.importorskip("soundfile")
    tone = 0.4 * np.sin(np.arange(16000) / 9)
    file = io.BytesIO()
    soundfile.write(file, np.stack([tone, tone / 2], 1), 16000, kind, format=form)
    found = Audio.of(file.getvalue())
    assert found.rate == 16000
    assert np.abs(found.samples[2000:14000] - 0.75 * tone[2000:14000]).max() < error
    with pytest.raises(AudioError, match=r"damaged or cut off|takes|no samples"):
        Audio.of(file.getvalue()[:40])
    with pytest.raises(AudioError, match="but the limit is 1"):
        soundfile.write(file := io.BytesIO(), np.zeros(40000), 16000, kind, format=form)
        Audio.of(file.getvalue(), limits=AudioLimits(seconds=1))


def test_damaged_files_are_read_or_refused() -> None:
    """Nothing but audio or an AudioError, whatever was changed; the fuzzer tries far more."""
    data, random = wav(RNG.uniform(-1, 1, (40, 2)), width=3), Random(5)
    for _ in range(400):
        found = bytearray(data)
        for _ in range(random.choice((1, 2, 4))):
            found[random.randrange(60)] = random.randrange(256)
        try:
            assert Audio.of(bytes(found), limits=AudioLimits(seconds=9)).samples.dtype == np.float32
        except AudioError as error:
            assert "the audio" in str(error)
