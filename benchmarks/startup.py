"""Starting: what `import trellm` costs, and the first token of a fresh process beside transformers' own.

    python benchmarks/startup.py [--tokenizer DIR] [--rounds 7]

The model is a tiny random Llama in a temporary folder; its tokenizer is a small byte-level one unless another is
given. First token: from starting Python to the moment at which the token is printed, everything loaded from disk,
kernels compiled before. Processes take turns; medians.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import pin_to_one_core, save, show

IMPORT = "import time; begin = time.perf_counter(); import trellm; print(time.perf_counter() - begin)"
FIRST_TOKEN = {
    "transformers": """
import sys
from transformers import AutoModelForCausalLM, AutoTokenizer
model = AutoModelForCausalLM.from_pretrained(sys.argv[1])
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
out = model.generate(**tokenizer("The year is ", return_tensors="pt"), max_new_tokens=1, do_sample=False)
print(tokenizer.decode(out[0, -1]))
""",
    "trellm, free": """
import sys
from trellm import generate, models
print(next(generate.text(models.transformers(sys.argv[1])).stream("The year is ", max_tokens=1)))
""",
    "trellm, constrained": """
import sys
from trellm import generate, models
print(next(generate.regex(models.transformers(sys.argv[1]), r"[0-9]{1,8}").stream("The year is ", max_tokens=8)))
""",
}


def make_folder(folder: str, tokenizer: str | None) -> None:
    """Save a tiny random Llama with the tokenizer."""
    from tokenizers import Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    if tokenizer is None:
        tokens = ["<eos>", *sorted(pre_tokenizers.ByteLevel.alphabet())]
        small = Tokenizer(BPE({token: number for number, token in enumerate(tokens)}, []))
        small.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        small.decoder = decoders.ByteLevel()
        made: Any = PreTrainedTokenizerFast(tokenizer_object=small, eos_token="<eos>", pad_token="<eos>")
    else:
        made = AutoTokenizer.from_pretrained(tokenizer)
    made.save_pretrained(folder)
    config = LlamaConfig(
        vocab_size=len(made),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        eos_token_id=made.eos_token_id,
        tie_word_embeddings=True,
    )
    LlamaForCausalLM(config).save_pretrained(folder)


def first_token(code: str, folder: str) -> float:
    """Seconds until a fresh process has printed its token."""
    begin = time.perf_counter()
    command = [sys.executable, "-c", code, folder]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        elapsed = time.perf_counter() - begin
    if process.returncode or not line:
        raise SystemExit(f"this failed with exit code {process.returncode}:\n{code}")
    return elapsed


def import_time() -> float:
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True, check=True)
    return float(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", help="a folder with a tokenizer, or a name on the Hub")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    pin_to_one_core()
    importing = [import_time() for _ in range(options.rounds)]
    rows: list[dict[str, Any]] = [{"measured": "import trellm", "seconds": statistics.median(importing)}]
    with tempfile.TemporaryDirectory() as folder:
        make_folder(folder, options.tokenizer)
        times: dict[str, list[float]] = {name: [] for name in FIRST_TOKEN}
        for number in range(options.rounds + 1):
            for name, code in FIRST_TOKEN.items():
                elapsed = first_token(code, folder)
                # The first round compiles kernels and fills the disk's cache.
                if number:
                    times[name].append(elapsed)
    medians = {name: statistics.median(values) for name, values in times.items()}
    rows += [
        {"measured": f"first token: {name}", "seconds": value, "/ transformers": value / medians["transformers"]}
        for name, value in medians.items()
    ]
    show(rows)
    name = "startup" if options.tokenizer is None else f"startup_{Path(options.tokenizer).name}"
    save(name, rows, ["trellm", "torch", "transformers", "numba"], options.tokenizer or "bytes")


if __name__ == "__main__":
    main()
