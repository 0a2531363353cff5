"""Kernels compiled by Numba's public means only: when that happens, and that they do the same."""

import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from trellm.kernels.jit import insides
from trellm.kernels.jit.insides import _ARRAY, _ATTRIBUTES, _FUNCTIONS, _USED, NEEDED, find_missing

pytestmark = pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")


def test_this_numba_has_all_that_is_expected() -> None:
    assert find_missing() == ""
    assert not insides.MISSING


def owner_of(place: str) -> tuple[Any, str]:
    outer, _, name = place.replace(":", ".:").rpartition(".")
    module, _, names = outer.partition(".:") if ".:" in outer else (outer, "", "")
    return (insides._at(f"{module}:{names}"), name) if names else (sys.modules[module], name.removeprefix(":"))


@pytest.mark.parametrize("place", sorted({place for place, _ in _FUNCTIONS} | set(_ATTRIBUTES)))
def test_each_thing_is_missed_where_it_is_not_there(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name = owner_of(place)
    for each in getattr(owner, "__mro__", (owner,)):
        if name in vars(each):
            monkeypatch.delattr(each, name)
    assert name in find_missing()


OTHERS = [(place, "self something else_") for place, _ in _FUNCTIONS]
OTHERS += [(place, dict(_FUNCTIONS).get(place, "")) for place, _ in _USED]


@pytest.mark.parametrize(("place", "parameters"), OTHERS)
def test_other_parameters_and_other_names_inside_are_seen(
    place: str, parameters: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*owner_of(place), eval(f"lambda {parameters.replace(' ', ', ')}: None"))
    assert place in find_missing()


def test_passes_that_are_new_or_in_another_order_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = insides._at("numba.core.compiler:DefaultPassBuilder")
    usual = builder.define_nopython_pipeline

    def changed(change: Any) -> None:
        def define(state: Any) -> Any:
            return SimpleNamespace(passes=change(usual(state).passes))

        monkeypatch.setattr(builder, "define_nopython_pipeline", define)

    changed(lambda passes: passes)
    assert find_missing() == ""
    changed(lambda passes: [*passes, (type("OneMore", (), {}), "")])
    assert "OneMore" in find_missing()
    changed(lambda passes: passes[::-1])
    assert "in its place" in find_missing()
    changed(lambda passes: [each for each in passes if each[0].__name__ != NEEDED[0]])
    assert NEEDED[0] in find_missing()


@pytest.mark.parametrize(
    ("name", "other", "missing"), [("_ARRAY", _ARRAY[::-1], "an array of"), ("SHAPE", insides.DATA, "array object")]
)
def test_another_layout_is_seen(name: str, other: Any, missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(insides, name, other)
    assert missing in find_missing()


# What makes a Numba that works, but has not inside what it has today.
OTHER_NUMBAS = {
    "nothing else": "",
    "other parameters": """
import numba.core.dispatcher
usual = numba.core.dispatcher.Dispatcher.get_call_template
numba.core.dispatcher.Dispatcher.get_call_template = lambda self, args, kws, more=None: usual(self, args, kws)
""",
    "other names": """
import numba.extending
del numba.extending.infer_getattr, numba.extending.lower_getattr_generic
""",
    "one more pass": """
from numba.core import compiler, compiler_machinery
@compiler_machinery.register_pass(mutates_CFG=False, analysis_only=True)
class OneMore(compiler_machinery.AnalysisPass):
    _name = "one_more"
    def __init__(self):
        super().__init__()
    def run_pass(self, state):
        return False
usual = compiler.DefaultPassBuilder.define_nopython_pipeline
def define(state, name="nopython"):
    manager = usual(state, name)
    manager.add_pass_after(OneMore, compiler.IRProcessing)
    manager.finalize()
    return manager
compiler.DefaultPassBuilder.define_nopython_pipeline = staticmethod(define)
""",
    "no events, no statistics": """
import sys, numba.core.event, numba.core.dispatcher
sys.modules["numba.core.event"] = None
del numba.core.dispatcher.Dispatcher.stats, numba.extending.infer_getattr
""",
}

KERNELS = """
import numpy as np
from trellm.kernels import allowed_ids, masked_sample, popcount
from trellm.kernels.jit import insides
from trellm.kernels.jit.compiling import call
from trellm.kernels.jit.arrays import Arrays, Table, Vector
from trellm.kernels.jit.wide import inner_njit, njit, shared_njit

class Inside(Arrays):
    weights: Vector[np.float64]
    factor: int

class Outside(Arrays):
    values: Vector[np.int32]
    table: Table[np.uint64]
    inside: Inside

@inner_njit
def last_of(outside):
    return outside.table[outside.table.shape[0] - 1, outside.table.shape[1] - 1]

@shared_njit
def mass(inside, first):
    total = first + 0.5
    for weight in inside.weights:
        total += inside.factor * weight
    return total

@njit(cache=False)
def use(outside, first):
    outside.table[0, 0] = mass(outside.inside, 2)
    return mass(outside.inside, first) + last_of(outside) + len(outside.values)

weights = np.array([0.5, 2.0])
weights.flags.writeable = False
arrays = Outside(np.arange(4, dtype=np.int32), np.full((3, 5), 7, np.uint64), Inside(weights, -2))
print("portable" if insides.PORTABLE else "fast", bool(insides.MISSING))
print([use(arrays, 1), call(use, arrays, 1), call(use, arrays, 2), arrays.table[0].tolist()])
print(allowed_ids(np.array([5, 2], np.uint32)).tolist(), popcount(np.array([[5, 7]], np.uint32)).tolist())
print(masked_sample(np.linspace(0, 3, 40, dtype=np.float32)[None], 0.5, top_p=0.5).tokens.tolist())
"""


def run(code: str, folder: Path, **environment: str) -> tuple[str, str]:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "TRELLM_PORTABLE_KERNELS": "", **environment}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("changes", OTHER_NUMBAS.values(), ids=OTHER_NUMBAS)
def test_kernels_do_the_same_with_other_numbas(changes: str, tmp_path: Path) -> None:
    usual, said = run(KERNELS, tmp_path)
    how, results = usual.split("\n", 1)
    assert how == "fast False" and said.count("about a minute") == 1
    other, said = run(changes + KERNELS, tmp_path, TRELLM_PORTABLE_KERNELS="" if changes else "1")
    assert other == f"portable {bool(changes)}\n{results}"
    assert said.count("some minutes") == ("no events" not in changes and "stats" not in changes)
    assert re.search("since numba .* lacks", said) or not changes or not said


@pytest.mark.slow
def test_what_is_on_the_disk_is_not_mixed(tmp_path: Path) -> None:
    code = (
        KERNELS.replace("cache=False", "cache=True").split("print([use")[0] + KERNELS[KERNELS.index("print(allowed") :]
    )
    for switch in ("", "1"):
        first, said = run(code, tmp_path, TRELLM_PORTABLE_KERNELS=switch)
        assert "compiling" in said
    for switch in ("", "1", "0"):
        again, said = run(code, tmp_path, TRELLM_PORTABLE_KERNELS=switch)
        assert said == "" and again.split("\n")[1:] == first.split("\n")[1:]
        assert again.startswith("portable" if switch == "1" else "fast")
