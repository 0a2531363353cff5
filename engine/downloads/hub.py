"""Models of the Hugging Face Hub, downloaded to the Hub's own cache, where transformers finds them by name."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from textwrap import shorten
from typing import Any

from ...errors import ModelError, OptionError

PATTERNS = (
    *("*.safetensors", "*.safetensors.index.json", "config.json", "generation_config.json", "adapter_config.json"),
    *("tokenizer*", "special_tokens_map.json", "added_tokens.json", "vocab.*", "merges.txt", "*.model", "*.tiktoken"),
    *("chat_template*", "*.jinja", "*.py"),
)
"""Files of a model to download: weights, configuration, tokenizer."""
OMITTED = ("*/*.safetensors", "*/*.model", "consolidated*.safetensors")
"""Duplicates of the weights in formats of the makers' own code."""
_REASON = 200


@dataclass(frozen=True)
class CachedModel:
    """A model in the Hub's cache.

    name: as for `--model`
    revision: its branches and tags, or else its commit; None for `main`, which the name alone means
    size, path: bytes and location of its files
    """

    name: str
    revision: str | None
    size: int
    path: Path


def cached_file(repository: str, file: str) -> str | None:
    """Return the path of a cached file of the branch `main`; None if it is not cached. Raises OptionError."""
    hub: Any = import_module("huggingface_hub")
    try:
        found: Any = hub.try_to_load_from_cache(repository, file)
    except hub.errors.HFValidationError as error:
        raise OptionError(f"{repository!r} is no name of a model on the Hub: {error}") from None
    return found if isinstance(found, str) else None  # besides None, a mark that the repository has no such file


def pull(repository: str, file: str | None, *, revision: str | None, force: bool, bars: bool) -> Path:
    """Download missing files of a model. Return the folder of a snapshot, or the path of one GGUF file.

    file: a GGUF file; None for safetensors with configuration and tokenizer
    revision: a branch, a tag or a commit; None for the Hub's default
    force: download existing files again
    bars: show progress on standard error

    Raises ModelError with advice, OptionError for an invalid name.
    """
    hub: Any = import_module("huggingface_hub")
    name = repository if file is None else f"{repository}:{file}"
    try:
        names = [entry.rfilename for entry in hub.HfApi().model_info(repository, revision=revision).siblings or ()]
        _check_files(name, file, names)
        options = {"revision": revision, "force_download": force}
        with _progress(hub.utils, bars):
            if file is not None:
                return Path(hub.hf_hub_download(repository, file, **options))
            options |= {"allow_patterns": list(PATTERNS), "ignore_patterns": list(OMITTED)}
            return Path(hub.snapshot_download(repository, **options))
    except ModelError:
        raise
    except Exception as error:  # the library and its dependencies raise various exceptions
        reason = f"{type(error).__name__}: {shorten(str(error), _REASON, placeholder='...')}"
        if isinstance(error, hub.errors.HFValidationError):
            raise OptionError(f"{repository!r} is no name of a model on the Hub ({reason})") from None
        raise ModelError(f"{name} cannot be fetched ({reason}); {_advice(hub.errors, error, name)}") from error


@contextmanager
def _progress(utils: Any, bars: bool) -> Generator[None]:
    """Show or suppress the library's progress bars in a block. One of them ignores whether standard error is a
    terminal."""
    if bars or utils.are_progress_bars_disabled():
        yield
        return
    utils.disable_progress_bars()
    try:
        yield
    finally:
        utils.enable_progress_bars()


def _check_files(name: str, file: str | None, names: Sequence[str]) -> None:
    """Raise ModelError if a repository lacks the requested files."""
    if file is None and any(entry.endswith(".safetensors") for entry in names):
        return
    if file is not None and file in names:
        return
    files = [entry for entry in names if entry.endswith(".gguf")]
    what = "has no safetensors" if file is None else "is not there"
    listed = f"one of its GGUF files: {', '.join(files[:9])}" if files else "another repository, this has no GGUF file"
    raise ModelError(f"{name} {what}; pull {listed}, as owner/repo:FILE.gguf")


def _advice(errors: Any, error: Exception, name: str) -> str:
    if isinstance(error, errors.GatedRepoError):
        return "access is restricted; request it on the page of the model, and log in: hf auth login"
    if isinstance(error, errors.RevisionNotFoundError):
        return "--revision must be a branch, a tag or a commit of it"
    if isinstance(error, errors.RepositoryNotFoundError):
        return "check the name; for a private model log in: hf auth login"
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "unset HF_HUB_OFFLINE"
    return f"check the connection to the Hugging Face Hub and the free disk space, then: trellm pull {name}"


def cached_models() -> list[CachedModel]:
    """Return the models with safetensors, and the GGUF files, in the Hub's cache, sorted by name."""
    hub: Any = import_module("huggingface_hub")
    try:
        cache = hub.scan_cache_dir(hub.constants.HF_HUB_CACHE)
    except hub.errors.CacheNotFound:
        return []
    models = [repository for repository in cache.repos if repository.repo_type == "model"]
    found = [
        model
        for repository in models
        for revision in repository.revisions
        for model in _models_of(repository.repo_id, revision)
    ]
    return sorted(found, key=lambda model: (model.name, model.revision or ""))


def _models_of(repository: str, revision: Any) -> Iterator[CachedModel]:
    name = None if "main" in revision.refs else ", ".join(sorted(revision.refs)) or str(revision.commit_hash)
    path = Path(revision.snapshot_path)
    sizes = {file.file_path.relative_to(path).as_posix(): file.size_on_disk for file in revision.files}
    of_gguf = sorted(file for file in sizes if file.endswith(".gguf"))
    if any(file.endswith(".safetensors") for file in sizes):
        size = sum(sizes.values()) - sum(sizes[file] for file in of_gguf)
        yield CachedModel(repository, name, size, path)
    for file in of_gguf:
        yield CachedModel(f"{repository}:{file}", name, sizes[file], path / file)
