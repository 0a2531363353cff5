"""The items of a response as they grow, and the events that tell of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...engine.decode.randomness import fresh_bits
from ..forms import ArgumentsDelta, CallDelta, CallEndDelta, ContentDelta, Delta, Message, ReasoningDelta

Told = tuple[str, dict[str, Any]]
"""The type of an event, and its fields."""


class Items:
    """found: the items so far; the last may be open, and is then added to."""

    def __init__(self) -> None:
        self.found: list[dict[str, Any]] = []
        self._is_open = False

    def add(self, delta: Delta) -> Iterator[Told]:
        """What becomes of a delta."""
        match delta:
            case ContentDelta(text):
                yield from self._grow("message", text)
            case ReasoningDelta(text):
                yield from self._grow("reasoning", text)
            case CallDelta(_, key, name):
                yield from self.end()
                fields = {"call_id": key, "name": name, "arguments": ""}
                yield self._begin("function_call", "fc", fields)
            case ArgumentsDelta(_, text):
                self._last["arguments"] += text
                yield "response.function_call_arguments.delta", {**self._place, "delta": text}
            case CallEndDelta():
                yield from self.end()

    def of_message(self, message: Message, *, is_cut: bool) -> Iterator[Told]:
        """All items of a message. is_cut: whether it was cut short, which its last item is then"""
        if message.reasoning:
            yield from self.add(ReasoningDelta(message.reasoning))
        if message.content:
            yield from self.add(ContentDelta(message.content))
        for index, call in enumerate(message.calls):
            yield from self.add(CallDelta(index, call.id, call.name))
            yield from self.add(ArgumentsDelta(index, call.arguments))
            if call.complete:
                yield from self.add(CallEndDelta(index))
        yield from self.last(is_cut=is_cut)

    def last(self, *, is_cut: bool) -> Iterator[Told]:
        """Close the item that is open, where there is no more; one of no text where nothing but thinking came."""
        is_answered = any(item["type"] != "reasoning" for item in self.found)
        if not is_answered and not (is_cut and self.found):
            yield from self._open("message")
        yield from self.end(is_cut=is_cut)

    def end(self, *, is_cut: bool = False) -> Iterator[Told]:
        """Close the item that is open, if one is. is_cut: whether the text ends there for want of tokens"""
        if not self._is_open:
            return
        item, place = self._last, self._place
        if item["type"] == "function_call":
            arguments = {"name": item["name"], "arguments": item["arguments"]}
            yield "response.function_call_arguments.done", {**place, **arguments}
        else:
            part, inner = item["content"][0], {**place, "content_index": 0}
            scores: dict[str, Any] = {"logprobs": []} if item["type"] == "message" else {}
            yield f"response.{part['type']}.done", {**inner, "text": part["text"], **scores}
            yield "response.content_part.done", {**inner, "part": dict(part)}
        item["status"] = "incomplete" if is_cut else "completed"
        self._is_open = False
        yield "response.output_item.done", {"output_index": len(self.found) - 1, "item": item}

    @property
    def _last(self) -> dict[str, Any]:
        return self.found[-1]

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._last["id"], "output_index": len(self.found) - 1}

    def _grow(self, kind: str, text: str) -> Iterator[Told]:
        """Add text to an item of a kind, a new one where the last is of another."""
        if not self._is_open or self._last["type"] != kind:
            yield from self._open(kind)
        part = self._last["content"][0]
        part["text"] += text
        scores: dict[str, Any] = {"logprobs": []} if kind == "message" else {}
        yield f"response.{part['type']}.delta", {**self._place, "content_index": 0, "delta": text, **scores}

    def _open(self, kind: str) -> Iterator[Told]:
        """Begin an item of a kind that has text."""
        yield from self.end()
        is_message = kind == "message"
        fields: dict[str, Any] = {"role": "assistant"} if is_message else {"summary": []}
        yield self._begin(kind, "msg" if is_message else "rs", {**fields, "content": []})
        part: dict[str, Any] = {"type": "reasoning_text", "text": ""}
        if is_message:
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        self._last["content"].append(part)
        yield "response.content_part.added", {**self._place, "content_index": 0, "part": dict(part)}

    def _begin(self, kind: str, prefix: str, fields: dict[str, Any]) -> Told:
        key = f"{prefix}_{fresh_bits(96):024x}"
        item: dict[str, Any] = {"type": kind, "id": key, "status": "in_progress", **fields}
        self.found.append(item)
        self._is_open = True
        shown = dict(item)
        if "content" in fields:  # grows in the item itself
            shown["content"] = []
        return "response.output_item.added", {"output_index": len(self.found) - 1, "item": shown}
