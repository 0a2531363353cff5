"""Processing of images and audio, and of prompts with some, by processors of transformers."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor

from ....checks import brief
from ....errors import MediaError, OptionError
from ...media import Media
from ...media.audio import Audio

_OF_TEXT = frozenset(["input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels"])
_REPLACED = "text_replacement_offsets"
_AS_PARTS = (
    "{%- set as_parts = namespace(messages=[]) -%}{%- for message in messages -%}"
    "{%- if message['content'] is string -%}{%- set as_parts.messages = as_parts.messages + "
    "[dict(message, content=[{'type': 'text', 'text': message['content']}])] -%}"
    "{%- else -%}{%- set as_parts.messages = as_parts.messages + [message] -%}{%- endif -%}{%- endfor -%}"
    "{%- set messages = as_parts.messages -%}"
)
"""Prefix for chat templates that require contents to be lists of parts."""
_AS_TEXTS = (
    "{%- set as_texts = namespace(messages=[], text='') -%}{%- for message in messages -%}"
    "{%- if message['content'] is string or not message['content'] -%}"
    "{%- set as_texts.messages = as_texts.messages + [message] -%}{%- else -%}{%- set as_texts.text = '' -%}"
    "{%- for part in message['content'] -%}"
    "{%- set as_texts.text = as_texts.text + (MARKS[part['type']] if part['type'] in MARKS else part['text']) -%}"
    "{%- endfor -%}"
    "{%- set as_texts.messages = as_texts.messages + [dict(message, content=as_texts.text)] -%}"
    "{%- endif -%}{%- endfor -%}{%- set messages = as_texts.messages -%}"
)
"""Prefix for chat templates that require contents to be texts. MARKS has the placeholders by part type."""
_PROBE = "vwxyz"
_TOKENS = {"image": ("image_token_id", "image_token_index"), "audio": ("audio_token_id", "audio_token_index")}
"""Configuration names of the token that stands for rows, by kind of content."""
_OTHER = {"image": "make it larger, or less narrow", "audio": "give a longer one"}
_NOUNS = {"image": "images", "audio": "audio"}


class ProcessedMedia(NamedTuple):
    """A processed image or audio.

    text: its representation in a prompt; rows: number of feature places in it
    inputs: inputs of the model's part
    """

    text: str
    rows: int
    inputs: dict[str, Tensor]


def unsupported_error(source: Media, why: str) -> MediaError:
    """Return the error of an unsupported image or audio. why: end of the message"""
    if isinstance(source, Audio):
        named = f"audio of {source.seconds:.2f} seconds"
    else:
        named = f"an image of {source.width} x {source.height} pixels"
    return MediaError(f"{named} {why}", source.kind, source.digest)


def is_processor(tokenizer: Any) -> bool:
    """Test whether a tokenizer is a processor of images or audio, which contains a tokenizer."""
    return hasattr(tokenizer, "image_processor") or hasattr(tokenizer, "feature_extractor")


class MediaProcessor:
    """A processor, with a copy of its tokenizer that renders chats by the processor's template.

    marks: placeholders in a text by kind of content; places: token ids that rows replace, by kind
    arranges: True if the processor rearranges texts around their images
    longest: returns the most seconds of audio that the processor does not truncate
    Raises OptionError for a processor that does not belong to the model.
    """

    def __init__(
        self,
        processor: Any,
        config: Any,
        kinds: Sequence[str],
        *,
        arranges: bool = False,
        longest: Callable[[Any], float] | None = None,
    ) -> None:
        self.processor = processor
        if not hasattr(processor, "get_text_with_replacements"):
            raise OptionError("images and audio need transformers 5.24 or newer: pip install -U transformers")
        self.marks: dict[str, str] = {}
        self.places: dict[str, int] = {}
        for kind in kinds:
            mark = getattr(processor, f"{kind}_token", None)
            tokens = (getattr(config, name, None) for name in _TOKENS[kind])
            place = next((each for each in tokens if each is not None), None)
            if place is None or mark is None:
                raise OptionError(
                    f"{type(processor).__name__} has no token for {_NOUNS[kind]}; give the model's own processor"
                )
            self.marks[kind], self.places[kind] = mark, place
        self.tokenizer: Any = copy.copy(processor.tokenizer)
        template: Any = processor.chat_template or getattr(self.tokenizer, "chat_template", None)
        if isinstance(template, dict):
            template = template.get("default")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        if template is not None:
            self.tokenizer.chat_template = template
            parts = [{"type": "text", "text": _PROBE}, *({"type": kind} for kind in kinds)]
            if not self._renders(parts, _PROBE, *self.marks.values()):
                self.tokenizer.chat_template = _AS_TEXTS.replace("MARKS", json.dumps(self.marks)) + template
            elif not self._renders(_PROBE, _PROBE):
                self.tokenizer.chat_template = _AS_PARTS + template
        self._arranges = arranges
        self._longest = None if longest is None else longest(processor)

    def _renders(self, content: Any, *expected: str) -> bool:
        """Test whether the chat template writes the expected texts of a content."""
        try:
            found = self.tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        except Exception:  # a template is foreign code
            return False
        return all(text in found for text in expected)

    @property
    def has_template(self) -> bool:
        """True if there is a chat template."""
        return getattr(self.tokenizer, "chat_template", None) is not None

    def of(self, source: Media, *, is_beside: bool = False) -> ProcessedMedia:
        """Process an image or audio, alone or as one of several. Raises MediaError if the processor refuses it."""
        source_data, count = self._data_of(source), 2 if is_beside else 1
        several = [[source_data, source_data]] if is_beside else [source_data]
        kind, options = source.kind, {"return_tensors": "pt"}
        named = {"images": several, "images_kwargs": options} if kind == "image" else {
            "audio": several, "audio_kwargs": {**options, "sampling_rate": self._rate}
        }  # fmt: skip
        try:
            found = self.processor(text=[self.marks[kind] * count], **{**named, f"return_{_REPLACED}": True})
        except Exception as error:  # processors raise various exceptions
            cause = " ".join(str(error).split())
            raise unsupported_error(
                source,
                f"is refused by {type(self.processor).__name__} ({type(error).__name__}: {cause:.200}); {_OTHER[kind]}",
            ) from error
        inputs = {name: value for name, value in found.items() if name not in _OF_TEXT and isinstance(value, Tensor)}
        if is_beside:
            inputs = {name: value[: len(value) // 2] if len(value) == 2 else value for name, value in inputs.items()}
        rows = list(found["input_ids"][0]).count(self.places[kind]) // count
        return ProcessedMedia(found[_REPLACED][0][0]["replacement"], rows, inputs)

    @property
    def _rate(self) -> int:
        """Sample rate in Hz of audio that the model reads."""
        return self.processor.feature_extractor.sampling_rate

    def _data_of(self, source: Media) -> Any:
        """Return an image or audio for the processor. Raises MediaError for audio that it would truncate."""
        if not isinstance(source, Audio):
            return source.to_pil()
        if self._longest is not None and source.seconds > self._longest:
            raise unsupported_error(
                source, f"is longer than the {self._longest:g} seconds that the model reads; cut it"
            )
        return source.at(self._rate)

    def expanded(self, text: str, media: Sequence[Media], texts: Sequence[str], what: str) -> str:
        """Replace the marks of images and audio in a text by `texts`.

        Raises OptionError if their number differs.
        """
        replacements: dict[str, list[str]] = {}
        for kind, mark in self.marks.items():
            replacements[kind] = [text for text, source in zip(texts, media, strict=True) if source.kind == kind]
            wanted, count = len(replacements[kind]), text.count(mark)
            if count != wanted:
                noun = _NOUNS[kind] if wanted != 1 else kind
                raise OptionError(
                    f"{what} has {wanted} {noun}, and its text has {count} times {mark!r}, which stands for one; leave "
                    "it out of texts, and see that the chat template writes it"
                )
        if not media:
            return text
        layout = [text]
        if self._arranges:
            pictures = [self._data_of(source) for source in media]
            _, layout, *_ = self.processor.prepare_inputs_layout(images=pictures, text=layout)
        return self.processor.get_text_with_replacements(
            layout, images_replacements=replacements.get("image", []),
            audio_replacements=replacements.get("audio", []),
        )[0][0]  # fmt: skip

    def encoded(self, text: str) -> list[int]:
        """Return the tokens of a text, without a second BOS."""
        more = {"add_special_tokens": False} if self._has_begin(text) else {}
        return list(self.tokenizer(text, **{**self._options, **more})["input_ids"])

    def beginning(self, text: str) -> list[int]:
        """Return the tokens that the tokenizer adds before a text."""
        return [] if self._has_begin(text) else list(self.tokenizer("", **self._options)["input_ids"])

    def _has_begin(self, text: str) -> bool:
        begin: str | None = getattr(self.tokenizer, "bos_token", None)
        return begin is not None and text.startswith(begin)

    @property
    def _options(self) -> dict[str, Any]:
        """The processor's options for its tokenizer."""
        options: Any = getattr(self.processor, "text_kwargs", None)
        wanted = options.get("add_special_tokens") if isinstance(options, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        return {} if wanted is None else {"add_special_tokens": wanted}

    def __repr__(self) -> str:
        return f"<Processing by {brief(type(self.processor).__name__)}>"
