"""Triton's real compiler accepts every kernel for an NVIDIA GPU, as it is launched; it needs none for that."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") == "1", reason="the interpreter is not the compiler"),
]

ROWS = {
    "stride": "i64",
    "words": "*i32",
    "width": "i32",
    "count": "i32",
    "numbers": "*i32",
    "size": "i32",
    "full_width": "i32",
    "codes": "*i64",
    "peaks": "*fp32",
    "sums": "*fp32",
    "raw_peaks": "*fp32",
    "raw_sums": "*fp32",
    "flags": "*i32",
    "cuts": "*fp32",
    "cut_tokens": "*i32",
    "settings": "*fp64",
    "batch": "i32",
    "masses": "*fp64",
    "blocks": "i32",
    "best": "*i32",
    "partial": "*fp32",
    "k_partial": "*fp32",
    "found": "*i64",
    "k_found": "*i64",
    "reached": "*fp64",
    "goals": "*fp64",
    "equals": "*i32",
    "status": "*u8",
    "tokens": "*i32",
    "tops": "*fp32",
    "masked": "*fp64",
    "raw": "*fp64",
}

CUT = {"PASSES": 8, "BLOCK": 4096, "SLOTS": 64}
STEPS = {
    f"{tensor}_{step}"
    for tensor, steps in {
        "out": ("token", "head"),
        "query": ("token", "head"),
        "key": ("block", "head", "place"),
        "value": ("block", "head", "place"),
        "new_key": ("token", "head"),
        "new_value": ("token", "head"),
    }.items()
    for step in steps
}


# Triton 3.7, which comes with torch 2.13, makes a node of a syntax tree without a field that Python 3.13 asks for.
@pytest.mark.filterwarnings("ignore:AnnAssign.__init__:DeprecationWarning")
@pytest.mark.parametrize("whole", ["any", "ones", "sixteens"])
@pytest.mark.parametrize(
    ("module", "kernel", "logits", "constants"),
    [
        ("triton_mask", "mask_blocks", "*bf16", {"BLOCK": 1024}),
        ("triton_scan", "scan_blocks", "*fp32", {"BLOCK": 1024, "KEEP": 1}),
        ("triton_scan", "scan_blocks", "*bf16", {"BLOCK": 1024, "KEEP": 16}),
        ("triton_scan", "scan_blocks", "*fp32", {"BLOCK": 1024, "KEEP": 1024}),
        ("triton_scan", "finish_rows", "", {"WITH_RAW": True, "SLOTS": 256, "KEEP": 16}),
        ("triton_scan", "finish_rows", "", {"WITH_RAW": False, "SLOTS": 1, "KEEP": 1}),
        ("triton_select", "weigh_blocks", "*fp16", {"BLOCK": 1024}),
        ("triton_select", "draw_rows", "*bf16", {"BLOCK": 1024, "SLOTS": 256}),
        ("triton_scan", "tally_blocks", "*fp32", CUT | {"PASS": 0, "MASS": False}),
        ("triton_scan", "tally_blocks", "*bf16", CUT | {"PASSES": 4, "PASS": 0, "MASS": True}),
        ("triton_scan", "tally_blocks", "*fp16", CUT | {"PASSES": 5, "PASS": 3, "MASS": True}),
        ("triton_scan", "tally_blocks", "*fp32", CUT | {"PASS": 7, "MASS": True}),
        ("triton_scan", "count_equals", "*fp32", CUT),
        ("triton_scan", "finish_cuts", "*bf16", CUT | {"FILTERED": True}),
        ("triton_scan", "finish_cuts", "*fp32", CUT | {"FILTERED": False}),
    ],
)
def test_a_kernel_compiles(
    module: str,
    kernel: str,
    logits: str,
    constants: dict[str, Any],
    whole: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: Callable[..., Any],
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    compiled(f"logits.{module}", kernel, ROWS | {"logits": logits}, constants, whole)


@pytest.mark.parametrize(
    ("dtype", "sizes", "group", "widest"),
    [
        ("bf16", (128, 128), 4, 1),
        ("bf16", (128, 128), 4, 8),
        ("bf16", (128, 128), 4, 2048),
        ("bf16", (256, 256), 2, 2048),
        ("bf16", (192, 128), 1, 2048),
        ("fp16", (24, 16), 7, 5),
        ("fp32", (64, 64), 1, 500),
        ("fp64", (16, 16), 2, 3),
    ],
)
def test_attention_compiles(
    dtype: str,
    sizes: tuple[int, int],
    group: int,
    widest: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    compiled: Callable[..., Any],
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pytest.importorskip("triton")
    from trellm.kernels.attention.triton_paged import DeviceProperties, cut_work, lanes_of

    machine = DeviceProperties(132, 170 << 10)
    bytes_each = int(dtype[2:]) // 8 if dtype != "bf16" else 2
    cut = cut_work(machine, 1, 8, group, widest, 4096, sizes, bytes_each, None)
    exact = "*fp64" if dtype == "fp64" else "*fp32"
    types = dict.fromkeys(("out", "queries", "keys", "values", "sinks", "new_keys", "new_values"), f"*{dtype}")
    types |= dict.fromkeys(("tables", "firsts", "widths", "starts", "slots"), "*i32")
    types |= dict.fromkeys(("partial", "peaks", "sums"), exact)
    types |= dict.fromkeys(("window", "chunk", "most", "tiles", "widest", "heads", *STEPS), "i32")
    shape = {"VALUE_SIZE": sizes[1], "VALUE_LANES": lanes_of(sizes[1])}
    keys = {"KEY_SIZE": sizes[0], "KEY_LANES": lanes_of(sizes[0]), "BLOCK": 16}
    tiles = {"GROUP": group, "TOKENS": cut.tokens, "ROWS": cut.rows, "KEYS": cut.keys, "SCALE": 0.1}
    options = {"num_warps": cut.warps, "num_stages": cut.stages}
    for parts, cap, with_sinks in ((1, 0.0, True), (33, 50.0, False)):
        how = {"PARTS": parts, "CAP": cap, "WITH_SINKS": with_sinks}
        made = compiled(
            "attention.triton_paged", "attend_tiles", types, shape | keys | tiles | how, steps=STEPS, **options
        )
        assert made.metadata.shared <= machine.shared
    merged = shape | {"PARTS": 33, "PART_LANES": 64, "WITH_SINKS": True}
    compiled("attention.triton_paged", "merge_parts", types, merged, steps=STEPS)
    for portion in ({"HEADS": 8}, {"HEADS": 1, "heads": 1}):
        compiled("attention.triton_paged", "write_tokens", types, shape | keys | portion, steps=STEPS)


@pytest.mark.parametrize("whole", ["any", "ones", "sixteens"])
@pytest.mark.parametrize("width", [1, 8])
def test_the_device_batch_compiles(
    width: int, whole: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiled: Callable[..., Any]
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    pytest.importorskip("triton")
    from trellm.kernels.device_batch import triton_batch
    from trellm.kernels.device_batch.layout import room_of

    kernels = (triton_batch.begin_rows, triton_batch.advance_rows)
    types = dict.fromkeys((name for kernel in kernels for name in kernel.arg_names), "*i32")
    types |= dict.fromkeys(("ids", "positions", "charsets", "loops", "keys"), "*i64")
    types |= {"draws": "*fp64", "classes": "*u8", "stride": "i64"}
    types |= dict.fromkeys(("capacity", "size", "most", "room"), "i32")
    sizes = {"WIDTH": width, "ROOM": room_of(width)}
    for kernel in kernels:
        own = {name: size for name, size in sizes.items() if name in kernel.arg_names}
        compiled("device_batch.triton_batch", kernel.__name__, types, own, whole)
