"""Modules of hosts that are not installed, or cannot run here, loaded alone: the rest of the host is made up."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest


def folder_of(host: str) -> Path:
    """Where a host's package lies: installed, or unpacked as TRELLM_HOSTS/HOST/HOST; skips where it is nowhere."""
    spec = find_spec(host)
    if spec is not None and spec.origin:
        return Path(spec.origin).parent
    folder = Path(os.environ.get("TRELLM_HOSTS", os.devnull)) / host / host
    if not folder.is_dir():
        pytest.skip(f"{host} is not installed, and TRELLM_HOSTS names no folder with {host}/{host}")
    return folder


class MadeUp(ModuleType):
    """A module that has whatever it is asked for: a class of that name, made when first asked for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = type(name, (Exception,) if name.endswith("Error") else (), {"__init__": lambda self, *_, **__: None})
        setattr(self, name, found)
        return found


class Finder:
    """Finds the chosen modules of a host in its folder, and makes up all others."""

    def __init__(self, host: str, folder: Path, real: set[str]) -> None:
        self.host, self.folder, self.real = host, folder, real

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if name.split(".")[0] != self.host:
            return None
        if name in self.real:
            place = self.folder.joinpath(*name.split(".")[1:])
            file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
            return spec_from_file_location(name, file, submodule_search_locations=[] if place.is_dir() else None)
        return ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return MadeUp(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


@contextmanager
def loaded_alone(host: str, real: set[str]) -> Iterator[None]:
    """A host of which only some modules are real, until the end of the block."""
    finder: Any = Finder(host, folder_of(host), real)
    sys.meta_path.insert(0, finder)
    before = {name: sys.modules.pop(name) for name in list(sys.modules) if name.split(".")[0] == host}
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.split(".")[0] == host or name == f"trellm.adapters.{host}"]:
            del sys.modules[name]
        sys.modules.update(before)


@contextmanager
def adapter_alone(host: str, real: set[str], made_up: Mapping[str, Mapping[str, Any]]) -> Iterator[Any]:
    """The adapter of a host that is loaded alone; made_up: what names of its other modules are, by module."""
    with loaded_alone(host, real):
        for module, names in made_up.items():
            vars(import_module(module)).update(names)
        yield import_module(f"trellm.adapters.{host}")
