"""The same kernels without the JIT, the warm-up, and the package under other people's eyes."""

import os
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
import pytest
from trellm import kernels

FOLDER = Path(__file__).parent
CHECKOUT = FOLDER.parents[1]


def run_python(*arguments: str, **environment: str) -> str:
    """What a fresh process prints, started in the checkout; fails with its output."""
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=CHECKOUT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=1000,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


WITHOUT_JIT = [
    "test_select.py::test_argmax_and_logprobs_are_the_reference[True-0.5-33]",
    "test_select.py::test_argmax_and_logprobs_are_the_reference[False-one-33]",
    "test_select.py::test_only_logits_that_count_can_spoil_a_row",
    "test_select.py::test_sampling_inverts_the_distribution_of_the_reference[33-0.5-filters7]",
    "test_select.py::test_sampling_inverts_the_distribution_of_the_reference[33-0.5-filters11]",
    "test_select.py::test_the_best_k_are_the_reference[False-33-0.5-40-raw]",
    "test_select.py::test_the_best_k_are_the_reference[True-33-0.5-40-masked]",
    "test_mask.py::test_packing_and_listing[0.02-33]",
    "test_mask.py::test_apply_mask_is_the_reference[1061-7-dtype0]",
    "test_mask.py::test_apply_mask_is_the_reference[33-0-dtype2]",
]


@pytest.mark.slow
def test_the_same_source_runs_without_jit() -> None:
    out = run_python(
        *("-m", "pytest", "-c", str(CHECKOUT / "pyproject.toml")),
        *(f"{FOLDER / name}" for name in WITHOUT_JIT),
        NUMBA_DISABLE_JIT="1",
    )
    assert f"{len(WITHOUT_JIT)} passed" in out


@pytest.mark.skipif(bool(numba.config.DISABLE_JIT), reason="nothing is compiled")
@pytest.mark.slow
def test_warm_up_compiles_every_kernel_that_is_called() -> None:
    report: list[tuple[str, float]] = []
    seconds = kernels.warm(lambda name, took: report.append((name, took)))
    assert seconds >= sum(took for _, took in report) > 0
    from trellm.kernels.logits import blocks, mask, select

    called = [select.draw_kernel, mask.mask_kernel, mask.ids_kernel, mask.count_kernel]
    called += [blocks.scan_kernel, select.topk_kernel]
    before = [len(kernel.signatures) for kernel in called]
    assert min(before) > 0
    logits = np.zeros((3, 50), np.float32)
    masks, rows = kernels.pack_mask(np.ones((2, 50), np.bool_)), np.array([0, -1, 1], np.int32)
    kernels.masked_argmax(logits, masks, rows, 45, logprobs=True)
    kernels.masked_sample(logits, np.full(3, 0.5), masks, rows, 45, top_k=3, top_p=0.5, min_p=0.1, logprobs=True)
    kernels.masked_topk(logits, 4, masks, rows, 45, scores=np.zeros(3), group=3, normalise="masked")
    kernels.apply_mask(logits, masks, rows, 45)
    kernels.allowed_ids(masks[1], 45)
    assert [len(kernel.signatures) for kernel in called] == before


@pytest.mark.slow
def test_a_process_in_the_checkout_still_imports_transformers() -> None:
    code = (
        "import sys, transformers.integrations.hub_kernels, transformers.utils as u\n"
        "from transformers import AutoModelForCausalLM\n"
        "found = sys.modules.get('kernels')\n"
        "print(u.is_kernels_available(), 'numba' in sys.modules, found is None or found.__file__)\n"
    )
    available, numba, where = run_python("-c", code).split()
    assert (available, numba) == ("False", "False")
    assert where in ("True", str(CHECKOUT / "kernels" / "__init__.py"))


def test_the_package_imports_nothing_by_itself() -> None:
    code = "import sys; before = set(sys.modules); import kernels; print(sorted(set(sys.modules) - before))"
    assert "numpy" not in run_python("-c", code)
    assert "argmax" in run_python("-c", "import kernels; print(kernels.masked_argmax.__name__)")


def test_public_names_are_there_and_no_others() -> None:
    assert all(hasattr(kernels, name) for name in kernels.__all__)
    assert not hasattr(kernels, "masked_nothing")
