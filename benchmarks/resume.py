"""`trellm generate --resume` behind kill -9 at random moments: whether a result is lost, or there twice.

    python benchmarks/resume.py [--kills 100] [--prompts 400] [--seed 0] [--save]

The command runs with the small model, --out and --resume, and gets SIGKILL a random while after it has begun, up to
0.6 of what a whole run takes; then it runs again, until it was killed so often. A run that ends before it is killed
begins the next file. Behind each kill every whole line of the file is a result of one of the prompts, none is there
twice, and none that was there is gone. The results of a file that is finished are those of a run that nobody killed.
"""

from __future__ import annotations

import argparse
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from recording import save, show

LONGEST = 600.0
SCHEMA = {"type": "object", "properties": {"buyer": {"type": "string", "maxLength": 40}}, "required": ["buyer"]}


def command(home: Path, out: str) -> list[str]:
    """The command line that all runs have."""
    return [
        sys.executable, "-m", "trellm", "generate", "--schema", "schema.json", "--prompts", "prompts.jsonl",
        "--temperature", "1", "--seed", "1", "--out", out, "--resume",
    ]  # fmt: skip


def results(path: Path) -> dict[int, str]:
    """The output of each prompt's line, by its id; a last line that was cut off is left out. Raises AssertionError."""
    found: dict[int, str] = {}
    if path.exists():
        for line in path.read_bytes().decode().split("\n")[:-1]:
            result = json.loads(line)
            assert result["id"] not in found, f"{result['id']} is there twice"
            found[result["id"]] = result["output"]
    return found


def killed(kills: int, home: Path, longest: float, chance: random.Random) -> dict[str, Any]:
    """Counts of what is found behind each kill."""
    row = {"kills": 0, "files": 0, "lost": 0, "twice": 0, "cut_lines": 0, "before_the_first_result": 0, "different": 0}
    subprocess.run(command(home, "whole.jsonl"), cwd=home, check=True, timeout=LONGEST, capture_output=True)
    whole = results(home / "whole.jsonl")
    while row["kills"] < kills:
        out = home / f"out-{row['files']}.jsonl"
        before: dict[int, str] = {}
        while True:
            run = subprocess.Popen(command(home, out.name), cwd=home, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
            wait = chance.uniform(0, 0.6 * longest) if row["kills"] < kills else LONGEST
            try:
                _, said = run.communicate(timeout=wait)
            except subprocess.TimeoutExpired:
                run.send_signal(signal.SIGKILL)
                run.communicate()
                row["kills"] += 1
            else:
                assert run.returncode == 0, said.decode()
                break
            try:
                after = results(out)
            except AssertionError:
                row["twice"] += 1
                break
            row["lost"] += any(after.get(number) != text for number, text in before.items())
            row["before_the_first_result"] += not after
            row["cut_lines"] += out.exists() and not out.read_bytes().endswith(b"\n")
            before = after
        row["files"] += 1
        row["different"] += results(out) != whole
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--prompts", type=int, default=400)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "schema.json").write_text(json.dumps(SCHEMA))
        rows = [{"id": n, "prompt": f"Ann {n} bought {n % 7 + 1} cups."} for n in range(given.prompts)]
        (home / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        begun = time.perf_counter()
        subprocess.run(command(home, "first.jsonl"), cwd=home, check=True, timeout=LONGEST, capture_output=True)
        longest = time.perf_counter() - begun
        row = {"prompts": given.prompts, "run_s": round(longest, 1)}
        row |= killed(given.kills, home, longest, random.Random(given.seed))
    show([row])
    if given.save:
        print(save("resume", [row], ("trellm", "torch")))


if __name__ == "__main__":
    main()
