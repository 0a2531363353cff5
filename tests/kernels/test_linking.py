"""Which kernels Python calls and which are for other kernels only, and how those are put together."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2]


def decorator_of(node: ast.AST) -> str | None:
    """njit, inner_njit or shared_njit if this is a kernel."""
    if isinstance(node, ast.FunctionDef):
        for name in (ast.unparse(decorator).split("(")[0] for decorator in node.decorator_list):
            if name.endswith("njit"):
                return name
    return None


def names_outside_kernels(node: ast.AST, known: dict[str, tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Everything that is named outside of kernels, as (module, name); `known` is what the names stand for."""
    if decorator_of(node):
        return
    if isinstance(node, ast.Name) and node.id in known:
        yield known[node.id]
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
        yield (known[node.value.id][1], node.attr)
    for child in ast.iter_child_nodes(node):
        yield from names_outside_kernels(child, known)


def meanings(file: Path, tree: ast.Module) -> dict[str, tuple[str, str]]:
    """What the names of a file stand for: the last part of a module, and the name there."""
    known = {node.name: (file.stem, node.name) for node in tree.body if decorator_of(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            home = (node.module or "kernels").split(".")[-1]
            known |= {alias.asname or alias.name: (home, alias.name) for alias in node.names}
    return known


@pytest.mark.slow
def test_the_decorators_say_what_python_calls() -> None:
    texts = {file: file.read_text() for file in PACKAGE.rglob("*.py")}
    trees = {
        file: ast.parse(text)
        for file, text in texts.items()
        if "kernels" in text or PACKAGE / "kernels" in file.parents
    }
    kernels = {
        (file.stem, node.name): kind
        for file, tree in trees.items()
        if PACKAGE / "kernels" in file.parents
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and (kind := decorator_of(node))
    }
    assert len(kernels) > 100
    called = {place for file, tree in trees.items() for place in names_outside_kernels(tree, meanings(file, tree))}
    assert {place for place, kind in kernels.items() if kind == "njit"} == called & set(kernels)


KERNELS = """
import sys
import numpy as np
from trellm.kernels.jit.compiling import inner_njit, njit, shared_njit

@inner_njit
def twice(value):
    return 2 * value

@shared_njit
def total(values):
    sum = 0
    for value in values:
        sum += twice(value)
    return sum

@shared_njit
def one_more(values):
    return total(values) + 1

@njit
def first(values):
    return one_more(values) + total(values)

@njit
def second(values):
    return -one_more(values)

@njit
def doubled(values):
    made = np.empty(values.size, np.int64)
    for i in range(values.size):
        made[i] = twice(values[i])
    return made

def compiled(kernel):
    return sum(kernel.stats.cache_misses.values())

if __name__ == "__main__":
    import kernels_here
    for name in sys.argv[1:]:
        kernel = getattr(kernels_here, name)
        print(kernel(np.arange(4)), compiled(kernel))
"""


def python(folder: Path, *arguments: str) -> str:
    """What a process prints that keeps kernels in a folder."""
    settings = {"NUMBA_CACHE_DIR": str(folder), "NUMBA_DISABLE_JIT": "0", "TRELLM_PORTABLE_KERNELS": ""}
    environment, command = {**os.environ, **settings}, [sys.executable, *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_what_compiling_needs_is_not_loaded_for_kernels_from_the_disk(tmp_path: Path) -> None:
    """Nor for those that make arrays; a kernel that is not there is compiled in the same process."""
    (tmp_path / "kernels_here.py").write_text(KERNELS)
    show = "print('numba.np.linalg' in sys.modules, here.doubled(np.arange(3)), 'numba.np.linalg' in sys.modules)"
    code = f"import sys, numpy as np, kernels_here as here; {show}"
    assert python(tmp_path, "-c", code) == "False [0 2 4] True\n"
    assert python(tmp_path, "-c", code) == "False [0 2 4] False\n"
    assert python(tmp_path, "-c", f"{code}; print(here.first(np.arange(4)))") == "False [0 2 4] False\n25\n"


@pytest.mark.slow
def test_kernels_find_each_other_when_they_come_from_the_disk(tmp_path: Path) -> None:
    (tmp_path / "kernels_here.py").write_text(KERNELS)
    run = partial(python, tmp_path, "kernels_here.py")
    assert run("twice") == "[0 2 4 6] 0\n", "kernels for other kernels are functions for Python"
    assert run("total", "first") == "12 0\n25 1\n"
    assert run("first", "second") == "25 0\n-13 1\n"
    assert run("second", "first") == "-13 0\n25 0\n"
    # Another process has compiled the same at the same time: what it left is not what `first` and `second` refer to.
    for file in tmp_path.rglob("*.total-*.nb[ic]"):
        file.unlink()
    assert run("second", "second") == "-13 1\n-13 1\n"
    assert run("second", "first") == "-13 0\n25 1\n"
    assert run("first") == "25 0\n"
