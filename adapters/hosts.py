"""Import of other engines, with a check of the interface that an adapter needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from ..errors import OptionError


def interface(host: str, package: str, tried: str, needed: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Import the names that an adapter needs of a host.

    host: its usual name; package: its distribution; tried: the versions that the adapter was tested with; needed: names
    by module. A name with a dot is an attribute of the name before it, and only checked.
    Raises OptionError if the host is not installed, cannot be imported, or lacks one of the names.
    """
    values: dict[str, Any] = {}
    for module, names in needed.items():
        try:
            imported = import_module(module)
        except ModuleNotFoundError as error:
            missing = error.name or module
            if missing.split(".")[0] == module.split(".")[0]:
                raise _missing_error(host, package, tried, module) from error
            raise OptionError(
                f"{host} needs {missing}, which is not installed; install {host} with all its dependencies: "
                f"pip install {package}"
            ) from error
        except (ImportError, OSError, RuntimeError, AttributeError) as error:
            raise OptionError(
                f"{host} is installed, but cannot be imported: {error}. Reinstall it: pip install --force-reinstall "
                f"{package}; {tried} was tested"
            ) from error
        for name in names:
            value: Any = imported
            for part in name.split("."):
                value = getattr(value, part, None)
                if value is None:
                    raise _missing_error(host, package, tried, f"{module}.{name}")
            values[name] = value
    return values


def _missing_error(host: str, package: str, tried: str, name: str) -> OptionError:
    try:
        installed = version(package)
    except PackageNotFoundError:
        return OptionError(f"{host} is not installed: there is no {name}. pip install {package}; {tried} was tested")
    return OptionError(
        f"{host} {installed} has no {name}, which the adapter needs: its interface has changed. {tried} was tested; "
        "install that, or use adapters.Session and adapters.fill_bitmask, which need no host"
    )
