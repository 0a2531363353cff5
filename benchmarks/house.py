"""The size and the shape of the package, counted in its source and in what a call runs.

    python -m benchmarks.house [--list WORD] [--save]

Functions run are those of the package, each counted once, in whichever thread; modules are imported, the model is
loaded and kernels are compiled before. Each is counted in a process of its own. --list prints what was counted by the
measures whose names contain the word. No test asserts the figures, but for the imports that run upwards, which
tests/test_layering.py refuses.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "tests")]

import test_layering as layering  # noqa: E402
from recording import save, show  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "count": {"type": "integer"}, "paid": {"type": "boolean"}},
    "required": ["name", "count", "paid"],
}
# What code cannot count is counted by its names: a folder, and a class in it or one of its methods or attributes.
NAMED = {
    "objects that carry a request": """
        serve:ChatRequest serve:ConstraintSpec serve:GenerationRequest engine:Job engine:Request engine:Call
        engine:SequenceGroup engine:SequenceState engine:Handle engine:Piece serve:Delta
    """,
    "implementations of streaming": "engine:Cursor.read",
    "caches of transitions in Python": "guides:TransitionCache",
    "ways to run a body": """
        engine:PackedRunner engine:BodyRunner engine:DescribedDecoder
    """,
}
MAX_BRANCHES = 25
MAX_PARAMETERS = 12
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
FACE = {"trellm", "trellm.cli", "trellm.engine.models", "trellm.errors", "trellm.generate", "trellm.guides"}
FACE |= {"trellm.guides.grammar", "trellm.models", "trellm.serve"}
"""Modules of which tests may import without knowing how the package is made inside; adapters' own are too."""
OF_TUPLES = {"_asdict", "_fields", "_make", "_replace"}


def traced(name: str) -> list[list[str]]:
    """The functions that a call runs, and those that it runs again: their files and names."""
    for module in layering.KNOWN:
        if module and module[0] not in ("__main__", "adapters", "training"):
            try:
                import_module(".".join(("trellm", *module)))
            except ImportError as error:
                if (error.name or "trellm").partition(".")[0] == "trellm":  # else an optional package is absent
                    raise
    from trellm import generate, guides, models

    model = models.small()

    def make_guide() -> None:
        guides.JSONGuide(SCHEMA, model.vocabulary)

    def begin_stream() -> None:
        stream = generate.json(model, SCHEMA).stream("Ann Lee ordered 3 lamps, and has paid.")
        next(stream)
        stream.close()

    work = make_guide if name == "guide" else begin_stream
    return [_functions_of(work) for _ in range(2)]


def _functions_of(work: Callable[[], None]) -> list[str]:
    seen: set[Any] = set()

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call":
            seen.add(frame.f_code)

    threading.setprofile(note)
    sys.setprofile(note)
    work()
    sys.setprofile(None)
    threading.setprofile(None)
    # Comprehensions are functions in some versions of Python only.
    named = [code for code in seen if not code.co_name.startswith("<")]
    where = [(Path(code.co_filename), code) for code in named]
    return sorted(
        f"{file.relative_to(ROOT)}:{code.co_firstlineno} {code.co_qualname}"
        for file, code in where
        if file.is_relative_to(ROOT)
    )


def running() -> Iterator[tuple[str, list[str]]]:
    """Functions that calls run, by measure."""
    done = {}
    for name in ("stream", "guide", "stream"):  # the first one compiles kernels that are not on disk
        with ProcessPoolExecutor(1, get_context("spawn")) as process:
            done[name] = process.submit(traced, name).result()
    (guide, _), (cold, repeated) = done["guide"], done["stream"]
    yield "functions run by a cold JSONGuide of three fields", guide
    yield "functions run by generate.json(...).stream() up to its first piece, cold", cold
    yield "of these, not run by the cold JSONGuide", sorted({*cold}.difference(guide))
    yield "functions run by generate.json(...).stream() up to its first piece, repeated", repeated


def counted() -> Iterator[tuple[str, list[str]]]:
    """Findings in the source, by measure."""
    files = {file: name for name, file in layering.KNOWN.items() if name[:1] != ("training",)}
    trees = {file: ast.parse(file.read_text(encoding="utf-8")) for file in files}
    for measure, names in NAMED.items():
        yield measure, [name for name in names.split() if _exists(name, trees)]
    yield from _names(trees)
    yield "modules of the package, without training", [_short(file) for file in files]
    lines = [f"{_short(file)}:{line + 1}" for file in files for line in range(len(file.read_text().splitlines()))]
    yield "lines of the package, without training", lines
    imported = {module: layering.imports(file, layering.KNOWN) for module, file in layering.KNOWN.items()}
    up = [(package, *each) for package in layering.ROOMS for each in sorted(layering.upwards(package, imported))]
    yield "imports that run upwards", [f"{'.'.join(package)}.{room} imports {name}" for package, room, name in up]
    yield "relative imports inside functions", [*_found(trees, _local_imports)]
    yield "__new__ and __dict__ of other objects", [*_found(trees, _surgery)]
    yield "private names of others", [*_found(trees, _foreign)]
    tests = {file: ast.parse(file.read_text(encoding="utf-8")) for file in (ROOT / "tests").rglob("*.py")}
    yield "test files", [_short(file) for file in tests]
    internal = [_short(file) for file, tree in tests.items() if _internals(tree)]
    yield "test files that import internals", internal
    others = [name for name in internal if not name.startswith("tests/kernels/")]
    yield "the same, without kernels, which are compared with their references", others
    yield "attributes that tests patch", [*_found(tests, _patched)]
    rules = _broken_rules()
    yield f"functions with cyclomatic complexity above {MAX_BRANCHES}", rules["C901"]
    yield "the same, operators of conditions and comprehensions counted", [*_found(trees, _branching)]
    yield f"functions outside of kernels with more than {MAX_PARAMETERS} parameters", rules["PLR0913"]


def _short(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _exists(named: str, trees: dict[Path, ast.Module]) -> bool:
    folder, _, name = named.partition(":")
    name, _, member = name.partition(".")
    for file, tree in trees.items():
        for node in tree.body if file.is_relative_to(ROOT / folder) else ():
            if name in _defined(node) and (not member or member in _held(node)):
                return True
    return False


def _defined(node: ast.stmt) -> list[str]:
    """The names of types that a statement defines: a class, or another name for one."""
    if isinstance(node, ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = [target.id for target in targets if isinstance(target, ast.Name)]
    return [name for name in names if re.match(r"_?[A-Z]", name) and not name.isupper()]


def _held(tree: ast.AST) -> set[str]:
    """The names that a class or a module has anywhere in it: functions, variables, attributes that it sets."""
    held: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            held.add(node.name)
        elif isinstance(node, ast.Attribute | ast.Name) and isinstance(node.ctx, ast.Store):
            held.add(node.attr if isinstance(node, ast.Attribute) else node.id)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # slots, and what setattr is called with
            held.add(node.value)
    return held


def _names(trees: dict[Path, ast.Module]) -> Iterator[tuple[str, list[str]]]:
    classes: dict[str, set[Path]] = defaultdict(set)
    types: dict[str, set[Path]] = defaultdict(set)
    for file, tree in trees.items():
        for node in tree.body:
            for name in _defined(node):
                types[name.lstrip("_")].add(file)
                if isinstance(node, ast.ClassDef) and not name.startswith("_"):
                    classes[name].add(file)
    yield "public class names defined in several files", _several(classes)
    yield "the same, private ones and aliases counted", _several(types)


def _several(homes: dict[str, set[Path]]) -> list[str]:
    return [f"{name}: {', '.join(sorted(map(_short, files)))}" for name, files in homes.items() if len(files) > 1]


def _found(trees: dict[Path, ast.Module], look: Callable[[ast.Module], Iterable[ast.AST]]) -> Iterator[str]:
    """The places that `look` finds in modules."""
    for file, tree in trees.items():
        for node in look(tree):
            line = getattr(node, "lineno", 0)
            yield f"{_short(file)}:{line} {ast.unparse(node).partition(chr(10))[0]}"


def _local_imports(tree: ast.Module) -> set[ast.AST]:
    functions = (node for node in ast.walk(tree) if isinstance(node, FUNCTIONS))
    inside = (node for function in functions for node in ast.walk(function))
    return {node for node in inside if isinstance(node, ast.ImportFrom) and node.level}


def _surgery(tree: ast.Module) -> Iterator[ast.AST]:
    for node in _attributes(tree):
        if node.attr == "__dict__" or (node.attr == "__new__" and not _is_super(node.value)):
            yield node


def _foreign(tree: ast.Module) -> Iterator[ast.AST]:
    """Private attributes that nothing in their module sets or defines, and private names that are imported."""
    known = _held(tree) | OF_TUPLES
    for node in _attributes(tree):
        is_own = _is_super(node.value) or getattr(node.value, "id", None) in ("self", "cls")
        if re.match(r"_(?!_)", node.attr) and not is_own and node.attr not in known:
            yield node
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and any(re.match(r"_(?!_)", each.name) for each in node.names):
            yield node


def _attributes(tree: ast.Module) -> Iterator[ast.Attribute]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.Attribute))


def _is_super(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", None) == "super"


def _internals(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    ours = {name for name in names if layering.is_ours(name)}
    return {name for name in ours - FACE if not name.startswith("trellm.adapters")}


def _patched(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
        if re.search(r"patch\w*\.(setattr|delattr)$", called):
            yield node


def _branching(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        if isinstance(node, FUNCTIONS) and 1 + sum(map(_branches, ast.walk(node))) > MAX_BRANCHES:
            yield node


def _branches(node: ast.AST) -> int:
    """Ways that a node adds: as mccabe counts, and those of `and`, `or`, `assert` and comprehensions."""
    if isinstance(node, ast.BoolOp):
        return len(node.values) - 1
    if isinstance(node, ast.comprehension):
        return 1 + len(node.ifs)
    branch = (ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.Assert, ast.match_case)
    return int(isinstance(node, branch))


def _broken_rules() -> dict[str, list[str]]:
    """Findings of ruff by two rules: mccabe's complexity everywhere, parameters outside of kernels."""
    limits = {"lint.mccabe.max-complexity": MAX_BRANCHES, "lint.pylint.max-args": MAX_PARAMETERS}
    command = ["ruff", "check", "--isolated", "--exit-zero", "--output-format=json", "--select=C901,PLR0913"]
    command += [f"--config={name}={limit}" for name, limit in limits.items()]
    folders = [name for name in layering.FOLDERS if name != "training"]
    ran = subprocess.run([*command, *folders, *ROOT.glob("*.py")], cwd=ROOT, capture_output=True, text=True, check=True)
    found: dict[str, list[str]] = {"C901": [], "PLR0913": []}
    for each in json.loads(ran.stdout):
        place = f"{_short(Path(each['filename']))}:{each['location']['row']} {each['message']}"
        if each["code"] == "C901" or not place.startswith("kernels/"):
            found[each["code"]].append(place)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", metavar="WORD", help="print what is counted by measures that contain the word")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/house.csv")
    options = parser.parse_args()
    runs = dict(running())
    measured = {**runs, **dict(counted())}
    rows: list[dict[str, Any]] = []
    for measure, found in measured.items():
        rows.append({"measure": measure, "counted": len(found)})
        if measure in runs:
            rows[-1]["files"] = len({each.partition(":")[0] for each in found})
        if options.list is not None and options.list in measure:
            print(measure, *found, sep="\n  ")
    show(rows)
    if options.save:
        save("house", rows, ["trellm", "torch", "transformers", "numba", "ruff"])


if __name__ == "__main__":
    main()
