"""Features of images and audio: shared by equal contents, computed in batches, in an LRU cache."""

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

MAX_BYTES = 1 << 29
"""Bound in bytes of cached images, audio and features. Evicted features are computed again for running sequences."""
_TOGETHER = 8
"""Most contents in a batch of the vision part."""


MediaInputs = dict[str, Tensor]
"""Arguments of a model's vision or audio part by name."""


class MediaContent:
    """The content of feature rows: an image, audio, or a whole prompt with images.

    text: the processor's text for it in a prompt; rows: number of rows
    source: the image or audio; None for a prompt
    tokens: a prompt's tokens, and rows of other contents; of: these contents
    inputs: arguments of the vision or audio part; None once features are computed or evicted
    features: tensors [rows, size] for the decoder's input and for some layers; None if not computed
    is_beside: True for an image that is processed as one of several
    axes: positions [axes, rows] relative to the first row, if positions have several axes; extent: positions in use
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
        """Bytes of pixels or samples, inputs and features."""
        tensors: Iterable[Tensor] = [*(self.inputs or {}).values(), *(self.features or ())]
        return sum(tensor.nbytes for tensor in tensors) + (0 if self.source is None else self.source.nbytes)


def media_key(source: Media, *, is_beside: bool) -> int:
    """Return the key of an image's or audio's content."""
    return key_of(source.digest, *(["beside"] if is_beside else []), is_audio=source.kind == "audio")


class FeatureStore:
    """The contents of a model's prompts by key, as long as they are in the cache or referenced elsewhere.

    process: creates the content of an image or audio
    compute: computes features of contents with equal shapes in one pass; together: True for more than one content
    Any thread may enter contents. Only the thread that runs the engine's steps computes features.
    """

    def __init__(
        self,
        process: Callable[[Media, bool], MediaContent],
        compute: Callable[[Sequence[MediaContent], Sequence[MediaInputs]], list[tuple[Tensor, ...]]],
        together: bool,
    ) -> None:
        self._process = process
        self._compute = compute
        self._limit = _TOGETHER if together else 1
        self._contents: WeakValueDictionary[int, MediaContent] = WeakValueDictionary()
        self._recent: OrderedDict[int, MediaContent] = OrderedDict()
        self._sizes: dict[int, int] = {}
        self._bytes = 0
        self._lock = new_lock()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle and copy without contents."""
        return type(self), (self._process, self._compute, self._limit > 1)

    @property
    def bytes(self) -> int:
        """Bytes of cached contents."""
        return self._bytes

    def of(self, source: Media, *, is_beside: bool = False) -> MediaContent:
        """Return the content of an image or audio. Raises MediaError if the model does not read it."""
        found = self._find(media_key(source, is_beside=is_beside))
        return self.enter(self._process(source, is_beside)) if found is None else found

    def enter(self, content: MediaContent) -> MediaContent:
        """Return the known content with this key, or enter the given one."""
        with self._lock:
            found = self._contents.setdefault(content.key, content)
            self._mark_used(found)
        return found

    def content(self, key: int) -> MediaContent:
        """Return the content of a key. The caller or a sequence must hold a reference to it."""
        return self._contents[key]

    def contents(self, runs: Iterable[RowRun]) -> list[MediaContent]:
        """Return the contents of rows. Raises OptionError for unknown or dropped contents, and rows beyond the last."""
        ends: dict[int, int] = {}
        for run in runs:
            ends[run.key] = max(ends.get(run.key, 0), run.row + run.length)
        found = [content for content in map(self._contents.get, ends) if content and ends[content.key] <= content.rows]
        if len(found) < len(ends):
            raise OptionError(
                "a prompt has an id below 0 that is of no image or audio, or of one that was given up meanwhile; "
                "make its ids again, of the image or audio"
            )
        return found

    def _find(self, key: int) -> MediaContent | None:
        with self._lock:
            found = self._contents.get(key)
            if found is not None:
                self._mark_used(found)
            return found

    def features_of(self, keys: Iterable[int]) -> dict[int, tuple[Tensor, ...]]:
        """Return the features of contents by key. Compute missing ones."""
        found: dict[int, tuple[Tensor, ...]] = {}
        for content in [self._contents[key] for key in dict.fromkeys(keys)]:
            features = content.features  # read once, since another thread may evict them
            found[content.key] = self._compute_features(content) if features is None else features
            with self._lock:
                self._mark_used(content)
        return found

    def forget(self) -> None:
        """Drop all features, but no contents. For a lack of memory, and where weights changed."""
        with self._lock:
            for content in list(self._contents.values()):
                content.features = None
            self._sizes = {key: content.bytes for key, content in self._recent.items()}
            self._bytes = sum(self._sizes.values())

    def _compute_features(self, first: MediaContent) -> tuple[Tensor, ...]:
        """Compute the features of a content, in a batch with other contents without features and with equal shapes."""
        batch, inputs = [first], [self._inputs(first)]
        if first.source is not None and self._limit > 1:
            with self._lock:
                waiting = [(each, each.inputs) for each in self._contents.values() if each.features is None]
            for other, data in waiting:
                if other is not first and data and _shapes(data) == _shapes(inputs[0]) and len(batch) < self._limit:
                    batch.append(other)
                    inputs.append(data)
        try:
            found = self._compute(batch, inputs)
        except Exception as error:
            if len(batch) == 1 or isinstance(error, MEMORY_ERRORS):
                raise
            batch = [first]  # another content of the batch may have failed
            found = self._compute(batch, inputs[:1])
        for content, features in zip(batch, found, strict=True):
            assert all(len(part) == content.rows for part in features), "a row for each place"
            content.features, content.inputs = features, None
        return found[0]

    def _inputs(self, content: MediaContent) -> MediaInputs:
        """Return the inputs of a content; {} for a prompt. Process evicted ones again."""
        found = content.inputs
        if found is None and content.source is not None:
            found = self._process(content.source, content.is_beside).inputs
        return found or {}

    def _mark_used(self, used: MediaContent) -> None:
        """Mark a content as used, with the lock held. Evict the least recently used ones beyond MAX_BYTES."""
        size = used.bytes
        self._bytes += size - self._sizes.get(used.key, 0)
        self._sizes[used.key], self._recent[used.key] = size, used
        self._recent.move_to_end(used.key)
        while self._bytes > MAX_BYTES and len(self._recent) > 1:
            key, content = self._recent.popitem(last=False)
            self._bytes -= self._sizes.pop(key)
            content.features = content.inputs = None


def _shapes(inputs: MediaInputs) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in inputs.items()}
