"""The logits processor in vLLM's second model runner: slots, rows for drafts, and text that is read on the device."""

from __future__ import annotations

import re
from importlib import import_module
from random import Random
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from trellm import Vocabulary
from trellm.guides import DEAD, RegexGuide, tokens_of

from .vllm_parts import SECOND, config_of, params_of

SLOTS, LONGEST, DRAFTS = 5, 80, 3
PATTERNS = [r"on [0-9]{2,12}the", r"((true|on) ){1,6}12", "[a-c]{3,9}", None, '"[^"]{2,9}"', "(the|on|1)+", "x{2,}"]
BUDGET = 12


class Runner:
    """As much of vLLM's second model runner as a logits processor meets."""

    def __init__(self, tokenizer: Any) -> None:
        self.random, self.eos, self.width = Random(0), tokenizer.eos_token_id, len(tokenizer)
        lengths = [SimpleNamespace(np=np.zeros(SLOTS, np.int32)) for _ in range(3)]
        self.tokens = torch.full((SLOTS, LONGEST), -7, dtype=torch.int32)
        states = SimpleNamespace(
            device="cpu", max_num_reqs=SLOTS, vocab_size=self.width, all_token_ids=SimpleNamespace(gpu=self.tokens),
            prompt_len=lengths[0], prefill_len=lengths[1], total_len=lengths[2],
        )  # fmt: skip
        self.prompts = lengths[0].np
        build = import_module(SECOND).build_custom_logits_processors
        (self.processor,) = build(config_of(self.width), states, False, ["trellm.adapters.vllm:TrellmLogitsProcessor"])
        self.context = import_module(SECOND).LogitsContext
        self.slots: dict[int, tuple[int, list[int]]] = {}  # the request and all its tokens, by slot

    def add(self, request: int, ids: list[int], prompt: int) -> None:
        """A request takes a free slot, anew or with the text that it had."""
        slot = self.random.choice([slot for slot in range(SLOTS) if slot not in self.slots])
        self.tokens[slot, : len(ids)] = torch.tensor(ids)
        self.prompts[slot] = prompt
        pattern = PATTERNS[request]
        asked = {} if pattern is None else {"regex": pattern, "complete": request % 2 == 0}
        assert self.processor.add_request(slot, params_of(BUDGET, **asked)) == (pattern is not None)
        self.slots[slot] = request, ids

    def step(self, guides: list[RegexGuide | None]) -> list[int]:
        """Some of the requests are run, with drafts; the slots whose text has ended."""
        chosen = [slot for slot in self.slots if self.random.random() < 0.8]
        drafts = {slot: self.drafts(*self.slots[slot], guides) for slot in chosen}
        self.processor.apply_staged_writes()
        layout = [
            (slot, offset, token, len(self.slots[slot][1]) - 1 + offset)
            for slot in chosen
            for offset, token in enumerate([self.slots[slot][1][-1], *drafts[slot]])
        ]
        mapping, offsets, ids, positions = (torch.tensor([row[at] for row in layout]).int() for at in range(4))
        context = self.context(
            mapping, torch.tensor(chosen), np.array(chosen, np.int32), offsets, ids, positions.long(), np.array([])
        )
        logits = torch.zeros((len(layout), self.width))
        assert self.processor.apply(logits, context) is logits
        ended, rows = [], iter(logits)
        for slot in chosen:
            request, text = self.slots[slot]
            masks = [next(rows) for _ in range(len(drafts[slot]) + 1)]
            for mask, draft in zip(masks, [*drafts[slot], None], strict=True):
                allowed = (mask == 0).nonzero()[:, 0].tolist()
                self.check(guides[request], text[self.prompts[slot] :], allowed, request % 2 == 0)
                token = draft if draft in allowed and self.random.random() < 0.7 else self.random.choice(allowed)
                self.tokens[slot, len(text)] = token
                text.append(token)
                if token == self.eos or len(text) - self.prompts[slot] == BUDGET + 8:
                    ended.append(slot)
                    break
                if token != draft:
                    break
        return ended

    def drafts(self, request: int, text: list[int], guides: list[RegexGuide | None]) -> list[int]:
        """Tokens that a guide allows, most of them."""
        guide = guides[request]
        return [
            self.random.choice(range(60, 70) if guide is None else [*tokens_of(guide.mask(guide.start)), 66])
            for _ in range(self.random.randint(0, DRAFTS))
        ]

    def check(self, guide: RegexGuide | None, text: list[int], allowed: list[int], complete: bool) -> None:
        """The mask is that of the plain way: everything read anew."""
        if guide is None:
            assert len(allowed) == self.width
            return
        state = guide.start
        for token in text:
            state = guide.advance(state, token)
        assert state != DEAD
        mask = guide.mask_within(state, BUDGET - len(text)) if complete else guide.mask(state)
        assert allowed == tokens_of(mask)


def test_slots_and_drafts(vllm: Any, tokenizer: Any) -> None:
    """Requests join, are preempted, come back to other slots, and end; drafts are taken or refused."""
    runner = Runner(tokenizer)
    vocabulary = Vocabulary.from_tokenizer(tokenizer)
    guides = [None if pattern is None else RegexGuide(pattern, vocabulary) for pattern in PATTERNS]
    waiting = [(request, [5, 6, 7][: 1 + request % 3]) for request in range(len(PATTERNS))]
    prompts = {request: len(ids) for request, ids in waiting}
    texts: dict[int, list[int]] = {}
    for _ in range(200):
        while waiting and len(runner.slots) < SLOTS:
            request, ids = waiting.pop(0)
            runner.add(request, ids, prompts[request])
        for slot in runner.step(guides):
            request, ids = runner.slots.pop(slot)
            texts[request] = ids[prompts[request] :]
        if runner.slots and runner.random.random() < 0.2:
            waiting.append(runner.slots.pop(runner.random.choice([*runner.slots])))
        if not runner.slots and not waiting:
            break
    assert len(texts) == len(PATTERNS)
    for request, pattern in enumerate(PATTERNS):
        is_complete = texts[request][-1] == tokenizer.eos_token_id
        if request % 2 == 0 and pattern is not None:
            assert is_complete and len(texts[request]) <= BUDGET + 1
        if pattern is not None and is_complete:
            assert re.fullmatch(pattern, vocabulary.decode(texts[request]).decode())


def test_requests_are_checked_by_the_second_runner(vllm: Any) -> None:
    check = import_module(SECOND).build_custom_logits_processors_params_validator([vllm.TrellmLogitsProcessor])
    check(params_of())
    check(params_of(regex="[0-9]"))
    with pytest.raises(import_module("vllm.exceptions").VLLMValidationError, match="offset 0"):
        check(params_of(regex="[0-9"))
