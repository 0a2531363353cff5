"""Every architecture that transformers has for text, random and small: does it run, how, and how fast.

    python benchmarks/architectures.py [--only llama gpt2 ...] [--rounds 3] [--save]

Hidden size 32, two layers or one of each kind, float64 where the architecture computes in it, so that rounding decides
nothing; two prompts of different lengths together. docs/architectures.py makes the table of docs/supported-models.md.

greedy, beams: whether 12 tokens are those of transformers' `generate` with its cache, greedy and with 3 beams; "no
    cache": they are those of `generate(use_cache=False)`, from which its own cached ones differ
kept: how a text's past is kept
one, eight: times as fast as transformers' `generate` with its cache, with hidden size 128 and in float32, on one core
    with one thread; medians of CPU time in turn: one text of 24 tokens after a prompt of 40, and eight of 24 tokens
    after prompts of 8 to 64
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

from recording import pin_to_one_core, save, show
from tiny_configs import tiny

PROMPTS = [23, 2]
NEW = 12
LENGTHS = [8, 16, 24, 32, 40, 48, 56, 64]
ONE, EIGHT = 24, 24
WIDE = 128
SECONDS = 60
MAX = 30_000_000
# Decoders that need pictures or speech beside a prompt.
NOT_TEXT = {
    "git",
    "whisper",
    "trocr",
    "moshi",
    "musicgen",
    "musicgen_melody",
    "phi4_multimodal",
    "emu3",
}
KEPT = {
    "packed": "packed blocks", "padded": "padded blocks", "aligned": "blocks, padded in front",
    "equal": "blocks, rows of equal lengths", "whole": "none",
}  # fmt: skip


def names() -> list[str]:
    """All architectures with a head for text."""
    from transformers.models.auto import modeling_auto as auto

    kinds = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)
    return sorted({name for kind in kinds for name in kind} - NOT_TEXT)


def network_of(name: str, hidden: int, dtype: Any) -> Any:
    """A random model, that never ends a text."""
    import torch
    import transformers
    from transformers.models.auto import modeling_auto as auto

    config = tiny(name, hidden)
    both = name in auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES and config.is_encoder_decoder
    kind = transformers.AutoModelForSeq2SeqLM if both else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        size = sum(weights.numel() for weights in kind.from_config(config).parameters())
    if size > MAX:
        raise ValueError(f"{size:,} weights in its smallest configuration")
    torch.manual_seed(1)
    try:
        network: Any = kind.from_config(config, experts_implementation="eager")
    except (TypeError, ValueError):
        network = kind.from_config(config)
    network = network.eval().to(dtype)
    network.generation_config.eos_token_id = network.generation_config.forced_eos_token_id = None
    network.config.forced_eos_token_id = None
    return network


def tokenizer_of() -> Any:
    """All bytes, and three specials."""
    import transformers
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    tokens = ["<bos>", "<eos>", "<pad>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
    backend = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    backend.decoder = decoders.ByteLevel()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=backend, bos_token="<bos>", eos_token="<eos>")


def texts(lengths: list[int]) -> list[list[int]]:
    """Prompts of these lengths."""
    pick = random.Random(4)
    return [[pick.randrange(3, 259) for _ in range(length)] for length in lengths]


def theirs(network: Any, prompts: list[list[int]], count: int, **options: Any) -> list[list[int]]:
    """What transformers writes, all prompts together, padded on the left."""
    import torch

    longest = max(map(len, prompts))
    ids = torch.tensor([[2] * (longest - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (longest - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    out = network.generate(
        input_ids=ids, attention_mask=mask, max_new_tokens=count, min_new_tokens=count, do_sample=False,
        pad_token_id=2, suppress_tokens=[1], **options,
    )  # fmt: skip
    return [row[-count:].tolist() for row in out]


def ours(generator: Any, prompts: list[list[int]], count: int, **options: Any) -> list[list[int]]:
    """What we write."""
    found = generator.run(prompts, max_tokens=count, min_tokens=count, heal=False, draft=False, **options)
    return [list(each.token_ids) for each in found]


def kept(model: Any) -> str:
    """How a text's past is kept."""
    way = getattr(model, "_way", None)
    if way is None:
        return KEPT["equal"]
    if way.rows != "states":
        return KEPT[way.rows]
    attends = any(kind.reach is not None for kind in model._kinds)
    blocks = "" if not attends else " and packed blocks" if way.blocks else " and blocks"
    return f"slots{blocks}{', texts alone' if way.alone else ''}"


def correct(network: Any, model: Any) -> dict[str, Any]:
    """Whether the texts are those of transformers, each prompt alone there."""
    from trellm import Beam, generate

    generator = generate.text(model)
    prompts = texts(PROMPTS)
    row: dict[str, Any] = {}
    for label, mine, other in (("greedy", {}, {}), ("beams", {"search": Beam(3)}, {"num_beams": 3})):
        found = ours(generator, prompts, NEW, **mine)
        row[label] = "no"
        for use_cache in (True, False):
            try:
                expected = [theirs(network, [prompt], NEW, use_cache=use_cache, **other)[0] for prompt in prompts]
            except Exception as error:  # architectures raise whatever they come upon
                row[label] = f"transformers: {said(error)}"
                continue
            if found == expected:
                row[label] = "yes" if use_cache else "no cache"
                break
    return row


def fast(network: Any, model: Any, rounds: int) -> dict[str, float]:
    """How many times as fast as transformers."""
    from trellm import generate

    generator = generate.text(model)
    row: dict[str, float] = {}
    for label, prompts, count in (("one", texts([40]), ONE), ("eight", texts(LENGTHS), EIGHT)):
        times: dict[str, list[float]] = {"ours": [], "theirs": []}
        runs: dict[str, Callable[..., Any]] = {"ours": ours, "theirs": theirs}
        for _ in range(rounds + 1):
            for who, subject in (("ours", generator), ("theirs", network)):
                begin = time.process_time()
                runs[who](subject, prompts, count)
                times[who].append(time.process_time() - begin)
        mine, other = (statistics.median(each[1:]) for each in times.values())
        row[label] = other / mine
    return row


def said(error: BaseException) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"


def adapted(network: Any, tokenizer: Any) -> tuple[Any, str]:
    """The model in our hands, and why it has no cache if it has none."""
    from trellm import OptionError, models

    try:
        return models.transformers(network, tokenizer), ""
    except OptionError as error:
        if "pass cache=False" not in str(error):
            raise
        return models.transformers(network, tokenizer, cache=False), said(error)


def measured(name: str, tokenizer: Any, rounds: int) -> dict[str, Any] | None:
    """A row of the table; None for what is no model for text alone, or too large even so."""
    import torch
    from trellm import OptionError

    row: dict[str, Any] = {"architecture": name}
    try:
        network = network_of(name, 32, torch.float64)
        row["class"] = type(network).__name__
        try:
            theirs(network, texts([5]), 3)
        except Exception:  # some layers compute in float32 whatever they are given
            network = network.float()
            theirs(network, texts([5]), 3)
    except Exception as error:
        print(f"{name}: not compared ({said(error)})", flush=True)
        return None
    try:
        try:
            model, row["note"] = adapted(network, tokenizer)
        except OptionError:  # masks of some overflow in float64
            network = network.float()
            model, row["note"] = adapted(network, tokenizer)
        row |= {"kept": kept(model), "dtype": str(network.dtype).removeprefix("torch.")} | correct(network, model)
        if rounds and row["kept"] != "none":
            wide = network_of(name, WIDE, torch.float32)
            row |= fast(wide, adapted(wide, tokenizer)[0], rounds)
    except Exception as error:
        row["note"] = said(error)
    return row


def _late(*_: Any) -> None:
    raise TimeoutError(f"not done after {SECONDS} s")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--part", default="1/1", help="2/3: every third architecture, beginning with the second")
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    pin_to_one_core()
    part, parts = map(int, given.part.split("/"))
    os.sched_setaffinity(0, {(part - 1) % (os.cpu_count() or 1)} if parts > 1 else os.sched_getaffinity(0))
    import torch
    import transformers

    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, _late)
    tokenizer = tokenizer_of()
    rows: list[dict[str, Any]] = []
    for name in given.only or names()[part - 1 :: parts]:
        signal.alarm(SECONDS)
        try:
            row = measured(name, tokenizer, given.rounds)
        except TimeoutError as error:
            row = {"architecture": name, "note": str(error)}
        signal.alarm(0)
        if row is not None:
            rows.append(row)
            print(" ".join(f"{key}={value:.2f}" if isinstance(value, float) else f"{key}={value}"
                           for key, value in row.items()), flush=True)  # fmt: skip
            if given.save:
                save(f"architectures{'' if parts == 1 else f'_{part}'}", rows, ["trellm", "transformers", "torch"])
    show(rows)


if __name__ == "__main__":
    main()
