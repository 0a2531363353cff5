"""Images and audio of requests: decoded in a thread, and accounted for until the request ends."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

from ...engine.media import KINDS, Media
from ...errors import MediaError, TrellmError
from ..errors import ApiError, Place, busy, media_error
from ..requests.chat import MediaSource
from ..settings import Settings
from .fetching import FetchError

MAX_DOWNLOADS = 8
"""Greatest number of concurrent downloads."""
_NOUNS = {"image": "images", "audio": "audio"}


class MediaReader:
    """Reads the images and audio of all requests, one at a time in a thread. Created and used on the event loop.

    held: bytes of pixels and samples of unfinished requests
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.held = 0
        self._decoding = ThreadPoolExecutor(1, "trellm media")
        self._resolving = ThreadPoolExecutor(MAX_DOWNLOADS, "trellm resolving")
        self._slots = asyncio.Semaphore(MAX_DOWNLOADS)

    def close(self) -> None:
        """Stop all work, without waiting for name servers."""
        self._decoding.shutdown(wait=True, cancel_futures=True)
        self._resolving.shutdown(wait=False, cancel_futures=True)

    def check(self, sources: list[MediaSource], reads: Collection[str]) -> None:
        """Raise ApiError for media that the model or the server does not accept. reads: kinds that the model reads"""
        unsupported = next((source for source in sources if source.kind not in reads), None)
        if unsupported is not None:
            readable = " and ".join(["texts", *(_NOUNS[kind] for kind in reads)])
            raise ApiError(
                f"the model reads only {readable}; leave {_NOUNS[unsupported.kind]} out, or request a model that reads "
                f"{'them' if unsupported.kind == 'image' else 'it'}",
                unsupported.place, code="unsupported_parameter",
            )  # fmt: skip
        most = self._settings.media
        if len(sources) > most:
            message = f"the request has {len(sources):,} images and audio; the limit of this server is {most:,}"
            raise ApiError(message, ("messages",))

    async def read(self, source: MediaSource, what: str) -> Media:
        """Read the image or audio of a source. what: its name at the start of error messages. Raises ApiError."""
        kind, noun = source.kind, _NOUNS[source.kind]
        scheme = source.url[:8].partition(":")[0].lower()
        if scheme == "data":
            return await self._decode(source.url, source, what)
        if scheme not in ("http", "https"):
            message = f"{what} must be a data URL, such as data:{kind}/...;base64,...; the server opens no files"
            raise ApiError(message, source.place, code="invalid_image" if kind == "image" else "invalid_audio")
        fetcher = self._settings.fetcher
        if fetcher is None:
            message = (
                f"{what} is a web address, and the server fetches no {noun} without --fetch-media; send a data URL"
            )
            raise ApiError(message, source.place, code="unsupported_parameter")
        most = self._limits(source).file_bytes
        async with self._slots:
            try:
                data = await fetcher.fetch(source.url, kind, most, self._resolving)
            except FetchError as error:
                code = "image_not_fetched" if kind == "image" else "audio_not_fetched"
                raise ApiError(f"{what} {error}", source.place, code=code) from None
            return await self._decode(data, source, what)

    def _limits(self, source: MediaSource) -> Any:
        return self._settings.image_limits if source.kind == "image" else self._settings.audio_limits

    async def _decode(self, data: str | bytes, source: MediaSource, what: str) -> Media:
        work = partial(KINDS[source.kind].of, data, what, self._limits(source))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoding, work)
        except TrellmError as error:
            raise media_error(error, source.place) from None

    def reserve(self, media: Media, before: int) -> None:
        """Account for an image or audio. before: bytes of the same request so far. Raises ApiError if it exceeds the
        limit."""
        most = self._settings.media_bytes
        if before + media.nbytes > most:
            message = f"the images and audio of the request take more than {most:,} bytes together; send smaller ones"
            raise ApiError(message, ("messages",), code="invalid_image" if media.kind == "image" else "invalid_audio")
        if self.held + media.nbytes > most:
            raise busy("server at capacity (memory for images and audio of running requests); try again")
        self.held += media.nbytes


class RequestMedia:
    """The images and audio of one request, accounted for until `release`.

    counts: number of message parts by kind; reads: kinds that its model reads
    """

    def __init__(self, reader: MediaReader, *, reads: Collection[str]) -> None:
        self.counts: Counter[str] = Counter()
        self._places: dict[str, Place] = {}
        self._reader = reader
        self._reads = reads
        self._held = 0

    def __enter__(self) -> RequestMedia:
        return self

    def __exit__(self, _: object, error: BaseException | None, *__: object) -> None:
        self.release()
        if isinstance(error, MediaError):
            raise self.placed_error(error) from None

    def release(self) -> None:
        """Release their memory from the account."""
        self._reader.held -= self._held
        self._held = 0

    def placed_error(self, error: MediaError) -> ApiError:
        """Return the error of an image or audio that the model does not read, with its place in the request."""
        return media_error(error, self._places.get(error.digest, ("messages",)))

    async def read(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Replace sources in messages by an Image or Audio, one for equal URLs. Raises ApiError."""
        sources: list[MediaSource] = [part[part["type"]] for message in messages for part in _media_parts(message)]
        if not sources:
            return messages
        numbered: list[tuple[MediaSource, int]] = []
        for source in sources:
            self.counts[source.kind] += 1
            numbered.append((source, self.counts[source.kind]))
        self._reader.check(sources, self._reads)
        unique = {(source.kind, source.url): (source, number) for source, number in reversed(numbered)}
        media: dict[tuple[str, str], Media] = {}

        async def add(source: MediaSource, number: int) -> None:
            read = await self._reader.read(source, f"{source.kind} {number} of the request")
            self._reader.reserve(read, self._held)
            self._held += read.nbytes
            media[source.kind, source.url] = read

        try:
            async with asyncio.TaskGroup() as group:
                for each in reversed(unique.values()):
                    group.create_task(add(*each))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        self._places = {media[source.kind, source.url].digest: source.place for source in reversed(sources)}
        return [_with_media(message, media) for message in messages]


def _media_parts(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message["content"]
    for part in cast("list[dict[str, Any]]", content) if isinstance(content, list) else ():
        if part["type"] in KINDS:
            yield part


def _with_media(message: dict[str, Any], media: dict[tuple[str, str], Media]) -> dict[str, Any]:
    """Return a message with its sources replaced."""
    if not any(_media_parts(message)):
        return message
    parts = [
        part | {kind: media[kind, part[kind].url]} if (kind := part["type"]) in KINDS else part
        for part in cast("list[dict[str, Any]]", message["content"])
    ]
    return message | {"content": parts}
