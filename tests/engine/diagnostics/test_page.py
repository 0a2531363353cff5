"""The web page in a real browser: headless Chromium, driven by playwright."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from trellm import Vocabulary, generate, models

from ..support import Diagnostics

ATTACK = [
    '<script>document.title = "hit"</script>',
    '"><img src=x onerror="document.title=\'hit\'">',
    "&lt;",
    "'",
    "\n",
]
TOKENS = [text.encode() for text in ATTACK] + [b"a", b" word", None]


class Opened:
    """A page that was opened, with all that went wrong and all that was fetched meanwhile."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport={"width": 900, "height": 600})
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())


def diagnostics(pattern: str, max_tokens: int) -> Diagnostics:
    model = models.from_function(
        lambda ids: [math.sin(len(ids) * (i + 1)) * 4 for i in range(8)], Vocabulary(TOKENS, [7])
    )
    found = generate.regex(model, pattern).run("a", max_tokens=max_tokens, diagnostics=True).diagnostics
    assert isinstance(found, Diagnostics)
    return found


@pytest.fixture(scope="module")
def hostile() -> Diagnostics:
    """A text that says everything which might break out of the page."""
    found = diagnostics(
        "(a| word)*" + "".join(f"({text})" if text.isspace() else _escaped(text) for text in ATTACK), 30
    )
    assert {*ATTACK} <= {step.token for step in found}
    return found


def _escaped(text: str) -> str:
    return "".join(f"[{c}]" if c not in "^\\[]" else f"\\{c}" for c in text)


def test_a_text_of_a_model_is_never_markup(browser: Any, hostile: Diagnostics, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(hostile.to_html("a <b>title</b>"), encoding="utf-8")
    opened = Opened(browser, path)
    assert opened.page.title() == "trellm diagnostics"
    assert opened.page.evaluate("document.querySelectorAll('script, img, h2 b').length") == 0
    shown = opened.page.evaluate("[...document.querySelectorAll('.text span')].map(span => span.textContent)")
    assert shown == [{"\n": "↵\n", None: "EOS"}.get(step.token, step.token) for step in hostile]
    assert (opened.errors, opened.requests) == ([], [path.as_uri()])


def test_tooltips_show_the_record(browser: Any, hostile: Diagnostics, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(hostile.to_html(), encoding="utf-8")
    opened = Opened(browser, path)
    tip = "(i) => getComputedStyle(document.querySelectorAll('.text span')[i], '::after').content"
    spans = opened.page.locator(".text span")
    for number in (0, len(hostile) - 1):
        step = hostile[number]
        assert opened.page.evaluate(tip, number) == "none"
        spans.nth(number).hover()
        said = opened.page.evaluate(tip, number)
        assert f"token {step.position}: ‹{step.name}›, id {step.token_id}" in said.replace('\\"', '"')
        assert f"feasible mass {step.feasible_mass:.4f}" in said or "e-" in said
        assert "expected" in said
    opened.page.mouse.move(0, 0)
    spans.nth(0).focus()
    assert opened.page.evaluate(tip, 0) != "none"
    assert (opened.errors, opened.requests) == ([], [path.as_uri()])


# The least contrast of a text and what is behind it, shades with alpha put over each other, as WCAG 2 defines it
CONTRAST = """() => {
  const channels = (colour) => { const [r, g, b, a = 1] = colour.match(/[0-9.]+/g).map(Number); return [r, g, b, a]; };
  const over = (top, ground) => ground.map((value, i) => i < 3 ? top[i] * top[3] + value * (1 - top[3]) : 1);
  const light = (colour) => colour.slice(0, 3).map((value) => value / 255)
    .map((value) => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4)
    .reduce((sum, value, i) => sum + value * [0.2126, 0.7152, 0.0722][i], 0);
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.backgroundColor = "Canvas";
  const canvas = channels(getComputedStyle(probe).backgroundColor);
  probe.remove();
  const ground = (element) => element === null ? canvas
    : over(channels(getComputedStyle(element).backgroundColor), ground(element.parentElement));
  const contrast = (text, behind) => {
    const [less, more] = [light(over(text, behind)), light(behind)].sort((one, other) => one - other);
    return (more + 0.05) / (less + 0.05);
  };
  const found = [];
  for (const element of document.querySelectorAll(".trellm *")) {
    const style = getComputedStyle(element), tip = getComputedStyle(element, "::after");
    const text = channels(style.color);
    text[3] *= Number(style.opacity);
    if ([...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
      found.push(contrast(text, ground(element)));
    if (tip.content !== "none") found.push(contrast(channels(tip.color), channels(tip.backgroundColor)));
  }
  return Math.min(...found);
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("notebook", [None, "color: #202124; background: white", "color: #e8e8e8; background: #111"])
def test_text_can_be_read_on_light_and_dark_grounds(
    notebook: str | None, scheme: str, browser: Any, hostile: Diagnostics, tmp_path: Path
) -> None:
    """As a page, and in notebooks, whose theme may be another than the system's."""
    path = tmp_path / "page.html"
    whole = f'<body style="{notebook}">{hostile._repr_html_()}</body>' if notebook else hostile.to_html()
    path.write_text(whole, encoding="utf-8")
    opened = Opened(browser, path)
    opened.page.emulate_media(color_scheme=scheme)
    opened.page.focus(".text span")
    assert opened.page.evaluate(CONTRAST) > 4.5


def test_long_texts_render(browser: Any, tmp_path: Path) -> None:
    found = diagnostics("(a| word|\n){2000}", 2000)
    assert len(found) == 2001
    path = tmp_path / "page.html"
    path.write_text(found.to_html(), encoding="utf-8")
    opened = Opened(browser, path)
    assert opened.page.locator(".text span").count() == len(found)
    assert opened.page.locator("tbody tr").count() == len(found)
    box = opened.page.locator("tbody tr").last.bounding_box()
    assert box["height"] > 0
    assert box["y"] > 2000 * 10
    assert (opened.errors, opened.requests) == ([], [path.as_uri()])


def test_a_script_that_is_put_into_a_page_would_be_noticed(browser: Any, tmp_path: Path, hostile: Diagnostics) -> None:
    """That the tests above can fail: the policy blocks a script and says so."""
    path = tmp_path / "page.html"
    path.write_text(
        hostile.to_html().replace("<body>", "<body><script>document.title = 'hit'</script>"), encoding="utf-8"
    )
    opened = Opened(browser, path)
    assert any("Content Security Policy" in error for error in opened.errors)
    assert opened.page.title() == "trellm diagnostics"


def test_notebooks_get_a_part_of_a_page(hostile: Diagnostics) -> None:
    part = hostile._repr_html_()
    assert part.startswith("<style>")
    assert "<html" not in part
    assert "<script" not in part
    assert part.split("</style>")[1] in hostile.to_html()
