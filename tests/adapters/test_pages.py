"""The examples on the pages of hosts, run with tiny models; of vLLM, which needs a GPU, with its classes made up."""

from __future__ import annotations

import json
import re
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers

from ..watching import watched
from .hosts import folder_of
from .tiny_gguf import write_model
from .vllm_parts import vllm_alone

PAGES = Path(__file__).resolve().parents[2] / "docs" / "adapters"


def run(page: str, **names: Any) -> dict[str, Any]:
    """All blocks of Python of a page, one after the other; the names they have made."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (PAGES / page).read_text(encoding="utf-8"), re.M | re.S)
    assert blocks
    for block in blocks:
        exec(compile(block, page, "exec"), names)
    return names


def test_transformers(network: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()

    def small(continuous_batching_config: Any) -> None:
        # Left to itself it takes a share of the machine's memory, 15 GB of masks here, and most of a minute.
        continuous_batching_config.num_blocks, continuous_batching_config.max_batch_tokens = 16, 64

    watched(monkeypatch, model, "init_continuous_batching", small)
    model.generation_config.do_sample = False
    found = run("transformers.md", model=model, tokenizer=tokenizer)
    for ids in (found["output"][0, found["inputs"].input_ids.shape[1] :], found["result"].generated_tokens):
        assert json.loads(tokenizer.decode(ids, skip_special_tokens=True)) in (True, False)


def test_vllm(tokenizer: Any) -> None:
    with vllm_alone(tokenizer) as adapter:
        host: Any = import_module("vllm")
        host.LLM = host.SamplingParams = lambda *_, **given: SimpleNamespace(**given)
        found = run("vllm.md")
        (place,) = found["llm"].logits_processors
        module, _, name = place.partition(":")
        assert getattr(import_module(module), name) is adapter.TrellmLogitsProcessor
        found["params"].all_stop_token_ids = set()
        adapter.TrellmLogitsProcessor.validate_params(found["params"])


def test_mlx_lm(network: Any, tokenizer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("mlx", "mlx_lm"):
        monkeypatch.syspath_prepend(str(folder_of(host).parent))
    monkeypatch.chdir(tmp_path)
    network().save_pretrained("model")
    tokenizer.save_pretrained("model")
    found = run("mlx-lm.md")
    assert json.loads(found["text"]) in (True, False)
    assert json.loads(found["texts"][0]) in (True, False) and re.fullmatch("[0-9]{1,3}", found["texts"][1])


def test_llama_cpp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for host in ("gguf", "llama_cpp"):
        monkeypatch.syspath_prepend(str(folder_of(host).parent))
    monkeypatch.chdir(tmp_path)
    write_model(Path("model.gguf"))
    assert json.loads(run("llama-cpp.md")["text"]) in ("yes", "no")


def test_outlines(network: Any, tokenizer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder_of("outlines").parent))
    pytest.importorskip("outlines", reason="Outlines is there without what it needs")
    fast = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer.backend_tokenizer, eos_token="<eos>", pad_token="<eos>"
    )
    found = run("outlines.md", network=network(), tokenizer=fast)
    assert re.fullmatch("(yes|no), [a-z]{3,9}", found["text"])
    assert json.loads(found["answer"]) in (True, False)
