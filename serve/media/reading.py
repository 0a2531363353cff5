"""Images of requests: what their parts name becomes pixels, beside all texts, and is counted until the request ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, cast

from ...engine.media.image import Image
from ...errors import TrellmError
from ..errors import ApiError, busy, of_image
from ..requests.chat import ImageSource
from ..settings import Settings
from .fetching import FetchError

FETCHING = 8
"""So many images are fetched at a time."""


class ImageReader:
    """Reads the images of all requests, one at a time in a thread of its own. Made and used on the event loop.

    held: bytes of the pixels of requests that are on their way
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.held = 0
        self._decoding = ThreadPoolExecutor(1, "trellm images")
        self._resolving = ThreadPoolExecutor(FETCHING, "trellm resolving")
        self._slots = asyncio.Semaphore(FETCHING)

    def close(self) -> None:
        """End what runs, but for name servers that do not answer."""
        self._decoding.shutdown(wait=True, cancel_futures=True)
        self._resolving.shutdown(wait=False, cancel_futures=True)

    def check(self, sources: list[ImageSource], *, is_read: bool) -> None:
        """Raise ApiError for images that no request may have here. is_read: whether the model reads any"""
        if not is_read:
            said = "the model reads texts alone; leave images out, or ask one that reads them"
            raise ApiError(said, sources[0].place, code="unsupported_parameter")
        most = self._settings.images
        if len(sources) > most:
            raise ApiError(f"a request may have {most:,} images, and this one has {len(sources):,}", ("messages",))

    async def image(self, source: ImageSource, what: str) -> Image:
        """The image of a source. what: names it, as the beginning of a sentence. Raises ApiError."""
        scheme = source.url[:8].partition(":")[0].lower()
        if scheme == "data":
            return await self._decoded(source.url, source, what)
        if scheme not in ("http", "https"):
            said = f"{what} is no data URL, such as data:image/png;base64,...; the server opens no files"
            raise ApiError(said, source.place, code="invalid_image")
        fetcher = self._settings.fetcher
        if fetcher is None:
            said = f"{what} is an address, and the server fetches no images (--fetch-images); send a data URL"
            raise ApiError(said, source.place, code="unsupported_parameter")
        async with self._slots:
            try:
                data = await fetcher.fetch(source.url, self._settings.image_limits.file_bytes, self._resolving)
            except FetchError as error:
                raise ApiError(f"{what} {error}", source.place, code="image_not_fetched") from None
            return await self._decoded(data, source, what)

    async def _decoded(self, data: str | bytes, source: ImageSource, what: str) -> Image:
        work = partial(Image.of, data, what, self._settings.image_limits)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._decoding, work)
        except TrellmError as error:
            raise of_image(error, source.place) from None

    def take(self, size: int, before: int) -> None:
        """Count bytes of a request's pixels. before: those it has already. Raises ApiError where there is no room."""
        most = self._settings.image_bytes
        if before + size > most:
            said = f"the images of the request have more than {most // 3:,} pixels together; make them smaller"
            raise ApiError(said, ("messages",), code="invalid_image")
        if self.held + size > most:
            raise busy("the images of requests on their way take the server's memory for them; try again")
        self.held += size


class RequestImages:
    """The images of one request, counted until `release`. count: how many parts of its messages are images

    is_read: whether its model reads any
    """

    def __init__(self, reader: ImageReader, *, is_read: bool) -> None:
        self.count = 0
        self._reader = reader
        self._is_read = is_read
        self._held = 0

    def __enter__(self) -> RequestImages:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Count them no longer."""
        self._reader.held -= self._held
        self._held = 0

    async def read(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The messages with an Image for each ImageSource; of equal URLs there is one. Raises ApiError."""
        sources = [part["image"] for message in messages for part in _images(message)]
        self.count = len(sources)
        if not sources:
            return messages
        self._reader.check(sources, is_read=self._is_read)
        several = {source.url: (source, number) for number, source in reversed([*enumerate(sources, 1)])}
        found: dict[str, Image] = {}

        async def add(source: ImageSource, number: int) -> None:
            image = await self._reader.image(source, f"image {number} of the request")
            self._reader.take(image.pixels.nbytes, self._held)
            self._held += image.pixels.nbytes
            found[source.url] = image

        try:
            async with asyncio.TaskGroup() as group:
                for each in reversed(several.values()):
                    group.create_task(add(*each))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return [_with(message, found) for message in messages]


def _images(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message["content"]
    for part in cast("list[dict[str, Any]]", content) if isinstance(content, list) else ():
        if part["type"] == "image":
            yield part


def _with(message: dict[str, Any], found: dict[str, Image]) -> dict[str, Any]:
    """A message with the images of its sources."""
    if not any(_images(message)):
        return message
    several = cast("list[dict[str, Any]]", message["content"])
    parts = [part | {"image": found[part["image"].url]} if part["type"] == "image" else part for part in several]
    return message | {"content": parts}
