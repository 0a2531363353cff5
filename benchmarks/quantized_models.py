"""Models of GGUF files beside llama.cpp, on the same file and the same cores.

    python benchmarks/quantized_models.py FILE [--as Q8_0 Q4_K] [--threads 1 2] [--rounds 5] [--only free-1 ...]
        [--processor] [--save | --add]
    python benchmarks/quantized_models.py FILE --agree TEXT [--prompts 200] [--save]

Each engine has a process of its own, pinned to as many cores as it has threads; they take turns, and what is given is
the median of rounds, by the clock on the wall; ratios are medians of those of each round, so that they count on a
machine with other work. With --processor seconds are those that all threads of the engine have worked, which count on
one thread where others have the core most of the time. llama.cpp is that of the package xllamacpp, asked in its own
process. With --as the same weights are run in other formats instead, quantised anew by llama.cpp, or as floats; in
Q4_K, which packs 256 weights, rows of other widths are in Q5_0 then.

free-N      N texts of 64 tokens, greedy: tokens a second
json-N      N records of a schema, greedy, by its grammar and by `generate.json`: tokens a second
prompt      a prompt of about 512 tokens that begins like no other, and one token: tokens of the prompt a second
load        from the imports to the first token: seconds, those of the processor, and MB that the process has grown

With a text, prompts are cut from it, llama.cpp writes 16 tokens behind each, and trellm reads the same tokens: how
often it would have written another one, by how much it likes that better (differences of log probabilities), and how
far the log probabilities of llama.cpp's tokens are from its own. Then all tokens of the prompts are read with the same
weights in float32 too, beside which states that are rounded to 8 bits change logits.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from pathlib import Path
from typing import Any

from recording import add, save, show

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "email": {"type": "string", "pattern": "^[a-z]{3,10}@[a-z]{3,10}\\.com$"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}, "minItems": 2, "maxItems": 4},
        "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
    },
    "required": ["name", "age", "email", "tags", "zip"],
    "additionalProperties": False,
}
CLOCKS = {"wall": time.perf_counter, "processor": time.process_time}
LOADS = ("load s", "load cpu s", "load MB")
KINDS = ("load", "free-1", "json-1", "prompt", "free-8", "json-8", "free-32", "json-32")
ENGINES = ("llama.cpp", "trellm")
FORMATS = ("Q8_0", "Q4_K", "F32", "F16", "BF16")
PACKAGES = ("trellm", "xllamacpp", "gguf", "torch", "numba")
WRITTEN, LONGEST = 64, 120
WORDS = ["river", "stone", "lamp", "green", "walk", "seven", "north", "paper", "cloud", "bread"]


def prompts_of(kind: str, seed: int) -> list[str]:
    """Prompts of a kind, which begin like no others."""
    pick = random.Random(seed)
    if kind == "prompt":
        return [" ".join(f"{pick.choice(WORDS)} {pick.choice(WORDS)} {pick.randrange(10)}" for _ in range(128))]
    asked = "Write down a person as JSON." if kind.startswith("json") else "Tell me a story."
    return [
        f"<|im_start|>user\n{pick.choice(WORDS)} {pick.randrange(1000)}: {asked}<|im_end|>\n<|im_start|>assistant\n"
        for _ in range(int(kind.split("-")[1]) if "-" in kind else 1)
    ]


def resident() -> float:
    """MB of this process that are in memory."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


Clock = Callable[[], float]


def llama_cpp(path: str, threads: int, parallel: int, clock: Clock) -> Callable[[str, int], tuple[int, float]]:
    """Runs a kind by llama.cpp: tokens that count, and seconds."""
    import xllamacpp

    params: Any = xllamacpp.CommonParams()
    params.model.path = path
    params.n_ctx, params.n_parallel, params.verbosity = 1024 * parallel, parallel, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    server: Any = xllamacpp.Server(params)
    pool = ThreadPoolExecutor(parallel)

    def run(kind: str, seed: int) -> tuple[int, float]:
        options: dict[str, Any] = {"temperature": 0, "cache_prompt": False}
        if kind.startswith("json"):
            options |= {"json_schema": SCHEMA, "n_predict": LONGEST}
        else:
            options |= {"n_predict": WRITTEN if kind.startswith("free") else 1, "ignore_eos": True}
        asked = [{"prompt": prompt, **options} for prompt in prompts_of(kind, seed)]
        begin = clock()
        found: list[Any] = list(pool.map(server.handle_completions, asked))
        taken = clock() - begin
        return sum(each["timings"]["prompt_n" if kind == "prompt" else "predicted_n"] for each in found), taken

    return run


def trellm(path: str, threads: int, parallel: int, clock: Clock) -> Callable[[str, int], tuple[int, float]]:
    """Runs a kind by trellm."""
    import torch
    from trellm import Greedy, generate, models

    torch.set_num_threads(threads)
    model: Any = models.gguf(path)
    free = generate.text(model)

    def run(kind: str, seed: int) -> tuple[int, float]:
        prompts = prompts_of(kind, seed)
        begin = clock()
        if kind.startswith("json"):
            found: Any = generate.json(model, SCHEMA).run(
                prompts, search=Greedy(), max_tokens=LONGEST, batch_size=parallel
            )
        else:
            count = WRITTEN if kind.startswith("free") else 1
            found = free.run(prompts, search=Greedy(), max_tokens=count, min_tokens=count, batch_size=parallel)
        taken = clock() - begin
        if kind == "prompt":
            return len(model.tokenizer.encode(prompts[0])), taken
        return sum(len(each.token_ids) for each in found), taken

    return run


def agree(path: str, text: Path, count: int) -> dict[str, Any]:
    """Differences between both on the same tokens: a row."""
    import xllamacpp
    from kv_cache import Text
    from trellm import models

    params: Any = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.verbosity = path, 1024, 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    server: Any = xllamacpp.Server(params)
    with tempfile.TemporaryDirectory() as folder:
        made: list[Any] = [models.gguf(each) for each in (path, requantized(Path(path), Path(folder), "F32"))]
    model, plain = made
    words = text.read_text(encoding="utf-8").split()
    pick, far, margins, tokens = random.Random(1), list[float](), list[float](), 0
    apart, spread, most, changed = list[float](), list[float](), 0.0, 0
    for _ in range(count):
        at = pick.randrange(len(words) - 40)
        prompt = " ".join(words[at : at + pick.randrange(4, 40)])
        answer = server.handle_completions(
            {"prompt": prompt, "n_predict": 16, "temperature": 0, "cache_prompt": False, "n_probs": 1}
        )
        theirs: list[Any] = answer["choices"][0]["logprobs"]["content"]
        ids = [*model.tokenizer.encode(prompt), *(each["id"] for each in theirs)]
        found, exact = (Text(own, len(ids)).read(ids) for own in (model, plain))
        errors = (found - exact).abs()
        apart += errors.mean(-1).tolist()
        spread += exact.std(-1).tolist()
        most, changed = max(most, float(errors.max())), changed + int((found.argmax(-1) != exact.argmax(-1)).sum())
        for row, each in zip(found[-len(theirs) - 1 : -1].log_softmax(-1), theirs, strict=True):
            ours = float(row[each["id"]])
            far.append(abs(ours - each["logprob"]))
            if int(row.argmax()) != each["id"]:
                margins.append(float(row.max()) - ours)
            tokens += 1
    return {
        "file": Path(path).name, "kind": "agree", "prompts": count, "tokens": tokens, "other best tokens": len(margins),
        "largest margin": round(max(margins, default=0.0), 3), "mean margin":
        round(statistics.mean(margins or [0.0]), 3), "mean of log probabilities apart":
        round(statistics.mean(far), 4), "most apart": round(max(far), 3), "places": len(apart), "other than in float32":
        changed, "logits apart": round(statistics.mean(apart), 4), "logits most apart": round(most, 3), "spread":
        round(statistics.mean(spread), 2),
    }  # fmt: skip


def work(engine: str, path: str, threads: int, parallel: int, clock: Clock) -> None:
    """A process of one engine: answers each line of a kind and a seed with a line of tokens and seconds."""
    for package in ("trellm.generate", "trellm.engine.models.loading") if engine == "trellm" else ("xllamacpp",):
        import_module(package)
    gc.collect()  # of what the imports left: a collection takes 0.2 s, and would fall into either by chance
    before, begin, spent = resident(), time.perf_counter(), time.process_time()
    run = (trellm if engine == "trellm" else llama_cpp)(path, threads, parallel, clock)
    run("first", 0)
    loaded = time.perf_counter() - begin, time.process_time() - spent
    print(json.dumps([*loaded, resident() - before]), flush=True)
    for line in sys.stdin:
        kind, seed = line.split()
        print(json.dumps(run(kind, int(seed))), flush=True)


def requantized(source: Path, folder: Path, kind: str) -> str:
    """The path of a file in a folder, with the same weights in another format."""
    from requantizing import requantize

    made = folder / f"{source.stem.rpartition('.')[0]}.{kind}.gguf"
    requantize(source, made, kind)
    return str(made)


class Worker:
    """A process of an engine, on cores of its own number."""

    def __init__(self, engine: str, path: str, threads: int, parallel: int, clock: str) -> None:
        cores = sorted(os.sched_getaffinity(0))[-threads:]
        command = [sys.executable, __file__, path, "--work", engine, str(threads), str(parallel), clock]
        pinned = ["taskset", "-c", ",".join(map(str, cores)), *command]
        self._process = subprocess.Popen(
            pinned, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.loaded: list[float] = self._answer()

    def run(self, kind: str, seed: int) -> tuple[int, float]:
        """Tokens and seconds."""
        assert self._process.stdin is not None
        print(kind, seed, file=self._process.stdin, flush=True)
        tokens, taken = self._answer()
        return int(tokens), taken

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> list[float]:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("["):
                return json.loads(line)
        raise RuntimeError(f"{self._process.args} ended with {self._process.wait()}")


def measure(path: str, threads: int, kinds: Sequence[str], rounds: int, clock: str) -> list[dict[str, Any]]:
    """Rows of all kinds, those of as many texts by the same processes."""
    rows = _loads(path, threads, rounds) if "load" in kinds else []
    others = {kind: int(kind.split("-")[1]) if "-" in kind else 1 for kind in kinds if kind != "load"}
    for parallel in sorted(set(others.values())):
        workers = {engine: Worker(engine, path, threads, parallel, clock) for engine in ENGINES}
        try:
            for kind in (kind for kind, count in others.items() if count == parallel):
                rows.append({**_rates(path, threads, kind, workers, rounds), "clock": clock})
                show([rows[-1]])
        finally:
            for worker in workers.values():
                worker.close()
    return rows


def _loads(path: str, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Rows of what it takes to load, by new processes."""
    found: dict[str, list[list[float]]] = {engine: [] for engine in ENGINES}
    for _ in range(rounds):
        for engine, loads in found.items():
            worker = Worker(engine, path, threads, 1, "wall")
            loads.append(worker.loaded)
            worker.close()
    rows: list[dict[str, Any]] = []
    for place, unit in enumerate(LOADS):
        each = {engine: [load[place] for load in loads] for engine, loads in found.items()}
        ratio = statistics.median(theirs / ours for theirs, ours in zip(*each.values(), strict=True))
        given = {engine: statistics.median(own) for engine, own in each.items()}
        rows.append(_row(path, threads, unit, given, ratio))
    show(rows)
    return rows


def _rates(path: str, threads: int, kind: str, workers: dict[str, Worker], rounds: int) -> dict[str, Any]:
    rates: dict[str, list[float]] = {engine: [] for engine in workers}
    for seed in range(1, rounds + 2):
        for engine, worker in workers.items():
            tokens, taken = worker.run(kind, seed)
            if seed > 1:  # the first one is not counted
                rates[engine].append(tokens / taken)
    given = {engine: statistics.median(own) for engine, own in rates.items()}
    ratio = statistics.median(ours / theirs for theirs, ours in zip(*(rates[each] for each in ENGINES), strict=True))
    return _row(path, threads, kind, given, ratio)


def _row(path: str, threads: int, kind: str, given: dict[str, float], ratio: float) -> dict[str, Any]:
    numbers = {engine: round(value, 2) for engine, value in given.items()}
    return {"file": Path(path).name, "threads": threads, "kind": kind, **numbers, "ratio": round(ratio, 2)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--as", nargs="+", choices=FORMATS, default=[], dest="formats")
    parser.add_argument("--processor", action="store_const", const="processor", default="wall", dest="clock")
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--add", action="store_true")
    parser.add_argument("--agree", type=Path, metavar="TEXT")
    parser.add_argument("--prompts", type=int, default=200)
    parser.add_argument("--work", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        engine, threads, parallel, clock = given.work
        work(engine, given.files[0], int(threads), int(parallel), CLOCKS[clock])
        return
    if given.agree:
        rows = [agree(path, given.agree, given.prompts) for path in given.files]
        show(rows)
        if given.save:
            print(save("quantized_models_agree", rows, PACKAGES))
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [requantized(Path(path), Path(folder), kind) for path in given.files for kind in given.formats]
        rows = [
            row for path in files or given.files for threads in given.threads
            for row in measure(path, threads, given.only, given.rounds, given.clock)
        ]  # fmt: skip
    show(rows)
    if given.save or given.add:
        print((save if given.save else add)("quantized_models", rows, PACKAGES))


if __name__ == "__main__":
    main()
