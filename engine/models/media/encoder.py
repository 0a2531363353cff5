"""The vision and audio parts of a model, and the decoder's inputs from their features."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ....errors import OptionError
from ...media import Media
from ...memory.tables import Chunk
from ..protocol import BEGIN, Model, ReadMedia
from ..stock import entry_device
from .families import MediaArchitecture
from .features import FeatureStore, MediaContent, MediaInputs, media_key
from .processing import MediaProcessor, unsupported_error
from .rows import RowRun, key_of, row_id, runs_in


class DecoderInputs(NamedTuple):
    """Inputs of a decoder in a step.

    states: [tokens, size] in place of ids, if some tokens are feature rows; else None
    positions: int64 [tokens], or [axes, tokens]
    mutual: ranges (from, to) of tokens with bidirectional attention; None for models without it
    further: further arguments of the decoder
    """

    states: Tensor | None
    positions: Tensor
    mutual: list[tuple[int, int]] | None
    further: dict[str, Any]


class MediaEncoder:
    """The image and audio parts of a multimodal model of transformers.

    Ids of feature rows are below BEGIN, and equal for equal contents.
    model: the whole model; body: its decoder; processor: its processor
    Raises OptionError for a processor that does not belong to the model.
    """

    def __init__(self, model: Any, body: Any, processor: Any, family: MediaArchitecture) -> None:
        self._body = body
        self._family = family
        self._device = entry_device(model)
        self._part: Any = model.model
        self.processing = MediaProcessor(
            processor, model.config, family.reads, arranges=self.joins_prompts, longest=family.longest
        )
        self._store = FeatureStore(self._process, self._compute, family.together)

    @property
    def marks(self) -> dict[str, str]:
        """Placeholders in a text by kind of content."""
        return self.processing.marks

    @property
    def has_template(self) -> bool:
        """True if chats can be rendered."""
        return self.processing.has_template

    @property
    def has_plain_positions(self) -> bool:
        """True if the position of a token is its index in its text."""
        return not self._family.axes and not self._family.first

    @property
    def bytes(self) -> int:
        """Bytes of cached images, audio and features."""
        return self._store.bytes

    def forget(self) -> None:
        """Drop all features. They are computed again when needed."""
        self._store.forget()

    def read(self, text: str, media: Sequence[Media], what: str) -> ReadMedia:
        """Return the ids of a text with a mark for each image or audio. what: name of the prompt in messages

        Raises OptionError unless there are as many marks as images and audio, and MediaError for unreadable ones.
        """
        expanded, contents = self.expanded(text, media, what)
        return self.placed(self.processing.encoded(expanded), contents, what)

    def expanded(self, text: str, media: Sequence[Media], what: str) -> tuple[str, tuple[MediaContent, ...]]:
        """Return a text with placeholders of rows for its marks, and the contents of the rows. Raises OptionError."""
        contents = tuple(self._contents(media))
        return self.processing.expanded(text, media, [content.text for content in contents], what), contents

    def beginning(self, text: str) -> list[int]:
        """Return the tokens that the tokenizer adds before a text."""
        return self.processing.beginning(text)

    def placed(self, ids: Sequence[int], held: Sequence[MediaContent], what: str) -> ReadMedia:
        """Return the ids of an encoded expanded text, with row ids in place of placeholders. Raises OptionError."""
        if not held:
            return ReadMedia(tuple(ids), ())
        rows: dict[int, list[int]] = {place: [] for place in self.processing.places.values()}
        for content in held:
            assert content.source is not None
            rows[self.processing.places[content.source.kind]] += (
                row_id(content.key, row) for row in range(content.rows)
            )
        for place, several in rows.items():
            if (count := sum(token == place for token in ids)) != len(several):
                raise OptionError(
                    f"{what}: {type(self.processing.processor).__name__} made {count} places for {len(several)} rows "
                    "of features; use the processor that belongs to the model"
                )
        left = {place: iter(several) for place, several in rows.items()}
        found = tuple(next(left[token]) if token in left else token for token in ids)
        return self.joined(found, held) if self.joins_prompts else ReadMedia(found, tuple(held))

    @property
    def joins_prompts(self) -> bool:
        """True if all tokens of a prompt attend to each other. Prompts without images are then not supported."""
        return self._family.mutual == "prompt"

    def joined(self, ids: tuple[int, ...], held: Sequence[MediaContent]) -> ReadMedia:
        """Return a prompt with bidirectional attention as rows of one content, which no other prompt can reuse."""
        content = MediaContent(key_of(*map(str, ids)), len(ids))
        content.tokens, content.of = ids, tuple(held)
        content = self._store.enter(content)
        return ReadMedia(tuple(row_id(content.key, number) for number in range(content.rows)), (content,))

    def held(self, ids: Sequence[int], media: Sequence[Media]) -> tuple[MediaContent, ...]:
        """Return the contents to keep while ids of a prompt with these images and audio are in use.

        Raises OptionError for ids of rows with unknown contents.
        """
        contents = self._contents(media)
        return (*contents, *self._store.contents(runs_in(ids)))

    def whole(self, pending: Sequence[int], count: int) -> int:
        """Return `count`, or a number near it that does not divide tokens with bidirectional attention.

        pending: tokens to read; count: number of them that a step is to read
        """
        if not self._family.mutual or not 0 < count < len(pending) or pending[count] >= BEGIN:
            return count
        run = next(run for run in runs_in(pending) if run.place + run.length > count)
        return count if run.place >= count else run.place or run.length

    def prepare(self, ids: Sequence[int]) -> None:
        """Compute missing features of the rows among some ids. Raises the exceptions of the vision or audio part."""
        self._store.features_of(run.key for run in _runs(ids))

    def inputs(self, chunks: Sequence[Chunk], ids: Sequence[int], places: Sequence[int]) -> DecoderInputs:
        """Return the decoder's inputs for chunks. ids, places: ids and text indices of all tokens in order"""
        positions = self._positions(chunks, places).to(self._device)
        runs = _runs(ids)
        mutual = [(run.place, run.place + run.length) for run in runs] if self._family.mutual else None
        if not runs:
            return DecoderInputs(None, positions, mutual, {})
        states, at, others = self._states(ids, runs)
        further: dict[str, Any] = {}
        if others:
            seen = torch.zeros(len(ids), dtype=torch.bool, device=self._device)
            seen[at] = True
            further = {"visual_pos_masks": seen[None], "deepstack_visual_embeds": others}
        return DecoderInputs(states, positions, mutual, further)

    def _states(self, ids: Sequence[int], runs: Sequence[RowRun]) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Return embeddings [tokens, size] of tokens and rows, indices of rows, and rows' features for some layers."""
        words = torch.tensor([max(token, 0) for token in ids], device=self._device)
        states: Tensor = self._body.get_input_embeddings()(words).clone()
        if not runs:  # a prompt for testing the model
            return states, states.new_empty(0), []
        found = self._store.features_of(run.key for run in runs)
        parts = [[part[run.row : run.row + run.length] for part in found[run.key]] for run in runs]
        first, *others = (torch.cat(each).to(states) for each in zip(*parts, strict=True))
        at = torch.tensor([run.place + step for run in runs for step in range(run.length)], device=self._device)
        states[at] = first
        return states, at, others

    def _positions(self, chunks: Sequence[Chunk], places: Sequence[int]) -> Tensor:
        """Return positions [tokens] or [3, tokens] from the tokens' indices in their texts."""
        plain = torch.tensor(places) + self._family.first
        if not self._family.axes:
            return plain
        found = plain.expand(3, -1).clone()
        at = 0
        for table, tokens in chunks:
            shift, end = self._shift(table), at + len(tokens)
            found[:, at:end] += shift
            for run in _runs(tokens):
                content = self._store.content(run.key)
                assert content.axes is not None
                place = at + run.place
                rows = content.axes[:, run.row : run.row + run.length]
                begin = places[place] + self._family.first + shift - run.row
                found[:, place : place + run.length] = rows + begin
                if run.row + run.length == content.rows:
                    change = content.extent - content.rows
                    found[:, place + run.length : end] += change
                    shift += change
            at = end
        return found

    def _shift(self, table: Any) -> int:
        """Return the difference of position and index after a table's tokens. `table.shifted` caches it."""
        seen, shift = table.shifted
        if seen < len(table.tokens):
            for run in runs_in(table.tokens[seen:]):
                content = self._store.content(run.key)
                if run.row + run.length == content.rows:
                    shift += content.extent - content.rows
            table.shifted = len(table.tokens), shift
        return shift

    def _contents(self, media: Sequence[Media]) -> list[MediaContent]:
        """Return the contents of a prompt's images and audio. Raises MediaError."""
        is_beside = self._family.alone and len(media) > 1
        return [self._store.of(source, is_beside=is_beside) for source in media]

    def _process(self, source: Media, is_beside: bool) -> MediaContent:
        """Process an image or audio. Raises MediaError if it is too small for the model."""
        text, rows, inputs = self.processing.of(source, is_beside=is_beside)
        if rows < self._family.least:
            small, larger = ("too short", "give a longer one") if source.kind == "audio" else (
                "too small", "make it larger"
            )  # fmt: skip
            raise unsupported_error(
                source,
                f"is {small}: it is {rows} of the model's tokens, and {self._family.least} are the fewest that the "
                f"model reads; {larger}",
            )
        content = MediaContent(media_key(source, is_beside=is_beside), rows, source)
        content.text, content.inputs, content.is_beside = text, inputs, is_beside
        if self._family.axes:
            ids = torch.full((1, rows), self.processing.places["image"])
            grid = inputs["image_grid_thw"]
            axes, _ = self._part.get_rope_index(ids, mm_token_type_ids=torch.ones_like(ids), image_grid_thw=grid)
            content.axes, content.extent = axes[:, 0], int(axes.max()) + 1
        return content

    def _compute(self, contents: Sequence[MediaContent], several: Sequence[MediaInputs]) -> list[tuple[Tensor, ...]]:
        """Return the features of contents: of one prompt, or of images or audio with inputs of equal shapes."""
        source = contents[0].source
        if source is None:
            return [self._of_prompt(contents[0])]
        joined: dict[str, Tensor] = {}
        for name, value in several[0].items():
            inputs = torch.cat([each[name] for each in several], self._family.stacked if value.ndim > 3 else 0)
            joined[name] = inputs.to(self._device, self._body.dtype if inputs.is_floating_point() else None)
        counts = [each.rows for each in contents]
        if source.kind == "audio" and self._family.hear is not None:
            parts = [self._family.hear(self._part, **joined)]
        else:
            read = self._part.get_audio_features if source.kind == "audio" else self._part.get_image_features
            found = read(**joined, return_dict=True)
            parts = [_rows(found.pooler_output), *map(_rows, getattr(found, "deepstack_features", ()))]
        return list(zip(*(torch.split(part, counts) for part in parts), strict=True))

    def _of_prompt(self, content: MediaContent) -> tuple[Tensor, ...]:
        """Return the rows of a prompt: embeddings of its tokens, and rows of its images."""
        return (self._states(content.tokens, list(runs_in(content.tokens)))[0],)


def media_of(model: Model) -> MediaEncoder | None:
    """Return the image and audio parts of a model; None for a text model."""
    return getattr(model, "media", None)


def kinds_read(model: Model) -> tuple[str, ...]:
    """Return the kinds of content besides text that a model reads: "image", "audio"."""
    media = media_of(model)
    return () if media is None else tuple(media.marks)


def _runs(tokens: Sequence[int]) -> list[RowRun]:
    """Return the rows among tokens, with a fast path for none."""
    return list(runs_in(tokens)) if min(tokens) < BEGIN else []


def _rows(features: Any) -> Tensor:
    """Return features, one tensor or several, as [rows, size]."""
    parts: Iterable[Tensor] = [features] if isinstance(features, Tensor) else features
    return torch.cat([part.reshape(-1, part.shape[-1]) for part in parts])
