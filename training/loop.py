"""The loop: warm-up and cosine, validation on what is held out, checkpoints, and a curve of the loss."""

from __future__ import annotations

import csv
import json
import math
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, cast

from . import network as networks
from . import tokenizer as tokenizers
from .batches import ROWS, Workers, has_long
from .curve import draw_curve
from .optimiser import Optimiser
from .text.documents import END, STOP
from .validation import Validation


@dataclass(frozen=True)
class Plan:
    """What to train and for how long.

    minutes: of wall time, from the first step; the learning rate falls to nothing as they pass.
    steps: as many steps instead, which is repeatable
    length: tokens of a row; where it is at most half of the context some rows are twice as long, for long documents
    batch: tokens of a step; part: tokens that go through the network at once, or one chunk where rows differ in length
    documents: that the tokenizer is trained on
    given: how much a token of a prompt counts beside one of an answer
    validation: tasks of each kind
    start: a folder whose model and tokenizer to go on with; tokenizer: one whose tokenizer alone
    """

    out: Path
    checkpoint: Path
    minutes: float = 110.0
    steps: int | None = None
    seed: int = 1
    vocabulary: int = 2560
    documents: int = 20_000
    width: int = 192
    layers: int = 8
    length: int = 512
    batch: int = 16_384
    part: int = 8_192
    rate: float = 4e-3
    warmup: int = 100
    optimiser: Literal["muon", "adamw"] = "muon"
    decay: float = 0.1
    given: float = 0.1
    workers: int = 1
    validation: int = 200
    compiled: bool = False
    start: Path | None = None
    tokenizer: Path | None = None
    first_chunk: int = 0


class Training:
    """A network in training: all that a checkpoint holds."""

    def __init__(self, plan: Plan) -> None:
        import torch

        self.plan = plan
        self.step = 0
        self.spent = 0.0
        """Seconds in steps, those before a resumption counted."""
        self.rows: list[dict[str, float]] = []
        plan.out.mkdir(parents=True, exist_ok=True)
        plan.checkpoint.mkdir(parents=True, exist_ok=True)
        self.tokenizer = self._tokenizer()
        ends = {"end": self.tokenizer.token_to_id(END), "stop": self.tokenizer.token_to_id(STOP)}
        self.workers = Workers(
            plan.out / "tokenizer.json", plan.seed, self._first_chunk(), plan.length, max(1, plan.workers)
        )
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if plan.start is not None:
            network = networks.load(plan.start)
        else:
            size = self.tokenizer.get_vocab_size()
            network = networks.make(size, width=plan.width, layers=plan.layers, seed=plan.seed, **ends)
        self.network: Any = network.to(self.device)
        self.network.train()
        self.optimiser = Optimiser(self.network, rate=plan.rate, decay=plan.decay, with_muon=plan.optimiser == "muon")
        self._is_low = self._has_low()
        self.weights = torch.tensor([0.0, plan.given, 1.0], device=self.device)
        torch.set_float32_matmul_precision("high")
        body, compiler = self.network.model, cast(Any, torch)
        self.body: Any = compiler.compile(body) if plan.compiled else body
        self._resume()

    def run(self) -> None:
        """Train to the end, and write the model, its log and its curve."""
        from tqdm import tqdm

        validation = Validation(self.tokenizer, self.device, self.plan.validation)
        shown = tqdm(total=100, desc="training", unit="%", mininterval=10)
        began, saved = time.monotonic() - self.spent, time.monotonic()
        losses: list[Any] = []
        try:
            while self._progress() < 1:
                losses.append(self.advance())
                if self.step % 50 == 0 or self.step == 1:
                    loss = float(sum(losses)) / len(losses)
                    losses = []
                    if not math.isfinite(loss):
                        raise FloatingPointError(f"the loss is {loss} in step {self.step}; train with a lower --rate")
                    self.spent = time.monotonic() - began
                    self._log(loss, shown)
                    shown.update(int(100 * self._progress()) - shown.n)
                self.spent = time.monotonic() - began
                if time.monotonic() - saved > 60:
                    self.checkpoint()
                    saved = time.monotonic()
        finally:
            self.workers.close()
            shown.close()
        self._finish(validation)

    def _has_low(self) -> bool:
        """Whether a CPU multiplies bfloat16 faster than float32; a network that is compiled is left as it is."""
        import torch

        asks: Any = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
        return self.device.type == "cpu" and not self.plan.compiled and asks is not None and bool(asks())

    def _progress(self) -> float:
        """How much of the training is done, up to 1."""
        if self.plan.steps is not None:
            return self.step / self.plan.steps
        return self.spent / (60 * self.plan.minutes)

    def advance(self) -> Any:
        """One step; its loss as a tensor."""
        import torch

        done = self._progress()
        rate = (
            self.plan.rate
            * min(1, (self.step + 1) / self.plan.warmup)
            * (0.01 + 0.99 * math.cos(done * math.pi / 2) ** 2)
        )
        total: Any = 0
        for _ in range(self._parts):
            loss = self._loss(*self._batch())
            (loss / self._parts).backward()
            total = total + loss.detach() / self._parts
        torch.nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        self.optimiser.step(rate)
        self.network.zero_grad(set_to_none=True)
        self.step += 1
        return total

    def _batch(self) -> tuple[Any, Any]:
        """Token ids and what they are, [rows, length], on the device."""
        import numpy as np
        import torch

        library: Any = torch
        taken = [self.workers.take() for _ in range(self._chunks)]
        ids, kinds = (library.from_numpy(np.concatenate([pair[part] for pair in taken])) for part in (0, 1))
        if self.device.type == "cuda":
            ids, kinds = ids.view(torch.int16).pin_memory(), kinds.pin_memory()
            return ids.to(self.device, non_blocking=True).long(), kinds.to(self.device, non_blocking=True)
        return ids.to(torch.int64), kinds

    def _loss(self, ids: Any, kinds: Any) -> Any:
        """Cross-entropy, a prompt's tokens counting less.

        The last token of a row is read too, so that products and attention have even sizes; nothing is asked of it.
        """
        from torch.nn.functional import cross_entropy

        weights = self.weights[kinds.long()].roll(-1, 1)
        weights[:, -1] = 0
        logits = self._logits(ids).flatten(0, 1).float()
        losses = cross_entropy(logits, ids.roll(-1, 1).flatten(), reduction="none")
        return (losses * weights.flatten()).sum() / weights.sum()

    def _logits(self, ids: Any) -> Any:
        """The logits of every place, [rows, length, V].

        Attention is causal over whole rows: documents before it are distractors to a document.
        """
        import torch

        if self._is_low:
            from .passes import scores, states

            return scores(states(self.network.model, ids), self.network.lm_head)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            hidden = self.body(input_ids=ids, attention_mask={"full_attention": None}, use_cache=False)
            return self.network.lm_head(hidden.last_hidden_state)

    def _log(self, loss: float, shown: Any) -> None:
        tokens = self.step * self._parts * self._chunks * ROWS * self.plan.length
        row = {"step": self.step, "tokens": tokens, "seconds": round(self.spent, 1), "loss": round(loss, 4)}
        self.rows.append(row)
        shown.set_postfix_str(f"step {self.step:,}, loss {loss:.3f}, {tokens / max(self.spent, 1e-9):,.0f} tokens/s")

    @property
    def _chunks(self) -> int:
        """Chunks of a part."""
        return 1 if has_long(self.plan.length) else max(1, self.plan.part // (ROWS * self.plan.length))

    @property
    def _parts(self) -> int:
        """Parts of a step."""
        return max(1, self.plan.batch // (self._chunks * ROWS * self.plan.length))

    def _tokenizer(self) -> Any:
        """The tokenizer: of the start, of another model, of a checkpoint, or trained now."""
        from tokenizers import Tokenizer

        file = self.plan.out / "tokenizer.json"
        given = self.plan.start or self.plan.tokenizer
        source = (given or self.plan.checkpoint) / "tokenizer.json"
        loader: Any = Tokenizer
        tokenizer = (
            loader.from_file(str(source))
            if source.exists()
            else tokenizers.train(self.plan.vocabulary, self.plan.seed, self.plan.documents)
        )
        tokenizers.save(tokenizer, self.plan.out, networks.CONTEXT)
        tokenizer.save(str(self.plan.checkpoint / "tokenizer.json"))
        return loader.from_file(str(file))

    def _first_chunk(self) -> int:
        """The chunk to go on with."""
        file = self.plan.checkpoint / "state.json"
        step = json.loads(file.read_text(encoding="utf-8"))["step"] if file.exists() else 0
        return self.plan.first_chunk + step * self._parts * self._chunks

    def checkpoint(self) -> None:
        """Write all that it takes to go on; what was there stays whole until the new one is."""
        import torch

        folder = self.plan.checkpoint
        state = {"network": self.network.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save(state, folder / "state.new")
        (folder / "state.new").replace(folder / "state.pt")
        record = {"step": self.step, "spent": self.spent, "rows": self.rows}
        (folder / "state.json").write_text(json.dumps(record), encoding="utf-8")

    def _resume(self) -> None:
        import torch

        folder = self.plan.checkpoint
        if not (folder / "state.json").exists():
            return
        record = json.loads((folder / "state.json").read_text(encoding="utf-8"))
        self.step, self.spent, self.rows = record["step"], record["spent"], record["rows"]
        state = torch.load(folder / "state.pt", map_location=self.device)
        self.network.load_state_dict(state["network"])
        self.optimiser.load_state_dict(state["optimiser"])

    def _finish(self, validation: Validation) -> None:
        """Validate and write everything."""
        out = self.plan.out
        networks.save(self.network, out)
        self._write_log()
        found = validation.run(self.network)
        plan = {name: str(value) if isinstance(value, Path) else value for name, value in asdict(self.plan).items()}
        size = sum(weight.numel() for weight in self.network.parameters())
        record = {
            "plan": plan,
            "parameters": size,
            "steps": self.step,
            "seconds": round(self.spent),
            "validation": found,
        }
        (out / "training.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
        print(json.dumps(record, indent=2))

    def _write_log(self) -> None:
        with (self.plan.out / "loss.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["step", "tokens", "seconds", "loss"], lineterminator="\n")
            writer.writeheader()
            writer.writerows(self.rows)
        draw_curve(self.rows, self.plan.out / "loss.svg")
