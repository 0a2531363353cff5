"""Images, and prompts that hold some, read by a processor of transformers."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from torch import Tensor

from ....checks import brief
from ....errors import OptionError
from ...media.image import Image

_OF_TEXT = frozenset(["input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels"])
_REPLACED = "text_replacement_offsets"
_AS_PARTS = (
    "{%- set as_parts = namespace(messages=[]) -%}{%- for message in messages -%}"
    "{%- if message['content'] is string -%}{%- set as_parts.messages = as_parts.messages + "
    "[dict(message, content=[{'type': 'text', 'text': message['content']}])] -%}"
    "{%- else -%}{%- set as_parts.messages = as_parts.messages + [message] -%}{%- endif -%}{%- endfor -%}"
    "{%- set messages = as_parts.messages -%}"
)
"""Before a chat template that reads the parts of contents and no texts."""
_AS_TEXTS = (
    "{%- set as_texts = namespace(messages=[], text='') -%}{%- for message in messages -%}"
    "{%- if message['content'] is string or not message['content'] -%}"
    "{%- set as_texts.messages = as_texts.messages + [message] -%}{%- else -%}{%- set as_texts.text = '' -%}"
    "{%- for part in message['content'] -%}"
    "{%- set as_texts.text = as_texts.text + (MARK if part['type'] == 'image' else part['text']) -%}{%- endfor -%}"
    "{%- set as_texts.messages = as_texts.messages + [dict(message, content=as_texts.text)] -%}"
    "{%- endif -%}{%- endfor -%}{%- set messages = as_texts.messages -%}"
)
"""Before one that reads texts and no parts; MARK is the placeholder of an image."""
_PROBE = "vwxyz"


class Processed(NamedTuple):
    """An image as a processor has it.

    text: what stands for it in a prompt; rows: how many places of features are in that
    inputs: what the vision part reads
    """

    text: str
    rows: int
    inputs: dict[str, Tensor]


class Processing:
    """A processor, whose tokenizer is a copy of its own that renders chats by the processor's template.

    place: the token in whose places the model has rows of features
    arranges: whether the processor rearranges texts, around their images
    """

    def __init__(self, processor: Any, place: int, *, arranges: bool = False) -> None:
        self.processor = processor
        self.mark: str = processor.image_token
        self.tokenizer: Any = copy.copy(processor.tokenizer)
        template: Any = processor.chat_template or getattr(self.tokenizer, "chat_template", None)
        if isinstance(template, dict):
            template = template.get("default")  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        if template is not None:
            self.tokenizer.chat_template = template
            if not self._writes([{"type": "text", "text": _PROBE}, {"type": "image"}], _PROBE, self.mark):
                self.tokenizer.chat_template = _AS_TEXTS.replace("MARK", json.dumps(self.mark)) + template
            elif not self._writes(_PROBE, _PROBE):
                self.tokenizer.chat_template = _AS_PARTS + template
        self.place = place
        self._arranges = arranges

    def _writes(self, content: Any, *expected: str) -> bool:
        """True if the chat template writes what is expected of a content."""
        try:
            found = self.tokenizer.apply_chat_template([{"role": "user", "content": content}], tokenize=False)
        except Exception:  # a template is a program of somebody else's
            return False
        return all(text in found for text in expected)

    @property
    def has_template(self) -> bool:
        """True if chats can be rendered."""
        return getattr(self.tokenizer, "chat_template", None) is not None

    def of_image(self, image: Image, *, is_beside: bool = False) -> Processed:
        """An image by itself, or as it is beside others. Raises OptionError for one that the processor refuses."""
        picture, count = image.to_pil(), 2 if is_beside else 1
        images = [[picture, picture]] if is_beside else [picture]
        try:
            found = self.processor(
                images=images, text=[self.mark * count], images_kwargs={"return_tensors": "pt"},
                **{f"return_{_REPLACED}": True},
            )  # fmt: skip
        except Exception as error:  # processors raise whatever they come upon
            said = " ".join(str(error).split())
            raise OptionError(
                f"an image of {image.width} x {image.height} pixels is refused by {type(self.processor).__name__} "
                f"({type(error).__name__}: {said:.200}); make it larger, or less narrow"
            ) from error
        inputs = {name: value for name, value in found.items() if name not in _OF_TEXT and isinstance(value, Tensor)}
        if is_beside:
            inputs = {name: value[: len(value) // 2] if len(value) == 2 else value for name, value in inputs.items()}
        rows = list(found["input_ids"][0]).count(self.place) // count
        return Processed(found[_REPLACED][0][0]["replacement"], rows, inputs)

    def expanded(self, text: str, images: Sequence[Image], texts: Sequence[str], what: str) -> str:
        """A text in which `texts` stand for the marks of images. Raises OptionError for too many marks, or too few."""
        count = text.count(self.mark)
        if count != len(images):
            raise OptionError(
                f"{what} has {len(images)} image{'s' if len(images) != 1 else ''}, and its text has {count} times "
                f"{self.mark!r}, which stands for one; leave it out of texts, and see that the chat template writes it"
            )
        if not images:
            return text
        asked = [text]
        if self._arranges:
            pictures = [image.to_pil() for image in images]
            _, asked, *_ = self.processor.prepare_inputs_layout(images=pictures, text=asked)
        return self.processor.get_text_with_replacements(asked, images_replacements=list(texts))[0][0]

    def encoded(self, text: str) -> list[int]:
        """The tokens of a text; without what the tokenizer puts before texts (BOS), where it begins with that."""
        more = {"add_special_tokens": False} if self._has_begin(text) else {}
        return list(self.tokenizer(text, **{**self._options, **more})["input_ids"])

    def beginning(self, text: str) -> list[int]:
        """Tokens that the tokenizer puts before a text."""
        return [] if self._has_begin(text) else list(self.tokenizer("", **self._options)["input_ids"])

    def _has_begin(self, text: str) -> bool:
        begin: str | None = getattr(self.tokenizer, "bos_token", None)
        return begin is not None and text.startswith(begin)

    @property
    def _options(self) -> dict[str, Any]:
        """Options that the processor gives its tokenizer."""
        given: Any = getattr(self.processor, "text_kwargs", None)
        wanted = given.get("add_special_tokens") if isinstance(given, dict) else None  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
        return {} if wanted is None else {"add_special_tokens": wanted}

    def __repr__(self) -> str:
        return f"<Processing by {brief(type(self.processor).__name__)}>"
