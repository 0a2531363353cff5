"""Audio of prompts: decoding to samples of one channel, with a digest. Sizes are checked before decoding.

Files are untrusted. Their first bytes determine the format. WAV of PCM is decoded here, since the standard library
reads neither its extensible form before Python 3.12 nor streams of unknown length. soundfile decodes other formats if
it is installed. Several channels are averaged.
"""

from __future__ import annotations

import hashlib
import io
import re
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...checks import check_int, shown
from ...errors import AudioError, OptionError
from .files import FileLimits, MediaBase

Samples = NDArray[np.float32]
RATES = (1_000, 192_000)
"""The least and greatest sample rate in Hz."""
_READERS = {
    rb"RIFF....WAVE": "a WAV", rb"fLaC": "a FLAC", rb"OggS": "an OGG", rb"ID3|\xff[\xe2\xe3\xf2\xf3\xfa\xfb]": "an MP3"
}  # fmt: skip
"""Formats, with their articles, by file signature."""
SUFFIXES = (".wav", ".flac", ".ogg", ".oga", ".opus", ".mp3")
_LOUDEST = 8.0
"""Greatest sample value. Decoders slightly exceed 1; larger values have another scale, such as that of 16-bit
integers."""
_USUAL = 48_000
"""Sample rate in Hz up to which `AudioLimits.seconds` holds. Above it the number of samples is bounded."""
_BLOCK = 1 << 16
"""Frames that are decoded at a time."""
_MAX_CHANNELS = 32
_PCM, _EXTENSIBLE = 1, 0xFFFE
"""Format codes of WAV. An extensible header contains another code, followed by `_KIND`."""
_KIND = bytes.fromhex("000000001000800000aa00389b71")
_MAX_PARTS = 4096
_UNKNOWN = 0x7FFF_F000
"""Data size from which a WAV header does not state a length, as streams are written."""
_SAMPLES = 1 << 16
_MIN_TURNS = 64
"""Samples that are resampled at a time, and at least this many periods of the filter's phases."""


@dataclass(frozen=True, slots=True)
class AudioLimits(FileLimits):
    """Bounds of audio, checked before it is decoded. Exceeding one raises AudioError.

    file_bytes: size of a file; seconds: duration at up to 48,000 Hz, and proportionally less at higher rates

    Decoding the default 600 seconds takes up to 250 MiB. Raises OptionError unless all are positive integers.
    """

    kind = "audio"
    formats = "WAV, FLAC, OGG or MP3"
    accepted = "an Audio, such as Audio(samples, 16000), a pathlib.Path, the bytes of a file, or a data URL"
    error = AudioError

    seconds: int = 600

    def check(self, samples: int, rate: int, what: str) -> None:
        """Raise AudioError for a number of samples at a rate in Hz that exceeds the bounds."""
        if not RATES[0] <= rate <= RATES[1]:
            raise AudioError(f"{what} has a sample rate of {rate:,}; supported are {RATES[0]:,} to {RATES[1]:,}")
        if samples < 1:
            raise AudioError(f"{what} has no samples")
        if samples > self.seconds * min(rate, _USUAL):
            allowed = self.seconds * min(rate, _USUAL) / rate
            raise AudioError(
                f"{what} takes {samples / rate:,.7g} seconds, but the limit is {allowed:,g} at {rate:,} samples a "
                "second; cut it, or raise AudioLimits(seconds=...)"
            )


class Audio(MediaBase):
    """Audio of a prompt: samples as a read-only array, float32 [samples], with full scale 1.

    rate: sample rate in Hz; digest: SHA-256 of rate and samples, in hex; audio with equal digests is equal
    """

    kind = "audio"

    __slots__ = ("rate", "samples")

    def __init__(self, samples: NDArray[np.floating[Any]], rate: int) -> None:
        """samples: floats of one channel; copied unless they are read-only float32 already

        Raises OptionError for another type, AudioError for samples that are not finite or far above full scale.
        """
        self.rate = check_int(rate, "rate", *RATES)
        if not isinstance(samples, np.ndarray) or samples.dtype.kind != "f" or samples.ndim != 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise OptionError(
                f"samples={shown(samples)}: expected a one-dimensional NumPy array of floats, full scale 1; mix "
                "channels by samples.mean(axis=...), and scale integers of 16 bits by samples / 32768"
            )
        if not len(samples):
            raise AudioError("the audio has no samples")
        with np.errstate(over="ignore"):  # a float64 beyond float32 becomes inf, which is refused below
            found: Samples = samples.astype(np.float32, copy=samples.flags.writeable)
        loudest = max(-float(found.min()), float(found.max()))  # NaN if a sample is
        if not loudest <= _LOUDEST:
            raise AudioError(f"the audio has samples of up to {loudest:g}; they must be finite, with full scale 1")
        found = np.ascontiguousarray(found)
        found.flags.writeable = False
        self.samples = found
        digest = hashlib.sha256(f"{self.rate}:".encode())
        digest.update(found.data)
        self.digest = digest.hexdigest()

    @classmethod
    def of(cls, source: Any, what: str = "the audio", limits: AudioLimits | None = None) -> Audio:
        """Read audio: an Audio, a pathlib.Path, the bytes of a file, or a data URL.

        what: its name at the start of error messages. Raises AudioError for a file that cannot be decoded, needs
            soundfile where that is missing, or is too long; OptionError for other types.
        """
        chosen = AudioLimits.of(limits)
        if isinstance(source, Audio):
            return source
        data = chosen.data_of(source, what)
        if data is None:
            raise OptionError(f"{what} is {shown(source)}; give {chosen.accepted}")
        return _decode(data, what, chosen)

    @property
    def nbytes(self) -> int:
        """The size of the samples in bytes."""
        return self.samples.nbytes

    @property
    def seconds(self) -> float:
        """Duration in seconds."""
        return len(self.samples) / self.rate

    def at(self, rate: int) -> Samples:
        """Return the samples at another rate, by a polyphase filter. It is a sinc with 20 zero crossings, scaled for
        decimation, in a Kaiser window of beta 5, as in `scipy.signal.resample_poly`.
        """
        return self.samples if rate == self.rate else _resample(self.samples, self.rate, rate)

    @property
    def _arguments(self) -> tuple[Any, ...]:
        return self.samples, self.rate

    def __repr__(self) -> str:
        return f"Audio({self.seconds:.2f} s, {self.rate:,} a second)"


def is_audio(data: bytes) -> bool:
    """Test whether bytes begin like an audio file."""
    return any(re.match(begin, data, re.DOTALL) for begin in _READERS)


def _decode(data: bytes, what: str, limits: AudioLimits) -> Audio:
    """Decode an audio file. Raises AudioError."""
    if not data:
        raise AudioError(f"{what} is empty; expected {limits.formats}")
    name = next((name for begin, name in _READERS.items() if re.match(begin, data, re.DOTALL)), None)
    if name is None:
        raise AudioError(f"{what} is in an unknown format; supported are {limits.formats}")
    try:
        audio = _of_wave(data, what, limits) if name == "a WAV" else None
        return _of_soundfile(data, name, what, limits) if audio is None else audio
    except (AudioError, MemoryError):
        raise
    except Exception as error:  # decoders raise any exception on damaged files
        message = f"{what} is {name} file that is damaged or cut off; save it again, or give another"
        raise AudioError(message) from error


def _of_wave(data: bytes, what: str, limits: AudioLimits) -> Audio | None:
    """Decode a WAV file; None if it is not PCM. Raises AudioError, and other exceptions for a damaged file."""
    form, begin, size = _parts_of_wave(data)
    kind, channels, rate, _, frame, bits = struct.unpack_from("<HHIIHH", form)
    if kind == _EXTENSIBLE and form[26:40] == _KIND:
        kind = int.from_bytes(form[24:26], "little")
    width = frame // channels
    if kind != _PCM or width > 4:
        return None
    if frame != channels * width or not 0 < bits <= 8 * width:
        raise ValueError("the size of a frame does not fit the channels")
    frames = size // frame
    limits.check(frames, rate, what)
    if begin + size > len(data):
        raise EOFError("the file is shorter than its header says")
    raw = memoryview(data)[begin : begin + frames * frame]
    if width == 1:
        samples: NDArray[Any] = np.frombuffer(raw, np.uint8).astype(np.float32) / 128 - 1
    elif width == 3:
        wide = np.zeros((frames * channels, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8).reshape(-1, 3)
        samples = wide.view("<i4")[:, 0].astype(np.float32) / (1 << 31)
    else:
        samples = np.frombuffer(raw, f"<i{width}").astype(np.float32) / (1 << (8 * width - 1))
    return _mix([samples.reshape(-1, channels)], rate)


def _parts_of_wave(data: bytes) -> tuple[bytes, int, int]:
    """Return the format chunk of a WAV file, the offset of its samples, and their size in bytes as stated."""
    form, place = b"", 12
    for _ in range(_MAX_PARTS):
        name, size = struct.unpack_from("<4sI", data, place)
        place += 8
        if name == b"data":
            return form, place, len(data) - place if size >= _UNKNOWN else size
        if name == b"fmt ":
            form = data[place : place + size]
        place += size + size % 2
    raise ValueError("too many parts")


def _of_soundfile(data: bytes, name: str, what: str, limits: AudioLimits) -> Audio:
    """Decode a file with soundfile, in blocks of frames. Raises as `_of_wave` does."""
    if find_spec("soundfile") is None:
        form = "a WAV file that is not PCM" if name == "a WAV" else f"{name} file"
        raise AudioError(
            f"{what} is {form}, which needs the package soundfile, which is not installed (pip install "
            "'trellm[audio]'); or give PCM WAV"
        )
    file: Any = import_module("soundfile").SoundFile(io.BytesIO(data))
    if file.channels > _MAX_CHANNELS:
        raise AudioError(f"{what} has {file.channels:,} channels, but the limit is {_MAX_CHANNELS}; mix them")
    limits.check(max(file.frames, 1), file.samplerate, what)

    def blocks() -> Iterator[Samples]:
        count = 0
        while len(block := file.read(_BLOCK, "float32", always_2d=True)):
            count += len(block)
            limits.check(count, file.samplerate, what)  # may exceed the number in the header
            yield block
        limits.check(count, file.samplerate, what)

    return _mix(blocks(), file.samplerate)


def _mix(blocks: Iterable[Samples], rate: int) -> Audio:
    """Average frames [frames, channels] to audio of one channel."""
    means = [block[:, 0] if block.shape[1] == 1 else block.mean(1, dtype=np.float32) for block in blocks]
    samples = means[0] if len(means) == 1 else np.concatenate(means)
    samples.flags.writeable = False
    return Audio(samples, rate)


def _resample(samples: Samples, rate: int, to: int) -> Samples:
    common = gcd(rate, to)
    up, down = to // common, rate // common
    half = 10 * max(up, down)
    # The filter runs at the common multiple of both rates. Only every up-th tap meets a sample; the others meet zeros.
    at = np.arange(-half, half + 1)
    taps = np.sinc(at / max(up, down)) * np.kaiser(2 * half + 1, 5.0)
    width = 2 * half // up + 1
    bank = np.zeros(width * up)
    bank[: 2 * half + 1] = taps * (up / taps.sum())
    phases = bank.reshape(width, up).T[:, ::-1].astype(np.float32)
    count = -(-len(samples) * up // down)
    last = ((count - 1) * down + half) // up
    padded = np.zeros(max(last, len(samples)) + width, np.float32)
    padded[width - 1 : width - 1 + len(samples)] = samples
    windows = np.lib.stride_tricks.sliding_window_view(padded, width)
    found = np.empty(count, np.float32)
    turns = max(_MIN_TURNS, _SAMPLES // down)
    for start in range(0, count, turns * up):  # some periods of all phases, so that their samples stay in cache
        part = found[start : start + turns * up]
        for phase in range(min(up, len(part))):
            outputs = part[phase::up]
            begin, row = divmod((start + phase) * down + half, up)
            outputs[:] = windows[begin::down][: len(outputs)] @ phases[row]
    return found
