"""Draws the pictures on these pages, out of what guides say of themselves: `python docs/draw.py`."""

from pathlib import Path

PATTERN = r"([0-9]+)?\.[0-9]+"
TOKENS = [b"1", b"23", b".", b".5", b"7.", b"3.1", b"1.2.3", b"a", b" 4", None]
GRAMMAR = Path(__file__).parent / "grammars" / "arithmetic.lark"


def pictures() -> dict[str, str]:
    """The SVG files of this folder, by name."""
    from trellm import Vocabulary
    from trellm.guides import CFGGuide, RegexGuide, SubstringGuide

    number = RegexGuide(PATTERN, Vocabulary(TOKENS, eos_ids=[9]))
    grammar = CFGGuide(GRAMMAR.read_text(encoding="utf-8"), Vocabulary.from_bytes())
    quotations = SubstringGuide("abcbc", Vocabulary.from_bytes(), boundary="character")
    return {
        "dfa.svg": number.to_svg(tokens=True),
        "grammar.svg": grammar.to_svg(),
        "quotations.svg": quotations.to_svg(),
    }


if __name__ == "__main__":
    for name, svg in pictures().items():
        (Path(__file__).parent / name).write_text(svg, encoding="utf-8")
