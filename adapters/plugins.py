"""Entry points that hosts look for among what is installed: they do nothing unless the host is told to use them."""

from __future__ import annotations

import os

NAME = "trellm"


def vllm() -> None:
    """Among vLLM's general plugins: `adapters.vllm.register()`, if VLLM_PLUGINS names "trellm"."""
    if _is_chosen("VLLM_PLUGINS"):
        from .vllm import register

        register()


def sglang() -> None:
    """Among SGLang's plugins: `adapters.sglang.register()`, if SGLANG_PLUGINS names "trellm"."""
    if _is_chosen("SGLANG_PLUGINS"):
        from .sglang import register

        register()


def _is_chosen(variable: str) -> bool:
    return NAME in (name.strip() for name in os.environ.get(variable, "").split(","))
