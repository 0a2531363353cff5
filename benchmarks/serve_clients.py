"""Real clients against `trellm serve` with the small model, on a loopback port: what of them works.

    python benchmarks/serve_clients.py FOLDER --install [--only langchain] [--save]

Every client has an environment of its own in FOLDER, which `--install` makes, with the newest versions (from PyPI and
npm; one that is there already is left as it is). What `--only` finds is saved behind what there is. Each has a script
in `clients/`, with a line for each check; nothing is sent anywhere but to the server that is started here. A check
fails where an answer is not what it must be, whatever the model, or where it is not what the small model answers at
temperature 0.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from recording import add, save, show
from serving_process import ours, started

HERE = Path(__file__).resolve().parent / "clients"
PYTHON = {
    "instructor": ("instructor",),
    "langchain": ("langchain", "langchain-openai"),
    "litellm": ("litellm", "mcp"),  # which it imports for tools
    "pydantic_ai": ("pydantic-ai-slim[openai]",),
    "agents": ("openai-agents",),
    "anthropic": ("anthropic",),
    "ollama": ("ollama",),
    "openai": ("openai",),
    "cohere": ("cohere",),
    "llama_index": ("llama-index-embeddings-openai-like", "llama-index-postprocessor-jinaai-rerank"),
}
NODE = ("ai", "@ai-sdk/openai", "@ai-sdk/openai-compatible", "zod")
QUIET = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "OPENAI_AGENTS_DISABLE_TRACING": "1", "LANGSMITH_TRACING": "false"}
SECONDS = 600


def install(folder: Path, name: str) -> None:
    """Make the environment of a client, unless it is there."""
    home = folder / name
    if home.exists():
        return
    if name == "ai_sdk":
        home.mkdir(parents=True)
        (home / "package.json").write_text("{}")
        subprocess.run(["npm", "install", "--no-audit", "--no-fund", *NODE], cwd=home, check=True)
        return
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    subprocess.run([home / "bin" / "pip", "install", "-q", *PYTHON[name]], check=True)


def checked(folder: Path, name: str, url: str) -> list[dict[str, Any]]:
    """What the checks of a client found."""
    home = folder / name
    if name == "ai_sdk":  # modules are looked for beside the script
        shutil.copy(HERE / "with_ai_sdk.mjs", home)
        command: list[Any] = ["node", "with_ai_sdk.mjs"]
    else:
        command = [home / "bin" / "python", HERE / f"with_{name}.py"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")} | QUIET
    done = subprocess.run(
        [*command, f"{url}/v1"], cwd=home, env=environment, capture_output=True, text=True, timeout=SECONDS
    )
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"client"')]
    if done.returncode or not rows:
        raise SystemExit(f"{name} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return rows


def main() -> None:
    """Run the checks of all clients that are installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--only", action="append", choices=[*PYTHON, "ai_sdk"])
    parser.add_argument("--save", action="store_true")
    given = parser.parse_args()
    folder, names = given.folder.resolve(), given.only or [*PYTHON, "ai_sdk"]
    if given.install:
        for name in names:
            install(folder, name)
    with started(*ours(None, "--name", "small")) as server:
        url = f"http://127.0.0.1:{server.port}"
        rows = [row for name in names if (folder / name).exists() for row in checked(folder, name, url)]
    show([row for row in rows if not row["passed"]] or [{"failed": 0}])
    print(f"{sum(row['passed'] for row in rows)} of {len(rows)} checks passed")
    if given.save:
        print((add if given.only else save)("serve_clients", rows, ("starlette", "uvicorn", "pydantic")))


if __name__ == "__main__":
    main()
