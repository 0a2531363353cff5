"""The names that users rely on: adding one is a decision, losing one is a break."""

import subprocess
import sys
from importlib import import_module

import pytest

PUBLIC = {
    "trellm": """
        AllOf AnyOf Audio AudioError AudioLimits Beam BudgetError Cancellation Cancelled Capture ConversionError
        Engine Exact Gap Generation
        Generator GrammarError Greedy GuideFileError Image ImageError ImageLimits Importance Interrupted LanguageError
        LimitError Limits MediaError ModelError OptionError Ordered PatternError Phrase Quote SMC Sample SamplingError
        SchemaError Search Span StateError Template TextSyntaxError TokenLogprob TrellmError Vocabulary VocabularyError
        generate guides models prompts tools
    """,
    "trellm.generate": "Generator batch cfg choice embedding extract format fsm json regex text",
    "trellm.guides": """
        AlignedGuide ByteGuide CFGGuide ChoiceGuide DEAD FSMGuide FreeGuide GoalGuide Guide JSONGuide RegexGuide
        RowGuide SubstringGuide TaggedGuide mask_of mask_within tokens_of
    """,
    "trellm.guides.grammar": """
        Alternation Chars Grammar Literal Reference Repeat Sequence check is_gbnf parse_gbnf parse_lark
    """,
    "trellm.engine.prompts": "describe",
    "trellm.tools": "ToolAnswer ToolCall run",
    "trellm.engine.models": "Model Tokenizer from_function gguf pulled small transformers ziplm",
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_these_and_exist(module: str) -> None:
    found = import_module(module)
    assert sorted(found.__all__) == PUBLIC[module].split()
    for name in found.__all__:
        assert getattr(found, name) is not None


def test_names_not_yet_loaded_are_listed_too() -> None:
    assert set(import_module("trellm").__all__) <= set(dir(import_module("trellm")))


@pytest.mark.parametrize("module", ["trellm", "trellm.guides"])
def test_an_unknown_name_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match="no attribute 'regexp'"):
        import_module(module).regexp  # noqa: B018


@pytest.mark.parametrize("statement", ["import trellm", "from trellm.cli import main; main(['--help'])"])
def test_importing_is_light(statement: str) -> None:
    """Neither the package nor the command's help loads what takes seconds to load."""
    code = (
        f"{statement}\nimport sys\nprint([m for m in ('torch', 'numba', 'transformers', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("module", ["trellm.guides.regex", "trellm.tokenizers_adapter", "trellm.kernels"])
def test_the_leaves_do_without_torch(module: str) -> None:
    code = f"import sys, {module}\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
