"""Draws the pictures on these pages, out of what guides say of themselves: `python docs/draw.py`.

With `--record` a real model answers first, whose tokens are drawn; this needs `trellm pull smollm2`.
"""

import csv
import json
import math
import sys
from collections.abc import Sequence
from html import escape
from pathlib import Path

PATTERN = r"([0-9]+)?\.[0-9]+"
TOKENS = [b"1", b"23", b".", b".5", b"7.", b"3.1", b"1.2.3", b"a", b" 4", None]
GRAMMAR = Path(__file__).parent / "grammars" / "arithmetic.lark"
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 40},
        "home": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
        "children": {"type": "array", "items": {"$ref": "#"}, "maxItems": 9},
    },
    "required": ["name"],
    "additionalProperties": False,
}
# Probabilities of the next word; of the others, the last of which stands for the end, next to nothing.
CHANCES: dict[str, dict[str, float]] = {
    "The": {" dog": 0.45, " nice": 0.35, " car": 0.19, " is": 0.01},
    " dog": {" and": 0.5, " runs": 0.3, " is": 0.2},
    " nice": {" car": 0.6, " dog": 0.39, " is": 0.01},
    " car": {},
    " is": {" slow": 0.4, " fast": 0.3, " mad": 0.3},
    " fast": {},
    " and": {" barks": 0.5, " runs": 0.4, " is": 0.1},
    " slow": {},
    " mad": {},
    " runs": {},
    " barks": {},
}


def next_word(ids: Sequence[int]) -> list[float]:
    """The logits after a word, as in the example of search.md."""
    words = list(CHANCES)
    after = CHANCES[words[ids[-1]]] or {" and": 0.6}
    return [math.log(after.get(word, 1e-9)) for word in [*words, "the end"]]


BAR, ROOM, HEIGHT, LABELS = 10, 10, 180, 80


def bars() -> str:
    """The shares of the texts of sampling.md, given the constraint and under a mask."""
    texts = ["00000", *(f"1{number:04b}" for number in range(16))]
    width = len(texts) * (2 * BAR + ROOM) + ROOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {HEIGHT + LABELS}" width="{width}" '
        f'height="{HEIGHT + LABELS}" font-family="sans-serif" font-size="12">',
        "<title>Shares of texts: given the constraint, and under a mask</title>",
    ]
    for place, text in enumerate(texts):
        left = ROOM + place * (2 * BAR + ROOM)
        masked = 1 / 2 if place == 0 else 1 / 32
        for number, (share, colour) in enumerate(((1 / 17, "#3a7d44"), (masked, "#c0562f"))):
            x, tall = left + number * BAR, round(share * HEIGHT * 2, 1)
            parts.append(f'<rect x="{x}" y="{HEIGHT - tall}" width="{BAR - 1}" height="{tall}" fill="{colour}"/>')
        x, y = left + BAR, HEIGHT + 8
        parts.append(f'<text x="{x}" y="{y}" text-anchor="end" transform="rotate(-60 {x} {y})">{text}</text>')
    for left, colour, words in ((200, "#3a7d44", "given the constraint"), (350, "#c0562f", "under a mask")):
        parts.append(f'<rect x="{left}" y="20" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + 16}" y="30">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


CALIBRATION = Path(__file__).parent.parent / "benchmarks" / "results" / "answers_calibration.csv"
SIDE, EDGE = 300, 40
COLOURS = {"records": "#3a7d44", "choices": "#c0562f", "labels": "#4668a8"}


def calibration() -> str:
    """The shares of right values over their probabilities, in percent; a dot is a tenth of a kind."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    with CALIBRATION.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            values, stated, right = (float(row[name]) for name in ("values", "stated", "right"))
            found.setdefault((row["kind"], row["from"]), []).append((values, stated, right))
    size = SIDE + 2 * EDGE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size + 100} {size}" width="{size + 100}" '
        f'height="{size}" font-family="sans-serif" font-size="12">',
        "<title>How often values are right, over their probabilities</title>",
        f'<rect width="{size + 100}" height="{size}" fill="white"/>',
        f'<rect x="{EDGE}" y="{EDGE}" width="{SIDE}" height="{SIDE}" fill="none" stroke="#999"/>',
        f'<path d="M{EDGE} {EDGE + SIDE}L{EDGE + SIDE} {EDGE}" stroke="#999" stroke-dasharray="4"/>',
    ]
    for share in (0, 50, 100):
        along = EDGE + share / 100 * SIDE
        parts.append(f'<text x="{along:g}" y="{EDGE + SIDE + 16}" text-anchor="middle">{share} %</text>')
        parts.append(f'<text x="{EDGE - 4}" y="{size - along + 4:g}" text-anchor="end">{share} %</text>')
    for (kind, _), several in found.items():
        count = sum(values for values, _, _ in several)
        stated, right = (sum(each[0] * each[at] for each in several) / count for at in (1, 2))
        x, y = EDGE + stated / 100 * SIDE, EDGE + (1 - right / 100) * SIDE
        radius = 1.5 * math.sqrt(count)
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{COLOURS[kind]}" fill-opacity="0.7"/>')
    for place, (kind, colour) in enumerate(COLOURS.items()):
        top = EDGE + 20 * place
        parts.append(f'<circle cx="{size}" cy="{top}" r="5" fill="{colour}"/>')
        parts.append(f'<text x="{size + 12}" y="{top + 4}">{kind}</text>')
    parts.append(f'<text x="{EDGE + SIDE / 2:g}" y="{size - 6}" text-anchor="middle">what the probability says</text>')
    parts.append(f'<text x="{EDGE}" y="{EDGE - 12}">right</text>')
    return "\n".join([*parts, "</svg>", ""])


ANSWER = Path(__file__).parent / "answer.json"
ASKED = "Kofi Adjei won the race in Kumasi in 2011. Give the name, the city and the year as JSON."
LETTER, LINE, LEGEND = 10, 26, 320


def record() -> None:
    """Keep the tokens of an answer of SmolLM2, and how much of the model's probability the constraint left for each."""
    from trellm import generate, models

    names = {"name": {"type": "string"}, "city": {"type": "string"}, "year": {"type": "integer"}}
    schema = {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}
    generator = generate.json(models.pulled("smollm2"), schema)
    result = generator.run([{"role": "user", "content": ASKED}], diagnostics=True)
    assert result.diagnostics is not None
    steps = [step for step in result.diagnostics.steps if step.token]
    kept = [{"token": step.token, "mass": step.feasible_mass, "wanted": step.leading_token} for step in steps]
    ANSWER.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def answer() -> str:
    """The tokens of the recorded answer, the redder the less of the model's probability the constraint left."""
    lines, along, shapes = 0, 0, list[str]()
    for step in json.loads(ANSWER.read_text(encoding="utf-8")):
        opacity = round(1 - step["mass"], 2)
        title = f"left {step['mass']:.0%} of the probability; the model's own choice: {step['wanted']!r}"
        for number, part in enumerate(step["token"].split("\n")):
            lines, along = (lines + 1, 0) if number else (lines, along)
            x, y, wide = 20 + along * LETTER, 20 + lines * LINE, len(part) * LETTER
            if part:
                shapes += [
                    f'<g><title>{escape(title)}</title><rect x="{x}" y="{y}" width="{wide - 1}" height="{LINE - 4}" '
                    f'rx="3" fill="#d9480f" fill-opacity="{opacity}" stroke="#999" stroke-width="0.5"/>',
                    f'<text x="{x}" y="{y + 16}" textLength="{wide - 1}" xml:space="preserve">'
                    f"{escape(part)}</text></g>",
                ]
            along += len(part)
    wide, tall = 660, 40 + (lines + 1) * LINE
    legend = [
        "The darker a token, the more of the model's",
        "probability the schema forbids there. At the",
        "year the model wanted to write a string.",
    ]
    for number, said in enumerate(legend):
        shapes.append(f'<text x="{wide - LEGEND}" y="{36 + 20 * number}" font-family="sans-serif">{said}</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" '
            'font-family="monospace" font-size="15">',
            "<title>An answer of a model under a JSON Schema, token by token</title>",
            f'<rect width="{wide}" height="{tall}" fill="white"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )


def pictures() -> dict[str, str]:
    """The SVG files of this folder, by name."""
    from trellm import Beam, Vocabulary, generate, models
    from trellm.guides import CFGGuide, JSONGuide, RegexGuide, SubstringGuide

    number = RegexGuide(PATTERN, Vocabulary(TOKENS, eos_ids=[9]))
    grammar = CFGGuide(GRAMMAR.read_text(encoding="utf-8"), Vocabulary.from_bytes())
    quotations = SubstringGuide("abcbc", Vocabulary.from_bytes(), boundary="character")
    said = generate.text(models.from_function(next_word, Vocabulary.from_characters(list(CHANCES))))
    found = said.run("The", max_tokens=3, search=Beam(3), include="is fast", trace=True)
    return {
        "answer.svg": answer(),
        "calibration.svg": calibration(),
        "beams.svg": found.trace.to_svg(),
        "dfa.svg": number.to_svg(tokens=True),
        "grammar.svg": grammar.to_svg(),
        "quotations.svg": quotations.to_svg(),
        "sampling.svg": bars(),
        "schema.svg": JSONGuide(PERSON, Vocabulary.from_bytes()).to_svg(),
    }


if __name__ == "__main__":
    if "--record" in sys.argv:
        record()
    for name, svg in pictures().items():
        (Path(__file__).parent / name).write_text(svg, encoding="utf-8")
