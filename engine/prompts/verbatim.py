"""Chats of strangers: where a message names a special token, such as <|im_end|>, that is text, and begins no turn.

A template writes a text, of which the tokenizer cannot know who wrote what. Names of special tokens in what callers
gave are therefore written letter by letter with a mark between them, so that those without are the template's own. What
stands between two of these, and has marks, is encoded without special tokens; all else as ever.
"""

from __future__ import annotations

import re
from copy import deepcopy
from functools import cached_property
from typing import Any, cast

from ...errors import OptionError
from ..models.protocol import Model, vision_of
from .encoding import Extras, Ids, ids_of, no_vision, rendered, text_of_chat
from .given import held_by, images_of, prompt_of

MARK = "\ue06b"
"""A character for private use, which is taken out of messages that name special tokens."""


class Verbatim:
    """Encodes chats for a model, from any thread.

    A tokenizer that does not tell its special tokens, or whose messages hold none by its own account, is asked as ever.
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
        """The tokens of a chat, see `ids_of`. Raises OptionError, also where names can be no text."""
        if self._name is None or not self._is_named((messages, extras)):
            return ids_of(self._model, messages, number, extras)
        what = f"prompt {number}"
        given = prompt_of(self._marked(messages), what)
        marked = {name: _as(each, self._marked(each)) for name, each in extras.items()}
        vision, images, held = vision_of(self._model), images_of(given), ()
        if vision is None and images:
            raise OptionError(no_vision(self._model, what))
        if vision is None:
            text = str(rendered(self._model.tokenizer, given, what, marked, tokenize=False))
        else:
            text, held = vision.expanded(text_of_chat(self._model, given, what, marked), images, what)
        # A template may write JSON whose other characters are escaped.
        text = text.replace("\\u" + f"{ord(MARK):04x}", MARK)
        found: list[int] = [] if vision is None else vision.beginning(text)
        usual = ""
        for stretch in self._stretches(text):
            if MARK not in stretch:
                usual += stretch
                continue
            found += self._usual(usual)
            found += self._plain(stretch.replace(MARK, ""), what)
            usual = ""
        found += self._usual(usual)
        return tuple(found) if vision is None else vision.placed(found, held, what).ids

    def _is_named(self, value: Any) -> bool:
        """True if a special token is named in a text, however deep."""
        assert self._name is not None
        left = [value]
        while left:
            each = left.pop()
            if isinstance(each, str) and self._name.search(each) is not None:
                return True
            left += held_by(each) or ()
        return False

    def _marked(self, value: Any) -> Any:
        """The same with a mark between the letters of all names."""
        assert self._name is not None
        if isinstance(value, str):
            return self._name.sub(lambda name: MARK.join(name[0]), value.replace(MARK, ""))
        if isinstance(value, dict):
            several = cast("dict[Any, Any]", value).items()
            return {self._marked(name): self._marked(each) for name, each in several}
        if isinstance(value, list | tuple):
            return [self._marked(each) for each in cast("list[Any]", value)]
        return value

    def _stretches(self, text: str) -> list[str]:
        """The template's own special tokens, and what stands before, between and behind them."""
        assert self._name is not None
        return [each for each in re.split(f"({self._name.pattern})", text) if each]

    def _usual(self, text: str) -> list[int]:
        tokenizer: Any = self._model.tokenizer
        return list(tokenizer.encode(text, add_special_tokens=False)) if text else []

    def _plain(self, text: str, what: str) -> list[int]:
        """The tokens of a text in which no name means anything. Raises OptionError."""
        assert self._name is not None
        found = list(self._apart.encode(text, add_special_tokens=False, split_special_tokens=True))
        named = {self._ids[name] for name in self._name.findall(text)}
        if named.intersection(found):
            name = self._name.findall(text)[0]
            raise OptionError(
                f"{what}: a message has {name!r}, a special token of the model's, which its tokenizer reads as nothing "
                "else; take it out"
            )
        return found

    @cached_property
    def _apart(self) -> Any:
        """The tokenizer once more: whether it knows special tokens is said of all its threads at once."""
        return deepcopy(self._model.tokenizer)


def _as(given: Any, value: Any) -> Any:
    """A list as what it was, which tells how a template is asked to write it."""
    return tuple(value) if isinstance(given, tuple) else value
