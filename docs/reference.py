"""Writes docs/api.md out of the docstrings of all public names: `python docs/reference.py`."""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from trellm.guides.lift.lifted_guide import LiftedGuide

# Headline, what to say under it, the module, and its names (all public ones if none are listed).
SECTIONS: list[tuple[str, str, str, list[str]]] = [
    ("Generators", "`generate.X(model, ...)` returns a `Generator`.", "trellm.generate", []),
    ("Prompts", "", "trellm.engine.prompts", []),
    ("Images and audio", "In prompts.", "trellm", ["Image", "ImageLimits", "Audio", "AudioLimits"]),
    ("Tools", "[Tool calls](tools.md#functions) shows these at work.", "trellm.tools", []),
    ("Options", "Given by name to a call, `run`, `stream` and `generate.batch`.", "trellm.engine.options", ["Options"]),
    ("Engines", "[The engine](engine.md) shows these at work.", "trellm.engine.engine", ["Engine"]),
    ("Handles", "What `Engine.submit` gives.", "trellm.engine.handle", ["Handle", "Piece"]),
    ("Models", "", "trellm.engine.models", ["transformers", "gguf", "pulled", "small", "ziplm", "from_function"]),
    (
        "Searches",
        "How the next token is chosen among the allowed ones.",
        "trellm",
        ["Greedy", "Sample", "Beam", "Search"],
    ),
    (
        "Goals",
        "What a text must have said by its end: `include=` takes one, or a list; strings stand for phrases.",
        "trellm",
        ["Phrase", "AnyOf", "Ordered", "Template", "Gap", "AllOf"],
    ),
    ("Results", "", "trellm", ["Generation", "TokenLogprob", "Span", "Capture", "Quote", "Interrupted"]),
    (
        "Diagnostics",
        "`run(..., diagnostics=True)` gives each `Generation` its `Diagnostics`.",
        "trellm.engine.diagnostics",
        [],
    ),
    (
        "Search traces",
        "`run(..., search=Beam(...), trace=True)` gives the results of each prompt one `SearchTrace`.",
        "trellm.engine.search",
        ["SearchTrace", "TracedBeam"],
    ),
    ("Vocabularies", "", "trellm", ["Vocabulary"]),
    (
        "Guides",
        "What the engine knows of a constraint. Guides need no model, and can be plugged into other engines. All have "
        "the methods of `RowGuide` and `ByteGuide`; the others are listed with each.",
        "trellm.guides",
        [],
    ),
    (
        "Grammars",
        "`CFGGuide` takes a `Grammar` in place of its text. [Grammars](grammars.md) shows these at work.",
        "trellm.guides.grammar",
        [],
    ),
    (
        "Other engines",
        "[Guides in other engines](adapters.md) shows these at work, and the modules for hosts.",
        "trellm.adapters",
        ["Session", "DeviceMasks", "fill_bitmask", "allocate_bitmask"],
    ),
    ("Explaining", "", "trellm.guides.explain", ["explain", "Verdict"]),
    ("Limits", "`generate.X(..., limits=...)`, and every guide, takes them.", "trellm", ["Limits", "Cancellation"]),
    ("Errors", "", "trellm.errors", []),
]
INTRODUCTION = """\
# API reference

Written by [reference.py](reference.py) from the docstrings. [Quickstart](quickstart.md) shows how the pieces are used.
"""
_ITEM = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (?=\S)")
_OF_GUIDES = set(vars(LiftedGuide))
_INTERNAL = {
    "Generator.guide_cache",
    "Generator.job",
    "Generator.result",
    "Generator.run_texts",
    "Generator.value_of",
    "Limits.of",
    "Cancellation.attach",
    "Cancellation.detach",
    "Options.of",
    "Options.seeds",
    "Diagnostics.of",
    "Step.of",
}


def reference() -> str:
    """The whole page."""
    parts = [INTRODUCTION]
    for title, words, module, names in SECTIONS:
        found = import_module(module)
        parts.append(f"## {title}\n")
        parts += [f"{words}\n"] if words else []
        if module == "trellm.errors":
            parts.append(f"```text\n{inspect.cleandoc(found.__doc__ or '')}\n```\n")
            continue
        for name in names or found.__all__:
            parts += entry(name, getattr(found, name))
    return "\n".join(parts)


def entry(name: str, value: Any) -> list[str]:
    """A name with its signature and docstring; for a class of ours, its methods too."""
    if not inspect.isclass(value):
        if not callable(value):
            return [f"### {name} = {value!r}\n"]
        return [f"### {name}\n", code(f"{name}{signature(value)}"), prose(value.__doc__)]
    initial = vars(value).get("__init__")
    lines = [f"### {name}\n"]
    if not getattr(value, "_is_protocol", False):
        lines.append(code(f"{name}{signature(value)}"))
    lines.append(prose(value.__doc__))
    if inspect.isfunction(initial) and initial.__doc__:
        lines.append(prose(initial.__doc__))
    return lines + [line for method in methods(value) for line in method]


def methods(value: type) -> list[list[str]]:
    """The public methods and properties that a class has of its own."""
    found: list[list[str]] = []
    # What all guides have is described once, at the protocols.
    described = hasattr(value, "mask_within") and not getattr(value, "_is_protocol", False)
    common = _OF_GUIDES if described else set[str]()
    for base in value.__mro__:
        if not base.__module__.startswith("trellm"):
            continue
        for name, member in vars(base).items():
            function: Any = getattr(member, "fget", None) or getattr(member, "func", None) or member
            function = getattr(function, "__func__", function)
            if (
                name.startswith("_")
                or name in common
                or f"{value.__name__}.{name}" in _INTERNAL
                or not inspect.isfunction(function)
                or any(name == entry[0] for entry in found)
            ):
                continue
            plain = isinstance(member, staticmethod | classmethod) or inspect.isfunction(member)
            shown = f"{name}{signature(function, skip=1)}" if plain else name
            found.append([name, f"**`{value.__name__}.{shown}`**\n", prose(function.__doc__)])
    return [lines[1:] for lines in found]


def signature(function: Any, skip: int = 0) -> str:
    """The parameters with their defaults; types are left to the docstring and the source."""
    parameters: list[inspect.Parameter] = []
    for parameter in list(inspect.signature(function).parameters.values())[skip:]:
        parameters += options(parameter) if "Unpack" in str(parameter.annotation) else [parameter]
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain))


def options(parameter: inspect.Parameter) -> list[inspect.Parameter]:
    """What `**options: Unpack[...]` stands for: the names of that class, with the defaults of `Options`."""
    home = import_module("trellm.engine.options")
    kind = str(parameter.annotation).removeprefix("Unpack[").removesuffix("]")
    models = import_module("trellm.engine.models")
    if hasattr(models, kind):
        known = inspect.signature(models.LoadOptions).parameters
        cache = inspect.Parameter("cache", inspect.Parameter.KEYWORD_ONLY, default=True)
        return [known.get(name, cache) for name in getattr(models, kind).__annotations__]
    if not hasattr(home, kind):  # those of `generate`, where nothing is what is not given
        generate = import_module("trellm.generate")
        names = getattr(generate, kind).__annotations__
        known = {"frame": "auto", **(generate.JSON_DEFAULTS if kind == "JSONOptions" else {})}
        return [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=known.get(name)) for name in names]
    defaults = inspect.signature(home.Options).parameters
    return [defaults[name] for name in getattr(home, kind).__annotations__]


def code(text: str) -> str:
    return f"```text\n{text}\n```\n"


def prose(docstring: str | None) -> str:
    """A docstring as Markdown: its lines "name: meaning" become a list."""
    first, *rest = inspect.cleandoc(docstring or "").splitlines()
    lines = [first]
    listing = False
    for line in rest:
        item = _ITEM.match(line)
        if item:
            lines += [] if listing or not lines[-1] else [""]
            lines.append(f"- **{item[1]}**: {line[item.end() :]}")
            listing = True
        elif listing and line.startswith(" "):
            lines.append(f"  {line.strip()}")
        else:
            lines += ["", line] if listing and line else [line]
            listing = False
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "api.md").write_text(reference(), encoding="utf-8")
