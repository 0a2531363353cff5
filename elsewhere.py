"""Hints for names of other libraries, in errors for unknown attributes and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches

from .errors import OptionError

_CHOICE = "generate.choice(model, [...])"
_TEXT = "generate.text(model)"
_JSON = "generate.json(model, schema)"
_PATTERN = "generate.regex(model, pattern)"
_GRAMMAR = "generate.cfg(model, grammar)"
GENERATORS: Mapping[str, str] = {
    "select": _CHOICE,
    "one_of": _CHOICE,
    "options": _CHOICE,
    "classify": _CHOICE,
    "enum": _CHOICE,
    "gen": f"{_TEXT}, or {_PATTERN}",
    "generate": _TEXT,
    "chat": f'{_TEXT}, called with [{{"role": "user", "content": "..."}}]',
    "completion": _TEXT,
    "stream": f"{_TEXT}.stream(prompt)",
    "pattern": _PATTERN,
    "regexp": _PATTERN,
    "grammar": _GRAMMAR,
    "lark": _GRAMMAR,
    "ebnf": _GRAMMAR,
    "gbnf": _GRAMMAR,
    "json_schema": _JSON,
    "schema": _JSON,
    "pydantic": _JSON,
    "json_object": 'generate.json(model, {"type": "object"})',
    "function": _JSON,
    "tool": _JSON,
    "substring": "generate.extract(model, context)",
    "quote": "generate.extract(model, context)",
    "embed": "generate.embedding(model)",
    "encode": "generate.embedding(model)",
    "integer": "generate.format(model, int)",
    "number": "generate.format(model, float)",
    "boolean": "generate.format(model, bool)",
    "date": "generate.format(model, datetime.date)",
    "beam": "search=Beam(4), an option of calls",
}
"""Hints for `generate`: names of Outlines, guidance, lm-format-enforcer, Instructor, vLLM and SGLang."""
_HOSTS = "trellm runs models itself; guides run within other engines too, see docs/adapters.md"
_API = "trellm runs models itself and asks no server; `trellm serve` is one that OpenAI's clients ask"
MODELS: Mapping[str, str] = {
    "openai": _API,
    "azure_openai": _API,
    "anthropic": _API,
    "gemini": _API,
    "ollama": f"{_API}; files of Ollama's are GGUF: models.gguf(path)",
    "vllm": _HOSTS,
    "sglang": _HOSTS,
    "mlxlm": _HOSTS,
    "mlx_lm": _HOSTS,
    "exl2": _HOSTS,
    "llamacpp": "models.gguf(path)",
    "llama_cpp": "models.gguf(path)",
    "LlamaCpp": "models.gguf(path)",
    "Transformers": "models.transformers(name)",
    "from_transformers": "models.transformers(model, tokenizer)",
    "from_pretrained": "models.transformers(name)",
    "load": "models.transformers(name), models.gguf(path) or models.pulled(name)",
    "pull": "`trellm pull NAME` on the command line, then models.pulled(name)",
}
LOADING: Mapping[str, str] = {
    "load_in_4bit": 'weights="q4" packs weights on a CPU; else quantization_config=BitsAndBytesConfig(...)',
    "load_in_8bit": 'weights="q8" packs weights on a CPU; else quantization_config=BitsAndBytesConfig(...)',
    "token": "the Hub's token is the environment variable HF_TOKEN",
    "use_auth_token": "the Hub's token is the environment variable HF_TOKEN",
    "low_cpu_mem_usage": "leave it out: weights are mapped anyway",
    "use_safetensors": "leave it out: files of safetensors are taken where there are some",
    "model_kwargs": "give these by name",
    "tokenizer_kwargs": "load the tokenizer with them, and give it as tokenizer=",
    "local_files_only": "the environment variable HF_HUB_OFFLINE=1 says so",
    "cache_dir": "the environment variable HF_HOME says where files are",
    "max_memory": "give device_map=",
    "n_ctx": "a context is as long as the model's positions go",
    "n_gpu_layers": 'device="cuda" runs all of a model there',
}
"""Hints for `models.transformers`: arguments of `from_pretrained` and others."""


def missing(module: str, name: str, hints: Mapping[str, str], possible: list[str]) -> AttributeError:
    """Return the error for an unknown attribute of a module, with a hint."""
    if name in hints:
        return AttributeError(f"{module} has no {name!r}: {hints[name]}")
    matches = get_close_matches(name, possible, 1)
    hint = f"; did you mean {matches[0]!r}?" if matches else ""
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def unknown_argument(name: str, hints: Mapping[str, str], possible: list[str]) -> OptionError:
    """Return the error for an unknown argument, with a hint."""
    if name in hints:
        return OptionError(f"{name}= is no argument here: {hints[name]}")
    matches = get_close_matches(name, possible, 1)
    hint = f"did you mean {matches[0]}=?" if matches else f"possible are {', '.join(possible)}"
    return OptionError(f"{name}= is no argument here; {hint}")
