"""Input types of prompts: a text, token ids or a chat, and lists of these."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ...checks import brief, check_any_text, check_int, check_text, items_of, shown
from ...errors import OptionError
from ..media import KINDS, Audio, Image, Media
from ..media.audio import SUFFIXES, is_audio
from ..models.protocol import BEGIN

Message = Mapping[str, Any]
"""A message for templates. Pydantic models, as clients of chat APIs return them, are converted."""
if TYPE_CHECKING:
    import PIL.Image

    GivenMedia = Image | PIL.Image.Image | Audio | Path | bytes
else:
    GivenMedia = Any
Prompt = str | Sequence[int] | Sequence[Message]
"""A text, token ids, or a chat: messages such as {"role": "user", "content": "Hello"}."""
PromptParts = Sequence[str | GivenMedia]
"""Texts, images and audio, at least one of the latter two: the parts of a user's message."""
AnyPrompts = Prompt | PromptParts | Sequence[Prompt | PromptParts]
"""The prompts of a call: one or several."""

_KEPT = "leave it out; only the engine sets it"
NO_OPTIONS = {
    "tools": "give the option tools",
    "documents": "give the option documents",
    "messages": "the prompt is what has messages",
    "conversation": "the prompt is what has messages",
    "chat_template": "load the model with another tokenizer.chat_template",
    "self": _KEPT,
    "tokenize": _KEPT,
    "return_dict": _KEPT,
    "return_tensors": _KEPT,
    "padding": _KEPT,
    "truncation": _KEPT,
    "max_length": _KEPT,
    "tokenizer_kwargs": _KEPT,
    "return_assistant_tokens_mask": _KEPT,
}
"""Arguments of `apply_chat_template` that are given elsewhere, or not at all."""
ROLES = ("user", "assistant", "system", "developer", "tool", "function")
"""Usual roles, for spelling suggestions. Templates may know more."""
CHAT = '[{"role": "user", "content": "..."}]'


class Prompts(NamedTuple):
    """The prompts of a call as `check_prompt` returns them. is_single: True if the caller gave one alone"""

    items: list[Prompt]
    is_single: bool


def prompts_of(value: Any) -> Prompts:
    """Tell one prompt from a list of several, by the items.

    Mappings are messages of one chat, integers are the token ids of one text, and media with or without texts are one
    message. A list of texts, chats, token id lists or media lists is several prompts.
    Raises OptionError, ImageError, AudioError.
    """
    if isinstance(value, str):
        return Prompts([check_text(value, "the prompt")], True)
    several = None if _is_message(value) else items_of(value)
    if several is None:
        return Prompts([check_prompt(value, "the prompt")], True)
    if several and (_is_message(several[0]) or _is_id(several[0]) or _has_media(several)):
        return Prompts([check_prompt(several, "the prompt")], True)
    return Prompts([check_prompt(each, f"prompt {number}") for number, each in enumerate(several)], False)


def check_prompt(value: Any, what: str) -> Prompt:
    """Check one prompt. Return a str, a tuple of ids, or a list of dicts. what: its name at the start of error
    messages"""
    if isinstance(value, str):
        return check_text(value, what)
    if _is_message(value):
        raise OptionError(f"{what} is one message; a chat is a list of messages, such as {CHAT}")
    items = items_of(value)
    if items is None:
        return check_any_text(value, what, "a text, token ids, the messages of a chat, or a list of such prompts")
    if not items:
        raise OptionError(f"{what} is an empty list, neither token ids nor a chat; an empty text is ''")
    if _is_message(items[0]):
        return [_message(each, f"{what}, message {number}") for number, each in enumerate(items)]
    if _has_media(items):
        parts = [part_of(each) for each in items]
        return [_message({"role": "user", "content": parts}, what)]
    strange = next((number for number, each in enumerate(items) if not _is_id(each)), None)
    if strange is not None:
        raise OptionError(
            f"{what} must be a text, token ids or the messages of a chat, not a list with {shown(items[strange])} as "
            f"item {strange}"
        )
    return tuple(
        index(each) if _is_row(each) else check_int(each, f"{what}, token {number}", 0)
        for number, each in enumerate(items)
    )


def is_chat(prompt: Prompt) -> bool:
    """Test whether a prompt of `check_prompt` is a chat."""
    return not isinstance(prompt, str) and isinstance(prompt[0], Mapping)


def part_of(content: Any) -> dict[str, Any]:
    """Return the message part of a text, image or audio. The type of files follows from suffix or content."""
    is_heard = isinstance(content, Audio) or (
        content.suffix.lower() in SUFFIXES
        if isinstance(content, Path)
        else isinstance(content, bytes) and is_audio(content)
    )
    kind = "text" if isinstance(content, str) else "audio" if is_heard else "image"
    return {"type": kind, kind: content}


def media_in(prompt: Prompt) -> list[Media]:
    """Return the images and audio of a prompt of `check_prompt`, in order."""
    chat = cast("Sequence[Message]", prompt) if is_chat(prompt) else ()
    parts = [part for message in chat for part in items_of(message.get("content")) or ()]
    return [part[part["type"]] for part in parts if part["type"] in KINDS]


def marked_for(chat: Any) -> list[dict[str, Any]]:
    """Return messages for templates, in which image and audio parts have only their type."""
    return [
        dict(message) if isinstance(message.get("content"), str | None) else {**message, "content": [
            {"type": part["type"]} if part["type"] in KINDS else part for part in message["content"]
        ]}
        for message in chat
    ]  # fmt: skip


def extras_of(values: Any, what: str) -> tuple[Any, ...]:
    """Check the tools or documents of a chat. what: name of the option. Raises OptionError."""
    several = () if values is None else items_of(values)
    meaning = "a list of dicts" + (" or functions" if what == "tools" else "")
    if several is None:
        raise OptionError(f"{what}={brief(values)}: {meaning}")
    for number, each in enumerate(several):
        if not isinstance(each, Mapping) and not (what == "tools" and callable(each)):
            raise OptionError(f"{what}: item {number} is {shown(each)}; {what} is {meaning}")
        _check_texts(each, f"{what}, item {number}")
    return tuple(_plain(each) for each in several)


def template_options_of(value: Any) -> dict[str, Any]:
    """Check options of a template by name. Raises OptionError."""
    what = "chat_template_kwargs"
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise OptionError(f"{what}={brief(value)}: a dict such as {{'enable_thinking': False}}")
    options = cast("Mapping[Any, Any]", value)
    for name in options:
        check_text(name, f"{what}: a name")
        if name in NO_OPTIONS:
            raise OptionError(f"{what}: {name!r} cannot be an option of a template; {NO_OPTIONS[name]}")
    _check_texts(options, what)
    return {name: _plain(each) for name, each in options.items()}


def _message(value: Any, what: str) -> dict[str, Any]:
    """Return a message as a template takes it. Raises OptionError."""
    if not _is_message(value):
        raise OptionError(f"{what} is {shown(value)}; a chat is a list of messages, such as {CHAT}")
    message = cast("dict[str, Any]", _plain(value))
    for key in message:
        check_text(key, f"{what}: a key")
    if "role" not in message:
        raise OptionError(f'{what} has no role, such as "user": {brief(message)}')
    role = check_text(message["role"], f"{what}, the role")
    matches = [] if role in ROLES else get_close_matches(role.casefold(), ROLES, 1, 0.75)
    if matches:
        raise OptionError(f"{what} has the role {role!r}; did you mean {matches[0]!r}?")
    content = message.get("content")
    if content is None:
        if not any(value is not None for key, value in message.items() if key not in ("role", "content")):
            raise OptionError(f"{what} has no content: {brief(message)}")
    elif not isinstance(content, str):
        message["content"] = _parts(content, what)
    _check_texts(message, what)
    return message


def _parts(content: Any, what: str) -> list[Any]:
    """Read the content of a message that is a list of texts, images and audio.

    Parts are {"type": "text", "text": ...}, {"type": "image", "image": ...} and {"type": "audio", "audio": ...}. Raises
    OptionError, ImageError, AudioError.
    """
    parts = items_of(content)
    if parts is None:
        raise OptionError(f"{what}: the content must be a text, not {shown(content)}")
    found: list[Any] = []
    for number, part in enumerate(parts):
        place, fields = f"{what}, part {number} of the content", cast("Mapping[str, Any]", part)
        kind = fields.get("type") if isinstance(part, Mapping) else None
        if isinstance(kind, str) and kind in KINDS and kind in fields:
            found.append({**fields, kind: KINDS[kind].of(fields[kind], f"{place}: the {kind}")})
            continue
        if kind != "text":
            raise OptionError(
                f'{place} is {shown(part)}; models read texts here, {{"type": "text", "text": "..."}}, images, '
                '{"type": "image", "image": ...}, and audio, {"type": "audio", "audio": ...}'
            )
        check_text(fields.get("text"), f"{place}: the text")
        found.append(part)
    return found


def _is_row(value: Any) -> bool:
    """Test for the id of an image or audio row, as in the tokens of prompts that were read before."""
    return isinstance(value, int) and value < BEGIN


def _has_media(items: Sequence[Any]) -> bool:
    """Test whether a list contains an image or audio. PIL is not imported for this."""
    return any(
        isinstance(each, (Image, Audio, Path, bytes))
        or any(kind.__module__.partition(".")[0] == "PIL" for kind in type(each).__mro__)
        for each in items
    )


def _check_texts(value: Any, what: str) -> None:
    """Check a nested value. Raise OptionError for a text that UTF-8 cannot encode, for a cycle, and for too many
    values.

    Shared values count at each place.
    """
    sizes: dict[int, tuple[Any, int]] = {}
    left = [(value, False)]
    while left:
        each, is_seen = left.pop()
        if isinstance(each, str):
            check_text(each, what)
        held = held_by(each)
        if held is None:
            continue
        if is_seen:
            size = 1 + sum(sizes[id(one)][1] if id(one) in sizes else 1 for one in held)
            if size > _MAX_VALUES:
                raise OptionError(
                    f"{what} has more than {_MAX_VALUES:,} values, each counted wherever it occurs; give fewer"
                )
            sizes[id(each)] = each, size
        elif id(each) not in sizes:
            sizes[id(each)] = each, _OPEN
            left.append((each, True))
            left += [(one, False) for one in held]
        elif sizes[id(each)][1] == _OPEN:
            raise OptionError(f"{what} contains itself; give a finite value")


def held_by(value: Any) -> list[Any] | None:
    """Return the keys and values of a mapping, or the items of a list; None for other values."""
    if isinstance(value, Mapping):
        several = cast("Mapping[Any, Any]", value)
        return [*several.keys(), *several.values()]
    return [*cast("list[Any]", value)] if isinstance(value, (list, tuple)) else None


_MAX_VALUES = 1 << 20
_OPEN = 0


def _is_message(value: Any) -> bool:
    """Test for a mapping or a pydantic model, which is not imported here."""
    return isinstance(value, Mapping) or hasattr(cast("type[object]", type(value)), "model_dump")


def _plain(value: Any) -> Any:
    """Return a dict of a mapping or pydantic model, as templates need it, and other values unchanged."""
    if isinstance(value, Mapping):
        return dict(cast("Mapping[Any, Any]", value))
    return value.model_dump(mode="json", exclude_none=True) if _is_message(value) else value


def _is_id(value: Any) -> bool:
    """Test for an integer, including those of NumPy and torch."""
    if isinstance(value, (str, bytes, bool)):
        return False
    try:
        index(value)
    except (TypeError, ValueError):  # a tensor with several elements
        return False
    return True
