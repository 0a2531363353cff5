"""trellm: text generation by language models, with an own decode loop and outputs that satisfy constraints.

    from trellm import generate, models

    model = models.transformers("Qwen/Qwen3-0.6B")
    generate.regex(model, r"[0-9]{4}-[0-9]{2}-[0-9]{2}")("The moon landing was on ")

Names are imported on first use, so `import trellm` is fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import generate, guides, tools
    from .engine import models, prompts
    from .engine.engine import Engine
    from .engine.generator import Generator
    from .engine.media.audio import Audio, AudioLimits
    from .engine.media.image import Image, ImageLimits
    from .engine.results import Generation, Interrupted, TokenLogprob
    from .engine.search import SMC, Beam, Exact, Greedy, Importance, Sample, Search
    from .errors import (
        AudioError,
        BudgetError,
        Cancelled,
        ConversionError,
        GrammarError,
        GuideFileError,
        ImageError,
        LanguageError,
        LimitError,
        MediaError,
        ModelError,
        OptionError,
        PatternError,
        SamplingError,
        SchemaError,
        StateError,
        TextSyntaxError,
        TrellmError,
        VocabularyError,
    )
    from .guides.limits import Cancellation, Limits
    from .guides.protocol import Capture
    from .guides.quoting.quotation import Quote
    from .guides.quoting.source import Span
    from .guides.required_content.specs import AllOf, AnyOf, Gap, Ordered, Phrase, Template
    from .tokenizers_adapter import Vocabulary

__all__ = [
    "SMC",
    "AllOf",
    "AnyOf",
    "Audio",
    "AudioError",
    "AudioLimits",
    "Beam",
    "BudgetError",
    "Cancellation",
    "Cancelled",
    "Capture",
    "ConversionError",
    "Engine",
    "Exact",
    "Gap",
    "Generation",
    "Generator",
    "GrammarError",
    "Greedy",
    "GuideFileError",
    "Image",
    "ImageError",
    "ImageLimits",
    "Importance",
    "Interrupted",
    "LanguageError",
    "LimitError",
    "Limits",
    "MediaError",
    "ModelError",
    "OptionError",
    "Ordered",
    "PatternError",
    "Phrase",
    "Quote",
    "Sample",
    "SamplingError",
    "SchemaError",
    "Search",
    "Span",
    "StateError",
    "Template",
    "TextSyntaxError",
    "TokenLogprob",
    "TrellmError",
    "Vocabulary",
    "VocabularyError",
    "generate",
    "guides",
    "models",
    "prompts",
    "tools",
]

_MODULES = {
    "generate": ".generate",
    "guides": ".guides",
    "models": ".engine.models",
    "prompts": ".engine.prompts",
    "tools": ".tools",
}
_HOMES = {
    **dict.fromkeys(("AllOf", "AnyOf", "Gap", "Ordered", "Phrase", "Template"), ".guides.required_content.specs"),
    **dict.fromkeys(("SMC", "Beam", "Exact", "Greedy", "Importance", "Sample", "Search"), ".engine.search"),
    "Cancellation": ".guides.limits",
    "Capture": ".guides.protocol",
    "Engine": ".engine.engine",
    "Generation": ".engine.results",
    "Generator": ".engine.generator",
    **dict.fromkeys(("Audio", "AudioLimits"), ".engine.media.audio"),
    **dict.fromkeys(("Image", "ImageLimits"), ".engine.media.image"),
    "Interrupted": ".engine.results",
    "Limits": ".guides.limits",
    "Quote": ".guides.quoting.quotation",
    "TokenLogprob": ".engine.results",
    "Span": ".guides.quoting.source",
    "Vocabulary": ".tokenizers_adapter",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        value: Any = import_module(_MODULES[name], __name__)
    elif name in __all__:
        value = getattr(import_module(_HOMES.get(name, ".errors"), __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
