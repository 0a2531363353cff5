"""What of vLLM is real in tests, and what is made up for it."""

from __future__ import annotations

import ast
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from .hosts import adapter_alone, folder_of

MANAGER = "vllm.v1.structured_output"
SECOND = "vllm.v1.worker.gpu.sample.logits_processor"
REAL = {
    MANAGER,
    f"{MANAGER}.backend_types",
    f"{MANAGER}.request",
    "vllm.v1.sample.logits_processor.interface",
    SECOND,
    f"{SECOND}.interface",
    f"{SECOND}.loader",
}


@contextmanager
def vllm_alone(tokenizer: Any) -> Iterator[Any]:
    """The adapter, with vLLM around it."""
    made_up = {
        "vllm.utils.import_utils": {"LazyLoader": lambda _, names, path: sys.modules.get(path) or import_module(path)},
        "vllm.utils.torch_utils": {"guard_cuda_initialization": nullcontext},
        "vllm.logger": {"init_logger": logging.getLogger},
        "vllm.exceptions": {"VLLMValidationError": type("VLLMValidationError", (ValueError,), {})},
        "vllm.tokenizers": {"cached_tokenizer_from_config": lambda model_config: tokenizer},
    }
    with adapter_alone("vllm", REAL, made_up) as adapter:
        source = ast.parse((folder_of("vllm") / "v1/structured_output/utils.py").read_text())
        chosen = [node for node in source.body if getattr(node, "name", "") == "strip_speculative_padding"]
        exec(compile(ast.Module(chosen, []), "utils.py", "exec"), vars(import_module(MANAGER)))
        yield adapter


def config_of(size: int, **options: Any) -> Any:
    """As much of a VllmConfig as is asked for."""
    outputs = {"reasoning_parser_plugin": "", "reasoning_parser": "", "enable_in_reasoning": False}
    return SimpleNamespace(
        parallel_config=SimpleNamespace(distributed_executor_backend="mp"),
        scheduler_config=SimpleNamespace(max_num_seqs=options.pop("rows", 8)),
        model_config=SimpleNamespace(skip_tokenizer_init=False, is_diffusion=False, get_vocab_size=lambda: size),
        structured_outputs_config=SimpleNamespace(**outputs, disable_any_whitespace=False),
        num_speculative_tokens=options.pop("drafts", 4),
    )


def params_of(most: int | None = 20, **asked: Any) -> Any:
    """As much of SamplingParams as is asked for."""
    return SimpleNamespace(extra_args={"trellm": asked} if asked else None, max_tokens=most, all_stop_token_ids=())
