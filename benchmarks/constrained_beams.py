"""Beams that must contain phrases, beside the constrained beam search that transformers had until 4.49.

    python benchmarks/constrained_beams.py GPT2_TOKENIZER --peer PYTHON [--widths 4 8 16 --rounds 5]

PYTHON is the interpreter of an environment with transformers 4.49 (`force_words_ids`), which is asked in turn with this
process; both run on the same core with one thread, in float32, one after the other. Times are of the processor. The
model is a random one of the smallest GPT-2's shape, 64 new tokens after a prompt. A score is the sum of the
log-probabilities of a text's tokens by their number, worked out for both by the same forward pass; a text counts only
if it contains what it must.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import pin_to_one_core, save, show

PROMPT = "Give me one record of a person, and nothing else."
TOKENS = 64
CASES = {
    "a phrase": [[" by the river bank"]],
    "two phrases": [[" by the river bank"], [" a record of history"]],
    "three phrases": [[" by the river"], [" of history"], [" in the old house"]],
    "one of three": [[" by the river bank", " by the lake", " by the sea"]],
    "one of three, twice": [[" by the river bank", " by the lake"], [" walks", " runs", " sleeps"]],
}


def serve_peer(folder: str) -> None:
    """Answer requests on standard input: the seconds and token ids of transformers' search."""
    import torch
    from transformers import GPT2LMHeadModel

    torch.set_num_threads(1)
    network = GPT2LMHeadModel.from_pretrained(folder).eval()
    print("ready", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        ids = torch.tensor([asked["ids"]])
        began = time.process_time()
        found = network.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            num_beams=asked["width"],
            max_new_tokens=TOKENS,
            do_sample=False,
            force_words_ids=asked["words"],
        )
        seconds = time.process_time() - began
        print(json.dumps({"seconds": seconds, "tokens": found[0, ids.shape[1] :].tolist()}), flush=True)


class Peer:
    """A process of another environment."""

    def __init__(self, python: str, folder: str) -> None:
        self._process = subprocess.Popen(
            [python, __file__, folder, "--serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        while self._line() != "ready":
            pass

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit("the peer's process has ended")
        return line.strip()

    def run(self, ids: list[int], width: int, words: list[Any]) -> tuple[float, list[int]]:
        """Seconds and tokens of a search."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"ids": ids, "width": width, "words": words}) + "\n")
        self._process.stdin.flush()
        found = json.loads(self._line())
        return found["seconds"], found["tokens"]


def score_of(network: Any, prompt: list[int], tokens: list[int]) -> float:
    """The mean log-probability of a text's tokens."""
    import torch

    with torch.inference_mode():
        logits = network(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1 : -1]
        chances = torch.log_softmax(logits, -1)
    return chances[torch.arange(len(tokens)), torch.tensor(tokens)].mean().item()


def compare(
    network: Any, tokenizer: Any, peer: Peer, widths: list[int], rounds: int, cases: list[str]
) -> list[dict[str, Any]]:
    """A row for each case and width."""
    from trellm import AnyOf, Beam, generate, models

    text = generate.text(models.transformers(network, tokenizer))
    prompt = tokenizer.encode(PROMPT)
    rows: list[dict[str, Any]] = []
    for case in cases:
        groups = CASES[case]
        include = [AnyOf(*group) if len(group) > 1 else group[0] for group in groups]
        encoded = [[tokenizer.encode(phrase) for phrase in group] for group in groups]
        words = [group if len(group) > 1 else group[0] for group in encoded]
        for width in widths:
            times: dict[str, list[float]] = {"trellm": [], "transformers 4.49": []}
            found: dict[str, list[int]] = {}
            for round_ in range(rounds + 1):  # the first warms up
                began = time.process_time()
                ours = text.run(PROMPT, search=Beam(width), max_tokens=TOKENS, heal=False, include=include)
                seconds = time.process_time() - began
                theirs, found["transformers 4.49"] = peer.run(prompt, width, words)
                found["trellm"] = list(ours.token_ids)
                if round_:
                    times["trellm"].append(seconds)
                    times["transformers 4.49"].append(theirs)
            medians = {who: statistics.median(several) for who, several in times.items()}
            for who, tokens in found.items():
                said = tokenizer.decode(tokens)
                rows.append(
                    {
                        "case": case,
                        "width": width,
                        "who": who,
                        "ms / step": 1e3 * medians[who] / TOKENS,
                        "transformers / this": medians["transformers 4.49"] / medians[who],
                        "score": score_of(network, prompt, tokens),
                        "contains all": all(any(phrase in said for phrase in group) for group in groups),
                        "tokens": len(tokens),
                    }
                )
            show(rows[-2:])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizer", help="a folder with GPT-2's tokenizer")
    parser.add_argument("--peer", help="the Python of an environment with transformers 4.49")
    parser.add_argument("--widths", type=int, nargs="+", default=[4, 8, 16])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", default=[*CASES], choices=[*CASES], metavar="CASE")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    pin_to_one_core()
    if options.serve:
        serve_peer(options.tokenizer)
        return
    if options.peer is None:
        parser.error("--peer is needed")
    from beam_search import make_gpt2
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(options.tokenizer)
    network = make_gpt2(tokenizer)
    with tempfile.TemporaryDirectory() as folder:
        network.save_pretrained(folder)
        file = Path(folder) / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"torch_dtype": "float32"}))
        rows = compare(network, tokenizer, Peer(options.peer, folder), options.widths, options.rounds, options.cases)
    show(rows)
    save("constrained_beams", rows, ["trellm", "torch", "transformers"], options.tokenizer)


if __name__ == "__main__":
    main()
