"""The automaton's kernels run from the same source without the JIT, where NumPy checks bounds and overflows."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TESTS = [
    "chart/test_chart.py::test_counted_and_empty_turns",
    "chart/test_chart.py::test_dropping_rows_changes_nothing",
    "lift/test_closing.py::test_distances_and_masks_against_the_partial_match_guide",
    "test_laws.py::test_patterns",
    "lift/test_lift.py::test_every_state_of_a_bounded_string",
    "test_sharing.py::test_giving_up_states_changes_nothing",
]


@pytest.mark.slow
def test_the_same_source_runs_without_jit() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-c",
            str(HERE.parents[1] / "pyproject.toml"),
            *(str(HERE / name) for name in TESTS),
        ],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert " passed" in done.stdout and "skipped" not in done.stdout
