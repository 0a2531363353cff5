"""Imports run one way: cli -> serve -> engine -> guides -> {tokenizers_adapter, kernels}, without a cycle."""

import ast
import re
from collections.abc import Collection
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1]
FOLDERS = ("adapters", "cli", "engine", "guides", "kernels", "serve", "tokenizers_adapter", "training")

# What each part may import besides itself; a file at the top is a part of its own.
ALLOWED = {
    "errors": set[str](),
    "lazy": set(),
    "elsewhere": {"errors"},
    "checks": {"errors"},
    "sampling": {"errors", "checks"},
    "kernels": set[str](),
    "tokenizers_adapter": {"errors", "checks"},
    "guides": {"errors", "checks", "lazy", "tokenizers_adapter", "kernels"},
    "engine": {"errors", "checks", "elsewhere", "sampling", "guides", "tokenizers_adapter", "kernels"},
    "adapters": {"errors", "checks", "lazy", "guides", "tokenizers_adapter", "kernels"},
    "generate": {"errors", "checks", "elsewhere", "engine", "guides", "tokenizers_adapter"},
    "__init__": {"errors", "engine", "guides", "tokenizers_adapter", "generate", "tools"},
    "serve": {"errors", "checks", "lazy", "sampling", "engine", "guides", "tokenizers_adapter"},
    "tools": {"errors", "checks", "engine", "guides", "serve"},
    "cli": {"__init__", "errors", "checks", "sampling", "engine", "guides", "tokenizers_adapter", "kernels"}
    | {"generate", "serve"},
    "training": {"errors", "checks", "generate", "engine", "guides", "tokenizers_adapter"},
    "__main__": {"cli"},
}

Module = tuple[str, ...]
Imported = dict[Module, tuple[set[Module], set[str]]]


def modules() -> dict[Module, Path]:
    """Every module of the package by its path from the package's root; () is the package itself."""
    files = [*PACKAGE.glob("*.py"), *(file for folder in FOLDERS for file in (PACKAGE / folder).rglob("*.py"))]
    return {name_of(file): file for file in files}


def name_of(file: Path) -> Module:
    parts = file.relative_to(PACKAGE).with_suffix("").parts
    return parts[:-1] if parts[-1] == "__init__" else parts


def imports(file: Path, known: Collection[Module]) -> tuple[set[Module], set[str]]:
    """Modules of the package that a file imports, wherever that stands, and what it imports by absolute names."""
    relative: set[Module] = set()
    absolute: set[str] = set()
    home = (*name_of(file), "") if file.name == "__init__.py" else name_of(file)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = home[: -node.level] + tuple(node.module.split(".") if node.module else ())
            relative |= {(*base, alias.name) if (*base, alias.name) in known else base for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            absolute.add(node.module or "")
        elif isinstance(node, ast.Import):
            absolute |= {alias.name for alias in node.names}
        elif (name := named_import(node)) is not None:
            level = len(name) - len(name.lstrip("."))
            relative.add(home[:-level] + tuple(filter(None, name[level:].split("."))))
    return relative, absolute


def named_import(node: ast.AST) -> str | None:
    """The relative name that `import_module` is called with, if that is what a node does and the name stands there."""
    if not isinstance(node, ast.Call) or not node.args or not isinstance(node.args[0], ast.Constant):
        return None
    function, name = node.func, node.args[0].value
    called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", None)
    if called != "import_module" or not isinstance(name, str):
        return None
    return name if name.startswith(".") else None


def test_a_module_that_is_imported_by_its_relative_name_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever it stands, and however the function is called: circles cannot hide behind it."""
    file = tmp_path / "engine" / "sending" / "origin.py"
    file.parent.mkdir(parents=True)
    file.write_text('def made():\n    return importlib.import_module("..models", __package__)\n')
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert imports(file, KNOWN) == ({("engine", "models")}, set())


def test_a_module_of_the_package_that_is_imported_by_its_absolute_name_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "engine" / "origin.py"
    file.parent.mkdir(parents=True)
    file.write_text("def made():\n    import trellm.errors as known\n    from trellm.checks import check\n")
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    assert imports(file, KNOWN) == (set(), {"trellm.errors", "trellm.checks"})


def part_of(module: Module) -> str:
    return module[0] if module else "__init__"


# The rooms of a package in the order in which they import one another; files beside them are free to, without circles.
ROOMS: dict[Module, tuple[str, ...]] = {
    ("guides",): (
        *("graph", "chart", "automata", "regex", "explain", "lift", "quoting", "json_schema", "grammar", "distinct"),
        *("pictures", "healing", "required_content", "tagged"),
    ),
    ("engine",): (
        *("media", "memory", "sending", "search", "downloads", "models", "prompts", "decode", "exact_sampling"),
        *("drafts", "diagnostics", "device", "schedule"),
    ),
    ("guides", "json_schema"): ("read", "algebra", "automata", "witness", "compiled", "lower", "outline"),
}

KNOWN = modules()


@pytest.fixture(scope="module")
def imported() -> Imported:
    """What every module imports: read when the first test asks, since every process that runs tests loads this file."""
    return {module: imports(file, KNOWN) for module, file in KNOWN.items()}


def test_imports_run_one_way(imported: Imported) -> None:
    wrong = {
        ".".join(module): sorted(others)
        for module, (targets, _) in imported.items()
        if (others := {part_of(target) for target in targets} - {part_of(module)} - ALLOWED[part_of(module)])
    }
    assert not wrong


def test_no_module_imports_itself_in_a_circle(imported: Imported) -> None:
    """Whatever imports are for, and wherever they stand; but the package's own names, which come when first used."""
    graph = {module: targets - {module, ()} for module, (targets, _) in imported.items() if module}
    order = list(TopologicalSorter(graph).static_order())
    assert set(order) == set(KNOWN) - {()}


def upwards(package: Module, imported: Imported) -> set[tuple[str, str]]:
    """What rooms of a package take of those after them: the room, and what it imports."""
    rooms, depth = ROOMS[package], len(package)
    inside = [module for module in KNOWN if module[:depth] == package and module[depth:] and module[depth] in rooms]
    assert {module[depth] for module in inside} == set(rooms)
    return {
        (module[depth], ".".join(target[depth:]))
        for module in inside
        for target in imported[module][0].intersection(inside)
        if rooms.index(target[depth]) > rooms.index(module[depth])
    }


@pytest.mark.parametrize("package", ROOMS, ids="/".join)
def test_rooms_import_one_way(package: Module, imported: Imported) -> None:
    """A room imports itself and those before it."""
    assert not upwards(package, imported)


def test_folders_can_be_taken_in_at_a_glance() -> None:
    """No folder has more than about fifteen modules, none of which is longer than 700 lines."""
    for folder in {file.parent for file in KNOWN.values()}:
        files = [file for file in folder.glob("*.py") if file.name != "__init__.py"]
        assert len(files) <= 16, folder
    for file in KNOWN.values():
        assert len(file.read_text(encoding="utf-8").splitlines()) <= 700, file


def test_the_package_is_imported_relatively(imported: Imported) -> None:
    found = {".".join(module): names for module, (_, names) in imported.items()}
    assert not {module: own for module, names in found.items() if (own := [*filter(is_ours, names)])}


def is_ours(name: str) -> bool:
    return name.split(".")[0] == "trellm"


def test_every_module_is_shipped_and_its_types_are_checked() -> None:
    import tomllib

    tools = tomllib.loads((PACKAGE / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    folders = {".".join(["trellm", *file.parent.relative_to(PACKAGE).parts]) for file in KNOWN.values()}
    assert folders == set(tools["setuptools"]["packages"])
    included = [place for pattern in tools["pyright"]["include"] for place in PACKAGE.glob(pattern)]
    assert set(KNOWN.values()) <= {file for place in included for file in (place, *place.rglob("*.py"))}


NAMED = re.compile(rf"`((?:{'|'.join(FOLDERS)})(?:\.\w+)+)`")
"""A name by its path, as texts have it: `guides.tagged.closed_guide.ClosedGuide`."""


@pytest.mark.parametrize("folder", [*FOLDERS, "docs"])
def test_names_by_their_paths_are_there(folder: str) -> None:
    """In comments, docstrings and pages: a module, or a name that stands in it."""
    files = [file for file in (PACKAGE / folder).rglob("*") if file.suffix in (".py", ".md")]
    named = {(name, file) for file in files for name in NAMED.findall(file.read_text(encoding="utf-8"))}
    assert not {(name, str(file.relative_to(PACKAGE))) for name, file in named if not stands(tuple(name.split(".")))}


def stands(name: Module) -> bool:
    home = next(name[:size] for size in range(len(name), 0, -1) if name[:size] in KNOWN)
    rest = name[len(home) :][:1]
    return all(re.search(rf"\b{word}\b", KNOWN[home].read_text(encoding="utf-8")) for word in rest)
