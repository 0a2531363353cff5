"""Tokenization of prompts: texts by the tokenizer, chats by its chat template.

Messages are untrusted: a special token named in a message, such as <|im_end|>, stays text and begins no turn. A
template returns a text, in which the tokenizer cannot separate messages from markup. `ChatEncoder` therefore inserts a
mark between the letters of such names in messages. Names without marks are the template's own. Stretches between them
that contain marks are encoded without special tokens, all others as usual.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cached_property
from inspect import signature
from operator import index
from typing import Any, cast

from ...checks import brief, shown
from ...errors import OptionError
from ..media import KINDS, Media
from ..models.media.encoder import kinds_read, media_of
from ..models.protocol import BEGIN, Model, ReadMedia
from .arguments import Prompt, check_prompt, held_by, is_chat, marked_for, media_in

Ids = tuple[int, ...]
Extras = dict[str, Any]
"""Arguments of a chat template besides messages, by option name, without empty ones.

A template has to use lists, which are tuples here. It may ignore other arguments, such as `enable_thinking`.
"""


def ids_of(model: Model, prompt: Any, number: int, extras: Extras) -> Ids:
    """Return the tokens of a prompt. number: position of the prompt in the call

    Token ids are returned unchanged. A text gets the tokenizer's BOS, unless it begins with it already, as the output
    of a template does. A chat gets the tokens of its template. Raises OptionError, also for invalid output of the
    tokenizer.
    """
    return read(model, check_prompt(prompt, f"prompt {number}"), number, extras).ids


def read(model: Model, prompt: Prompt, number: int, extras: Extras) -> ReadMedia:
    """Return the tokens of a prompt of `check_prompt`, including rows of images and audio, and the references that keep
    these alive.

    Raises OptionError as `ids_of` does, and for images or audio that the model does not read.
    """
    what = f"prompt {number}"
    media, several = media_of(model), check_read(model, media_in(prompt), what)
    is_read = not isinstance(prompt, str) and not is_chat(prompt) and min(cast("Ids", prompt), default=0) < BEGIN
    if media is not None and media.joins_prompts and not several and not is_read:
        raise OptionError(
            f"{what} has no image, but {model!r} needs prompts with images; give a list of image and text"
        )
    if not is_chat(prompt):
        return _ids(model, prompt, what, extras)
    if media is None:
        ids = rendered(model.tokenizer, prompt, what, extras)
        return ReadMedia(_check_ids(ids, what, model, "the chat template"), ())
    ids, held = media.read(text_of_chat(model, prompt, what, extras), several, what)
    return ReadMedia(_check_ids(ids, what, model, "the tokenizer", has_rows=bool(held)), held)


def text_of_chat(model: Model, chat: Any, what: str, extras: Extras) -> str:
    """Return the text of a chat by the template of a multimodal model, with a mark for each image and audio.

    Without a template, return the text of a single message that has media. Raises OptionError.
    """
    media = media_of(model)
    assert media is not None
    if not media.has_template and len(chat) == 1 and media_in(chat) and not extras:
        parts = chat[0]["content"]
        return "".join(media.marks[part["type"]] if part["type"] in KINDS else part["text"] for part in parts)
    return str(rendered(model.tokenizer, marked_for(chat), what, extras, tokenize=False))


def check_read(model: Model, media: list[Media], what: str) -> list[Media]:
    """Return the images and audio of a prompt. Raises OptionError for a kind that the model does not read."""
    known = kinds_read(model)
    strange = next((each.kind for each in media if each.kind not in known), None)
    if strange is not None:
        noun, plural = ("an image", "images") if strange == "image" else ("audio", "audio")
        kinds = " and ".join(["texts", *("images" if kind == "image" else "audio" for kind in known)])
        raise OptionError(
            f"{what} has {noun}, but {model!r} reads only {kinds}; use a model that reads {plural}, given with its "
            f"processor, or leave {'them' if strange == 'image' else 'it'} out"
        )
    return media


def _ids(model: Model, prompt: Prompt, what: str, extras: Extras) -> ReadMedia:
    """Return the tokens of a text, or check token ids, which may include rows that were read. Raises OptionError."""
    tokenizer = model.tokenizer
    if extras:
        name = next(iter(extras))
        raise OptionError(f"{name}= needs a chat, whose template renders them; {what} is not a list of messages")
    if isinstance(prompt, str):
        ids = _check_ids(tokenizer.encode(prompt), what, model, "the tokenizer")
        return ReadMedia(_without_second_bos(ids, prompt, tokenizer), ())
    size, media = model.vocabulary.size, media_of(model)
    found = cast("Ids", prompt)
    for place, token in enumerate(found):
        if token >= size or (token < 0 and media is None):
            raise OptionError(f"{what}, token {place} is {token}; the model has tokens 0 to {size - 1}")
    return ReadMedia(found, () if media is None else media.held(found, ()))


def continued(model: Model, text: str, number: int) -> Ids:
    """Return the tokens of a text that continues another one, without special tokens. Raises OptionError."""
    tokenizer: Any = model.tokenizer
    options = {"add_special_tokens": False} if "add_special_tokens" in signature(tokenizer.encode).parameters else {}
    ids = _check_ids(tokenizer.encode(text, **options), f"the frame of prompt {number}", model, "the tokenizer")
    begin = getattr(tokenizer, "bos_token_id", None)
    return ids if options or not isinstance(begin, int) or ids[:1] != (begin,) else ids[1:]


def written(model: Model, messages: Any, number: int, extras: Extras) -> Any:
    """Return the text of a chat by its template, which is much faster than tokenization. Raises OptionError."""
    what = f"prompt {number}"
    return _apply_template(_template_of(model.tokenizer, what), marked_for(messages), what, extras, tokenize=False)


def _check_ids(found: Any, what: str, model: Model, maker: str, *, has_rows: bool = False) -> Ids:
    """Check the output of a tokenizer. has_rows: the tokens may include rows of images or audio

    Raises OptionError unless it is a list of the model's tokens.
    """
    try:
        ids = tuple(index(token) for token in getattr(found, "ids", found))
    except TypeError:
        raise OptionError(
            f"{maker} made {shown(found)} of {what}; its encode must return a list of token ids"
        ) from None
    size = model.vocabulary.size
    strange = next((token for token in ids if not 0 <= token < size and not (has_rows and token < BEGIN)), None)
    if strange is not None:
        raise OptionError(
            f"{maker} made token {strange} of {what}, but the model has tokens 0 to {size - 1}; use the "
            "model's own tokenizer, or resize the model's embeddings"
        )
    return ids


def _without_second_bos(ids: Ids, text: str, tokenizer: Any) -> Ids:
    """Remove the tokenizer's BOS from a text that begins with BOS itself."""
    bos, begin = getattr(tokenizer, "bos_token", None), getattr(tokenizer, "bos_token_id", None)
    if not isinstance(bos, str) or not bos or not isinstance(begin, int):
        return ids
    written = 0
    while text.startswith(bos, written * len(bos)):
        written += 1
    return ids[1:] if written and ids[: written + 1] == (begin,) * (written + 1) else ids


def _template_of(tokenizer: Any, what: str) -> Any:
    """Return the tokenizer's template function. Raises OptionError if it has none."""
    apply: Any = getattr(tokenizer, "apply_chat_template", None)
    if not callable(apply) or getattr(tokenizer, "chat_template", True) is None:
        raise OptionError(
            f"{what} is a chat, but the model's tokenizer has no chat template; pass a text, or load the tokenizer of "
            "a model that was trained on chats"
        )
    return apply


def rendered(tokenizer: Any, messages: Any, what: str, extras: Extras, *, tokenize: bool = True) -> Any:
    """Return the tokens or the text of a chat by its template. Raises OptionError if it has none, or if it ignores a
    list."""
    apply = _template_of(tokenizer, what)
    found = _apply_template(apply, messages, what, extras, tokenize=tokenize)
    for name in (name for name, values in extras.items() if isinstance(values, tuple)):
        others = {other: extras[other] for other in extras if other != name}
        if found == _apply_template(apply, messages, what, others, tokenize=tokenize):
            raise OptionError(
                f"{name}=: the chat template of the model's tokenizer ignores them; leave them out, or put "
                "them into a message"
            )
    return found


def _apply_template(apply: Any, messages: Any, what: str, extras: Extras, *, tokenize: bool = True) -> Any:
    arguments: dict[str, Any] = {
        name: list(cast("tuple[Any, ...]", each)) if isinstance(each, tuple) else each for name, each in extras.items()
    }
    if arguments.get("continue_final_message"):
        arguments["add_generation_prompt"] = False
    options = {"add_generation_prompt": True, **arguments, "tokenize": tokenize, "return_dict": False}
    try:
        return apply([dict(message) for message in messages], **options)
    except ImportError as error:
        raise OptionError(f"{what} is a chat, but chat templates cannot be rendered: {error}") from error
    except Exception as error:  # a template is foreign code
        raise OptionError(f"{what}: the chat template refuses this chat: {_message(error)}") from error


def _message(error: Exception) -> str:
    """Return the message of a template's exception. Its `raise_exception` raises jinja2.TemplateError."""
    message = " ".join(str(error).split())
    text = message if len(message) <= 400 else brief(message)
    return text if type(error).__name__ == "TemplateError" else f"{type(error).__name__}: {text}"


MARK = "\ue06b"
"""A private-use character that separates the letters of special token names in messages."""


class ChatEncoder:
    """A thread-safe encoder of a model's chats.

    It encodes as usual if the tokenizer does not list special tokens, or if a chat names none.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        added: Any = getattr(model.tokenizer, "added_tokens_decoder", None)
        several = cast("dict[int, Any]", added).items() if isinstance(added, dict) else ()
        self._ids = {
            str(token.content): number
            for number, token in several
            if getattr(token, "special", False) and len(token.content) > 1
        }
        names = sorted(self._ids, key=len, reverse=True)
        self._name = re.compile("|".join(map(re.escape, names))) if names else None

    def ids(self, messages: Any, number: int, extras: Extras) -> Ids:
        """Return the tokens of a chat, see `ids_of`. Raises OptionError, also for a name that cannot be encoded as
        text."""
        if self._name is None or not self._has_name((messages, extras)):
            return ids_of(self._model, messages, number, extras)
        what = f"prompt {number}"
        chat = check_prompt(self._mark(messages), what)
        marked = {name: _restored(each, self._mark(each)) for name, each in extras.items()}
        media, several, held = media_of(self._model), check_read(self._model, media_in(chat), what), ()
        if media is None:
            text = str(rendered(self._model.tokenizer, chat, what, marked, tokenize=False))
        else:
            text, held = media.expanded(text_of_chat(self._model, chat, what, marked), several, what)
        # Templates may write JSON with escapes of non-ASCII characters.
        text = text.replace("\\u" + f"{ord(MARK):04x}", MARK)
        found: list[int] = [] if media is None else media.beginning(text)
        usual = ""
        for stretch in self._stretches(text):
            if MARK not in stretch:
                usual += stretch
                continue
            found += self._encode_template_text(usual)
            found += self._encode_plain(stretch.replace(MARK, ""), what)
            usual = ""
        found += self._encode_template_text(usual)
        return tuple(found) if media is None else media.placed(found, held, what).ids

    def _has_name(self, value: Any) -> bool:
        """Test whether a nested value contains the name of a special token."""
        assert self._name is not None
        left = [value]
        while left:
            each = left.pop()
            if isinstance(each, str) and self._name.search(each) is not None:
                return True
            left += held_by(each) or ()
        return False

    def _mark(self, value: Any) -> Any:
        """Return the value with marks between the letters of all names."""
        assert self._name is not None
        if isinstance(value, str):
            return self._name.sub(lambda name: MARK.join(name[0]), value.replace(MARK, ""))
        if isinstance(value, dict):
            several = cast("dict[Any, Any]", value).items()
            return {self._mark(name): self._mark(each) for name, each in several}
        if isinstance(value, list | tuple):
            return [self._mark(each) for each in cast("list[Any]", value)]
        return value

    def _stretches(self, text: str) -> list[str]:
        """Split a text at the template's own special tokens, and keep these."""
        assert self._name is not None
        return [each for each in re.split(f"({self._name.pattern})", text) if each]

    def _encode_template_text(self, text: str) -> list[int]:
        tokenizer: Any = self._model.tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _encode_plain(self, text: str, what: str) -> list[int]:
        """Return the tokens of a text without special tokens. Raises OptionError if a name is still encoded as one."""
        assert self._name is not None
        found = list(self._copied_tokenizer.encode(text, add_special_tokens=False, split_special_tokens=True))
        named = {self._ids[name] for name in self._name.findall(text)}
        if named.intersection(found):
            name = self._name.findall(text)[0]
            raise OptionError(
                f"{what}: a message has {name!r}, a special token that the model's tokenizer cannot read as plain "
                "text; remove it"
            )
        return found

    @cached_property
    def _copied_tokenizer(self) -> Any:
        """A copy of the tokenizer, since `split_special_tokens` changes its state for all threads."""
        return deepcopy(self._model.tokenizer)


def _restored(original: Any, value: Any) -> Any:
    """Restore the type of a list, which decides how a template has to use it."""
    return tuple(value) if isinstance(original, tuple) else value
