"""Validation while training: whether the likeliest token is right everywhere in answers to what is held out."""

from __future__ import annotations

from random import Random
from typing import Any

from .batches import encoded
from .text.documents import ANSWER, END, Segments, chat, plain
from .text.plain import plain_quotation_task, plain_record_task
from .text.scenes import draw
from .text.tasks import (
    Task,
    choice_task,
    next_task,
    normal_task,
    quotation_task,
    record_task,
    sum_task,
    tool_task,
    words_task,
)

KINDS = (
    "record",
    "record, unseen fields",
    "quotation",
    "plain record",
    "plain quotation",
    "choice",
    "normal form",
    "tool call",
    "arithmetic",
    "next sentence",
    "given words",
)


def held_out_task(random: Random, kind: str) -> Task:
    """A task of a kind with names, values and sentence forms that training has not seen."""
    while True:
        task = _task(random, kind)
        if task.kind == kind and task.value not in ({}, []):
            return task


def _task(random: Random, kind: str) -> Task:
    if kind == "tool call":
        return tool_task(random, True)
    if kind.startswith("plain"):
        return (plain_record_task if kind == "plain record" else plain_quotation_task)(random, True)
    if kind == "arithmetic":
        return sum_task(random, True)
    if kind == "given words":
        return words_task(random, True)
    scene = draw(random, True)
    if kind.startswith("record"):
        return record_task(random, scene, True, unseen=kind != "record")
    if kind == "normal form":
        return normal_task(random, scene if random.random() < 0.5 else None, True)
    return {"quotation": quotation_task, "choice": choice_task, "next sentence": next_task}[kind](random, scene, True)


class Validation:
    """A set of tasks, half as plain prompts and half as chats, and how many a network gets right.

    A text counts as right if at each of its tokens the right one is the likeliest: just then greedy search writes it.
    """

    def __init__(self, tokenizer: Any, device: Any, size: int, seed: int = 0) -> None:
        self._device = device
        self._end: int = tokenizer.token_to_id(END)
        random = Random(f"validation {seed}")
        documents: list[tuple[str, Segments]] = []
        for kind in KINDS:
            for number in range(size):
                task = held_out_task(random, kind)
                documents.append((kind, chat([task], random) if number % 2 else plain(task, random)))
        tokens = encoded(tokenizer, [document for _, document in documents])
        self._texts = sorted(
            ((kind, *found) for (kind, _), found in zip(documents, tokens, strict=True)), key=lambda text: len(text[1])
        )

    def run(self, network: Any) -> dict[str, float]:
        """The share of right answers by kind of task."""
        import torch

        network.eval()
        right: dict[str, list[bool]] = {kind: [] for kind in KINDS}
        on_gpu = self._device.type == "cuda"
        several = 64 if on_gpu else 8
        with torch.inference_mode(), torch.autocast(self._device.type, torch.bfloat16, enabled=on_gpu):
            for start in range(0, len(self._texts), several):
                texts = self._texts[start : start + several]
                width = len(texts[-1][1])
                ids = torch.tensor([ids + [self._end] * (width - len(ids)) for _, ids, _ in texts], device=self._device)
                marks = torch.tensor([marks + [0] * (width - len(marks)) for _, _, marks in texts], device=self._device)
                likeliest = network(input_ids=ids[:, :-1], use_cache=False).logits.argmax(-1)
                good = ((likeliest == ids[:, 1:]) | (marks[:, 1:] != ANSWER)).all(-1).tolist()
                for (kind, _, _), is_right in zip(texts, good, strict=True):
                    right[kind].append(is_right)
        network.train()
        return {kind: round(sum(found) / len(found), 4) for kind, found in right.items()}
