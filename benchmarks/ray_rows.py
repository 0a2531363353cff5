"""The example of docs/scale.md for rows, killed in the midst: whether rows that are done are done again.

    python benchmarks/ray_rows.py [--files 12 --rows 16] [--save]

The program stands on that page, and is run as it stands there but for the size of blocks and batches, with the small
model on this machine: once until half of the rows are written, when it gets SIGKILL; then again, to its end.
Needs ray[data].
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from recording import save, show

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "scale.md"
LONGEST = 280.0
FIELDS = "Fields: buyer (string), count (integer)\nAnswer:\n"


def program(rows: int) -> str:
    """The example of the page that makes rows, with blocks and batches of so many."""
    found = [block for block in re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.M | re.S) if "map_" in block]
    assert len(found) == 1 and "BLOCK = 4096" in found[0] and "batch_size=256" in found[0]
    return found[0].replace("BLOCK = 4096", f"BLOCK = {rows}").replace("batch_size=256", f"batch_size={rows}")


def written(folder: Path, *, is_ended: bool) -> dict[str, list[Any]]:
    """The rows of each file of results; what has no end yet is left out, and is a fault where the program has ended."""
    parquet: Any = import_module("pyarrow.parquet")
    invalid: Any = import_module("pyarrow").ArrowInvalid
    found: dict[str, list[Any]] = {}
    for path in sorted((folder / "texts").glob("*.parquet")):
        try:
            found[path.name] = parquet.read_table(path).to_pylist()
        except invalid:
            if is_ended:
                raise
    return found


def count(folder: Path) -> int:
    return sum(map(len, written(folder, is_ended=False).values()))


def run(files: int, rows: int, home: Path) -> list[dict[str, Any]]:
    """The program, killed and run again: what was there before, and what came after."""
    arrow: Any = import_module("pyarrow")
    parquet: Any = import_module("pyarrow.parquet")
    (home / "rows.py").write_text(program(rows))
    (home / "questions").mkdir()
    for number in range(files):
        ids = list(range(number * rows, (number + 1) * rows))
        prompts = [f"Ann bought {each % 7 + 1} cups from shop {each}.\n\n{FIELDS}" for each in ids]
        parquet.write_table(arrow.table({"id": ids, "prompt": prompts}), home / "questions" / f"{number:04}.parquet")
    answers = home / "answers"
    command = [sys.executable, "rows.py", str(home / "questions"), str(answers)]
    begun = time.perf_counter()
    with (home / "first.log").open("w") as log:
        first = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
        while first.poll() is None and count(answers) < files * rows // 2 and time.perf_counter() - begun < LONGEST:
            time.sleep(0.1)
        first.send_signal(signal.SIGKILL)
        first.wait()
    killed = time.perf_counter() - begun
    time.sleep(3)  # actors of a driver that is dead end by themselves
    before = written(answers, is_ended=False)
    begun = time.perf_counter()
    with (home / "second.log").open("w") as log:
        second = subprocess.Popen(command, cwd=home, stdout=log, stderr=log)
        try:
            code = second.wait(LONGEST)
        except subprocess.TimeoutExpired:
            second.kill()
            code = second.wait()
    again = time.perf_counter() - begun
    if code:
        print((home / "second.log").read_text()[-3000:])
    after = written(answers, is_ended=True)
    old = {row["id"] for name in before for row in after.get(name, [])}
    new = [row["id"] for name, found in after.items() if name not in before for row in found]
    everything = [row["id"] for found in after.values() for row in found]
    valid = sum(
        row["finish_reason"] == "complete" and row["error"] is None for found in after.values() for row in found
    )
    return [{
        "rows": files * rows, "written_before": sum(map(len, before.values())), "killed_after_s": round(killed, 1),
        "made_after": len(new), "made_again": len(old & set(new)), "there_in_the_end": len(set(everything)),
        "twice": len(everything) - len(set(everything)), "complete": valid,
        "second_run_s": round(again, 1), "exit": code,
    }]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=12)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    ray: Any = import_module("ray")
    started = ray.init(num_cpus=4, object_store_memory=100 << 20, include_dashboard=False, logging_level="warning",
                       log_to_driver=False, _node_ip_address="127.0.0.1")  # fmt: skip
    os.environ["RAY_ADDRESS"] = started.address_info["gcs_address"]
    try:
        with tempfile.TemporaryDirectory() as home:
            rows = run(given.files, given.rows, Path(home))
    finally:
        ray.shutdown()
    show(rows)
    if given.save:
        save("ray_rows", rows, ["ray", "torch", "transformers", "numba"])


if __name__ == "__main__":
    main()
