"""The common base of images and audio in prompts, and their files: bytes, a path, or a data URL, within limits."""

from __future__ import annotations

import binascii
import os
import re
import stat
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self, cast

from numpy.typing import NDArray

from ...checks import brief, check_int
from ...errors import AudioError, ImageError, OptionError

_HEAD = 200
"""Number of characters that must contain the comma of a data URL."""
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[\w.+-]*)*(;base64)?", re.ASCII | re.IGNORECASE)


class MediaBase:
    """An image or audio. Equal digests mean equality. Pickles contain the source array."""

    __slots__ = ("__weakref__", "digest")

    digest: str

    @property
    def _arguments(self) -> tuple[Any, ...]:
        """Constructor arguments, the array first."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), *self._arguments)


def _restore(of: type[Any], array: NDArray[Any], *others: Any) -> Any:
    """Create an object from a received array, which is not shared."""
    array.flags.writeable = False
    return of(array, *others)


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Bounds of a file.

    kind: media type in data URLs; formats: supported formats; accepted: accepted inputs; error: exception class
    """

    kind: ClassVar[str]
    formats: ClassVar[str]
    accepted: ClassVar[str]
    error: ClassVar[type[ImageError] | type[AudioError]]

    file_bytes: int = 20 << 20

    def __post_init__(self) -> None:
        for each in fields(self):
            check_int(getattr(self, each.name), f"{type(self).__name__}.{each.name}")

    @classmethod
    def of(cls, limits: Self | None) -> Self:
        """Return the given limits, or the default ones. Raises OptionError for another type."""
        if limits is None:
            return cls()
        if not isinstance(limits, cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = cls.__name__
            raise OptionError(f"limits={brief(limits)}: expected {_a(name)}, such as {name}(file_bytes=10**7)")
        return limits

    def check_bytes(self, size: int, what: str) -> None:
        """Raise an error for a file of `size` bytes that is too large."""
        if size > self.file_bytes:
            raise self.error(
                f"{what} has more than {self.file_bytes:,} bytes; compress it, or raise "
                f"{type(self).__name__}(file_bytes=...)"
            )

    def data_of(self, source: Any, what: str) -> bytes | None:
        """Return the bytes of a pathlib.Path, bytes or data URL; None for other types.

        what: its name at the start of error messages

        Raises an error for a file that cannot be read or is too large, OptionError for another text.
        """
        if isinstance(source, Path):
            return self._file(source, what)
        if isinstance(source, str):
            return self._of_url(source, what)
        if not isinstance(source, (bytes, bytearray, memoryview)):
            return None
        data = cast("bytes | bytearray | memoryview[int]", source)
        self.check_bytes(memoryview(data).nbytes, what)
        return bytes(data)

    def _of_url(self, url: str, what: str) -> bytes:
        """Return the file in a data URL."""
        head, comma, _ = url[:_HEAD].partition(",")
        read = _DATA_URL.fullmatch(head)
        if url[:5].lower() != "data:":
            raise OptionError(
                f"{what} is a string, but not a data URL; give {self.accepted}. Give a path as pathlib.Path(...), and "
                "download a web address yourself"
            )
        if read is None or not comma:
            raise self.error(f"{what} is an invalid data URL; write data:{self.kind}/...;base64,...")
        kind = (read[1] or "").lower()
        if kind and not kind.startswith(f"{self.kind}/"):
            raise self.error(f"{what} is a data URL of the type {kind[:40]}; {_a(self.kind)} file is {self.formats}")
        if read[2] is None:
            raise self.error(f"{what} is a data URL without ;base64, which files need")
        return self._of_base64(url[len(head) + 1 :], what)

    def _of_base64(self, text: str, what: str) -> bytes:
        """Decode a file in base64."""
        self.check_bytes(len(text) * 3 // 4 - 2, what)
        try:
            data = text.encode("ascii").translate(None, b" \t\r\n")
            found = binascii.a2b_base64(data + b"=" * (-len(data) % 4), strict_mode=True)
        except ValueError:
            raise self.error(f"{what} is not valid base64") from None
        self.check_bytes(len(found), what)
        return found

    def _file(self, path: Path, what: str) -> bytes:
        """Read a file at a path."""
        try:
            is_file = stat.S_ISREG(os.stat(path).st_mode)  # a pipe could block for ever
            data = None
            if is_file:
                with path.open("rb") as file:
                    data = file.read(self.file_bytes + 1)
        except (OSError, ValueError) as error:  # a path with a null byte raises ValueError
            reason = error.strerror if isinstance(error, OSError) else error
            raise self.error(f"{what} cannot be read: {str(path)!r}: {reason}") from None
        if data is None:
            raise self.error(f"{what} is {str(path)!r}, which is not a file")
        self.check_bytes(len(data), what)
        return data


def _a(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOUaeiou' else 'a'} {noun}"
