"""`trellm warmup` reaches every compiled kernel, and builds the values of many schemas."""

import os
import subprocess
import sys
import textwrap

import pytest

# Without the JIT kernels are Python functions, and a profiler sees which of them are called.
SCRIPT = """
    import ast, sys
    from pathlib import Path
    import trellm.kernels
    from trellm.cli.warmup import warm
    from trellm.kernels.logits import warmup

    folder = Path(trellm.kernels.__file__).parent
    called = set()
    def seen(frame, event, argument):
        if event == "call":
            called.add((Path(frame.f_code.co_filename), frame.f_code.co_name))
    def is_kernel(node):
        return isinstance(node, ast.FunctionDef) and "njit" in "".join(map(ast.unparse, node.decorator_list))

    sys.setprofile(seen)
    warm(lambda name, seconds: None)
    sys.setprofile(None)
    kernels = {
        node.name: (file, {name.id for name in ast.walk(node) if isinstance(name, ast.Name)})
        for file in folder.rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if file.name != "compiling.py" and is_kernel(node)
    }
    assert len(kernels) > 50
    # A kernel is compiled with each that mentions it.
    compiled = [name for name, (file, _) in kernels.items() if (file, name) in called]
    for name in compiled:
        compiled += [other for other in kernels[name][1] if other in kernels and other not in compiled]
    # Those on quantized weights are nothing but what is compiled.
    compiled += [name for name, _ in warmup.quantized_thunks()]
    for name in compiled:
        compiled += [other for other in kernels[name][1] if other in kernels and other not in compiled]
    print(sorted(set(kernels) - set(compiled)))
"""


COMMON_VALUES = """
    from trellm import Limits, LimitError, Vocabulary
    from trellm.cli.small_guides import guide_thunks
    from trellm.guides import JSONGuide

    vocabulary = Vocabulary.from_bytes()
    values = [{"type": "integer"}, *({"type": "string", "format": each} for each in ("date-time", "email", "uri"))]
    def made():
        guides = 0
        for value in values:
            try:
                guide = JSONGuide({"items": value, "type": "array"}, vocabulary, limits=Limits(work=20_000))
                guide.mask(guide.start)
                guides += 1
            except LimitError:
                pass
        return guides
    before = made()
    for _, thunk in guide_thunks():
        thunk()
    print(before, made())
"""


def test_what_many_schemas_contain_is_built_beforehand() -> None:
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(COMMON_VALUES)], capture_output=True, text=True)
    assert done.stdout == "0 4\n", done.stderr


@pytest.mark.slow
def test_every_kernel_is_called() -> None:
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(SCRIPT)],
        capture_output=True,
        text=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[]\n"
