"""Flags about chats: prompts as messages, and what a template writes besides them."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import click

from .files.prompts import Prompt
from .flags import Text


@dataclass(frozen=True)
class Chatting:
    """is_on: whether a text is what a user says; after, thinking: as options of constraints.

    tools, documents: what the file of that option holds.
    """

    is_on: bool
    after: str | None
    thinking: int | None
    tools: list[Any] | None
    documents: list[Any] | None

    def options(self) -> dict[str, Any]:
        """As options of a call."""
        return {"tools": self.tools, "documents": self.documents}

    def prompts(self, prompts: list[Prompt]) -> list[Prompt]:
        """The prompts, of which texts become chats where that is asked for."""
        return [
            Prompt([{"role": "user", "content": each.given}], each.record)
            if self.is_on and isinstance(each.given, str)
            else each
            for each in prompts
        ]


def chat_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flags to a command, which gets them as `chatting`."""

    @click.option("--chat", is_flag=True, help="A text is what a user says: the tokenizer's chat template writes it.")
    @click.option("--after", type=Text(), metavar="TEXT", help="Free text up to this comes before the constraint.")
    @click.option("--thinking", type=click.IntRange(0), help="Most tokens of that text. [default: 1024]")
    @click.option("--tools", callback=_read_list, metavar="FILE", help="Of chats: a JSON list of tools.")
    @click.option("--documents", "of_chats", callback=_read_list, metavar="FILE", help="Of chats: a JSON list.")
    @functools.wraps(command)
    def with_chats(*args: Any, chat: bool, of_chats: list[Any] | None, **others: Any) -> Any:
        given = {name: others.pop(name) for name in ("after", "thinking", "tools")}
        return command(*args, chatting=Chatting(chat, documents=of_chats, **given), **others)

    return with_chats


def _read_list(context: click.Context, parameter: click.Parameter, path: str | None) -> list[Any] | None:
    if path is None:
        return None
    try:
        found: Any = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise click.BadParameter(f"{path!r} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise click.BadParameter(f"{path!r} is no JSON: {error}") from None
    if not isinstance(found, list):
        raise click.BadParameter(f"{path!r} holds no JSON list")
    return cast("list[Any]", found)
