"""Plugin entry points of installed hosts. They do nothing unless the host is configured to use them."""

from __future__ import annotations

import os

NAME = "trellm"


def vllm() -> None:
    """Call `adapters.vllm.register()` as a general plugin of vLLM, if VLLM_PLUGINS names "trellm"."""
    if _is_chosen("VLLM_PLUGINS"):
        from .vllm import register

        register()


def sglang() -> None:
    """Call `adapters.sglang.register()` as a plugin of SGLang, if SGLANG_PLUGINS names "trellm"."""
    if _is_chosen("SGLANG_PLUGINS"):
        from .sglang import register

        register()


def _is_chosen(variable: str) -> bool:
    return NAME in (name.strip() for name in os.environ.get(variable, "").split(","))
