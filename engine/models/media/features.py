"""Features of images and audio: computed once for equal ones, those of several together, and kept within a bound."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch import Tensor

from ....errors import OptionError
from ....guides.locks import new_lock
from ...media import Media
from ..protocol import MEMORY_ERRORS
from .rows import RowRun, key_of

MOST_BYTES = 1 << 29
"""Bytes of images, audio and features that are kept; what running texts need is computed again where it was let go."""
_TOGETHER = 8
"""Contents that are read at once where one is needed and others wait."""


MediaInputs = dict[str, Tensor]
"""Arguments of the part of a model that reads images, or audio, by their names."""


class MediaContent:
    """Content of rows of features: an image, audio, or a whole prompt with images in it.

    text: what stands for it in a prompt, before its rows are numbered; rows: how many there are
    source: None for a prompt, whose `tokens` are rows of other contents and tokens
    of: the contents that a prompt holds
    features: [rows, size] for the input of the decoder and for some of its layers; None where they are not computed
    is_beside: whether an image is read as beside others
    axes: positions [axes, rows] from that of the first row on, where positions have several; extent: how many positions
        the rows take
    """

    def __init__(self, key: int, rows: int, source: Media | None = None) -> None:
        self.key = key
        self.rows = rows
        self.source = source
        self.text = ""
        self.tokens: tuple[int, ...] = ()
        self.of: tuple[MediaContent, ...] = ()
        self.inputs: MediaInputs | None = None
        self.features: tuple[Tensor, ...] | None = None
        self.axes: Tensor | None = None
        self.extent = rows
        self.is_beside = False

    @property
    def bytes(self) -> int:
        """Bytes of its pixels or samples, inputs and features."""
        tensors: Iterable[Tensor] = [*(self.inputs or {}).values(), *(self.features or ())]
        return sum(tensor.nbytes for tensor in tensors) + (0 if self.source is None else self.source.nbytes)


def media_key(source: Media, *, is_beside: bool) -> int:
    """The key of the content of an image or audio."""
    return key_of(source.digest, *(["beside"] if is_beside else []), is_audio=source.kind == "audio")


class FeatureStore:
    """The contents of a model's prompts: found by their keys for as long as somebody has them, or they are kept.

    process: makes the content of an image or audio; compute: the features of contents that are alike, in one pass
    Contents are entered from any thread; features are computed by the one that takes the engine's steps.
    """

    def __init__(
        self,
        process: Callable[[Media, bool], MediaContent],
        compute: Callable[[Sequence[MediaContent], Sequence[MediaInputs]], list[tuple[Tensor, ...]]],
        together: bool,
    ) -> None:
        self._process = process
        self._compute = compute
        self._most = _TOGETHER if together else 1
        self._known: WeakValueDictionary[int, MediaContent] = WeakValueDictionary()
        self._kept: OrderedDict[int, MediaContent] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        self._lock = new_lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, with a model that is copied, knows nothing yet."""
        return type(self), (self._process, self._compute, self._most > 1)

    @property
    def bytes(self) -> int:
        """Bytes of what is kept."""
        return self._bytes

    def of(self, source: Media, *, is_beside: bool = False) -> MediaContent:
        """The content of an image or audio. Raises MediaError for one that the model does not read."""
        found = self._found(media_key(source, is_beside=is_beside))
        return self.enter(self._process(source, is_beside)) if found is None else found

    def enter(self, made: MediaContent) -> MediaContent:
        """The content of this key, which is this one if there is none yet."""
        with self._lock:
            found = self._known.setdefault(made.key, made)
            self._keep(found)
        return found

    def content(self, key: int) -> MediaContent:
        """The content of a key, which somebody has."""
        return self._known[key]

    def contents(self, runs: Iterable[RowRun]) -> list[MediaContent]:
        """The contents of some rows. Raises OptionError for rows of one that nobody has, or no more, or has not got."""
        ends: dict[int, int] = {}
        for run in runs:
            ends[run.key] = max(ends.get(run.key, 0), run.row + run.length)
        found = [content for content in map(self._known.get, ends) if content and ends[content.key] <= content.rows]
        if len(found) < len(ends):
            raise OptionError(
                "a prompt has an id below 0 that is of no image or audio, or of one that was given up meanwhile; "
                "make its ids again, of the image or audio"
            )
        return found

    def _found(self, key: int) -> MediaContent | None:
        with self._lock:
            found = self._known.get(key)
            if found is not None:
                self._keep(found)
            return found

    def features_of(self, keys: Iterable[int]) -> dict[int, tuple[Tensor, ...]]:
        """The features of some contents."""
        found: dict[int, tuple[Tensor, ...]] = {}
        for content in [self._known[key] for key in dict.fromkeys(keys)]:
            features = content.features  # which another thread may let go at any time
            found[content.key] = self._filled(content) if features is None else features
            with self._lock:
                self._keep(content)
        return found

    def forget(self) -> None:
        """Let features go: memory has run out, or the model's weights are others now."""
        with self._lock:
            contents = list(self._known.values())
            self._kept.clear()
            self._sizes.clear()
            self._bytes = 0
        for content in contents:
            content.features = None

    def _filled(self, first: MediaContent) -> tuple[Tensor, ...]:
        """The features of a content, computed with those of others that wait for theirs and are alike."""
        alike, inputs = [first], [self._inputs(first)]
        if first.source is not None and self._most > 1:
            with self._lock:
                waiting = [(each, each.inputs) for each in self._known.values() if each.features is None]
            for other, given in waiting:
                if other is not first and given and _shapes(given) == _shapes(inputs[0]) and len(alike) < self._most:
                    alike.append(other)
                    inputs.append(given)
        try:
            found = self._compute(alike, inputs)
        except Exception as error:
            if len(alike) == 1 or isinstance(error, MEMORY_ERRORS):
                raise
            alike = [first]  # which of them cannot be read is found out one by one
            found = self._compute(alike, inputs[:1])
        for content, features in zip(alike, found, strict=True):
            assert all(len(part) == content.rows for part in features), "a row for each place"
            content.features, content.inputs = features, None
        return found[0]

    def _inputs(self, content: MediaContent) -> MediaInputs:
        """Inputs of the part that reads a content, made again where they were let go; none for a prompt."""
        found = content.inputs
        if found is None and content.source is not None:
            found = self._process(content.source, content.is_beside).inputs
        return found or {}

    def _keep(self, used: MediaContent) -> None:
        """Keep a content that is used, and let those go that were used the longest ago, until the others fit.

        The lock is held.
        """
        size = used.bytes
        self._bytes += size - self._sizes.get(used.key, 0)
        self._sizes[used.key], self._kept[used.key] = size, used
        self._kept.move_to_end(used.key)
        while self._bytes > MOST_BYTES and len(self._kept) > 1:
            key, content = self._kept.popitem(last=False)
            self._bytes -= self._sizes.pop(key)
            content.features = content.inputs = None


def _shapes(inputs: MediaInputs) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in inputs.items()}
