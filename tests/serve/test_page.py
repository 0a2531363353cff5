"""The page at /: what it may reach, and how it works in a real browser, Chromium driven by playwright."""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from trellm import models
from trellm.errors import ModelError, OptionError
from trellm.serve import Settings

from .conftest import PASSAGE, Running, running

KEY = "a-key-of-this-server"
ANSWERS = {
    "A record of a passage": r'\{\s*"buyer": "Brela Stonkard",\s*"count": 12\s*\}',
    "A date": "2012-12-24",
    "A choice": "joyful",
    "A quotation": "Brela Stonkard",
    "A day that exists, by a grammar": "2012-12-24",
    "A sentence with given words": r"(?=.*\blamp\b)(?=.*\bsold\b)[A-Z][^.]*\.",
}
"""The right answers to the page's examples, as patterns."""
FIELDS: dict[str, Callable[[str], dict[str, Any]]] = {
    "schema": lambda text: {"json_schema": text},
    "regex": lambda text: {"regex": text},
    "grammar": lambda text: {"grammar": text},
    "choices": lambda text: {"structured_outputs": {"choice": text.split("\n")}},
    "document": lambda text: {"trellm": {"extract": {"context": text}}},
}


class Opened:
    """The page of a server, with all that went wrong and all that was fetched meanwhile."""

    def __init__(self, browser: Any, server: Running) -> None:
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        self.page = browser.new_page(viewport={"width": 1200, "height": 900})
        self.page.set_default_timeout(60_000)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._log)
        self.page.on("request", lambda request: self.hosts.add(request.url.split("/")[2]))
        self.page.goto(server.url)
        self.until("document.getElementById('model').textContent !== '…'")

    def _log(self, message: Any) -> None:
        # Constraints that are wrong, and keys that are missing, are answered as such.
        if not re.match("Failed to load resource: .* (400|401) ", message.text):
            self.errors.append(message.text)

    def until(self, condition: str) -> None:
        """Wait; what playwright has for that is not let by the page's policy."""
        end = time.monotonic() + 120
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, condition
            self.page.wait_for_timeout(20)

    def text(self, name: str) -> str:
        return self.page.text_content(f"#{name}")

    def choose(self, kind: str, constraint: str) -> None:
        self.page.check(f'input[name="kind"][value="{kind}"]')
        self.page.fill("#constraint", constraint)

    def verdict(self) -> str:
        self.until("kind === 'none' || document.getElementById('verdict').textContent !== ''")
        return self.text("verdict")

    def answer(self) -> str:
        self.page.keyboard.press("Control+Enter")
        self.until("/tokens? in| wrong/.test(document.getElementById('status').outerHTML)")
        return self.text("output")


@pytest.fixture
def opened(browser: Any, server: Running) -> Iterator[Opened]:
    found = Opened(browser, server)
    yield found
    assert found.errors == [] and found.hosts == {server.url.split("/")[2]}
    found.page.close()


def test_its_policy_is_of_the_file_as_it_is(server: Running) -> None:
    answer = server.http.get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy and "connect-src 'self'" in policy and "unsafe" not in policy
    assert "http://" not in answer.text and "https://" not in answer.text and " onclick" not in answer.text


def answered(server: Running, model: str) -> dict[str, tuple[str, float]]:
    """The greedy answers to the page's examples, each with the share of the model's probability along it that was
    allowed."""
    found = re.search(r'id="examples">(.*?)</script>', server.http.get("/").text, re.S)
    assert found is not None
    answers: dict[str, tuple[str, float]] = {}
    for name, example in json.loads(found[1]).items():
        body = FIELDS[example["kind"]](example["constraint"]) if "kind" in example else {}
        extra = {**body.pop("trellm", {}), "trace": True}
        if "include" in example:
            extra["include"] = example["include"].split("\n")
        body |= {"messages": [{"role": "user", "content": example["prompt"]}], "temperature": 0, "max_tokens": 200}
        choice = server.post("/v1/chat/completions", {"model": model, "trellm": extra, **body}).json()["choices"][0]
        assert choice["finish_reason"] == "stop", name
        answers[name] = choice["message"]["content"], math.exp(choice["trellm"]["trace"]["log_feasible_mass"])
    return answers


def test_its_examples_are_answered_rightly(server: Running) -> None:
    answers = answered(server, "small")
    assert answers.keys() == ANSWERS.keys()
    for name, (text, left) in answers.items():
        assert re.fullmatch(ANSWERS[name], text), name
        assert left > 0.5, name


@pytest.mark.slow
def test_its_examples_are_answered_rightly_by_a_larger_model() -> None:
    try:
        larger = models.pulled("smollm2")
    except (ModelError, OptionError):
        pytest.skip("smollm2 was not pulled")
    for running_server in running(larger, Settings(name="larger", texts=8, compile_seconds=300)):
        for name, (text, left) in answered(running_server, "larger").items():
            assert re.fullmatch(ANSWERS[name], text), name
            assert left > 1e-4, name


def test_what_a_constraint_comes_to(server: Running) -> None:
    said = server.post("/constraint", {"model": "small", "regex": "[0-9]{3}"}).json()
    assert said["needed"] == 3 and "digit" in said["expected"]
    assert server.post("/constraint", {"model": "small"}).json() == {"expected": "anything", "needed": 0}
    assert server.error("/constraint", {"model": "small", "regex": "a("})["offset"] == 1
    assert server.error("/constraint", {"model": "small", "json_schema": '{"a": }'})["offset"] == 6
    assert server.error("/constraint", {"model": "small", "regex": "a", "grammar": "start: /a/"})["param"] == "grammar"
    assert server.error("/constraint", {"model": "small", "max_tokens": 3})["code"] == "unknown_parameter"


def test_a_record_and_what_the_constraint_did(opened: Opened) -> None:
    page = opened.page
    assert "context" in opened.text("model") and opened.verdict().startswith("Fine: begins with")
    assert re.fullmatch(ANSWERS["A record of a passage"], opened.answer())
    assert "complete" in opened.text("status")
    assert page.locator("#output span").count() > 10 and "of a token's probability" in opened.text("summary")


def test_tokens_say_how_far_they_were_forced_and_what_they_could_have_been(opened: Opened) -> None:
    page = opened.page
    opened.choose("regex", "😀 xq(aaa|bbb)")
    text = opened.answer()
    spans = page.locator("#output span")
    assert "".join(spans.all_text_contents()) == text
    forced = page.locator('#output [data-left="3"]').first
    forced.hover()
    assert "the first is not allowed" in opened.text("detail") and "The model's own likeliest: ‹" in opened.text(
        "detail"
    )
    page.focus("#output span")
    told = [opened.text("detail")]
    for _ in range(spans.count() - 1):
        page.keyboard.press("ArrowRight")
        told.append(opened.text("detail"))
    assert [each[1 : each.index("› had")] for each in told[1:]] == spans.all_text_contents()[1:]
    assert any("this token only" in each for each in told)
    page.keyboard.press("ArrowLeft")
    assert opened.text("detail") == told[-2]
    assert page.locator('#output span[tabindex="0"]').count() == 1
    # Shades are for those who see them; lines are told apart without.
    styles = page.evaluate("[...document.querySelectorAll('.legend span')].map(e => getComputedStyle(e).borderBottom)")
    assert len(set(styles)) == 4


@pytest.mark.parametrize(("prompt", "kind"), [("The weather of Mar", "none"), ("It rains. ", "regex")])
def test_tokens_of_a_text_that_goes_on_within_a_token(prompt: str, kind: str, opened: Opened) -> None:
    page = opened.page
    page.check('input[name="mode"][value="text"]')
    page.fill("#prompt", prompt)
    page.check(f'input[name="kind"][value="{kind}"]')
    if kind == "regex":
        page.fill("#constraint", "[a-z]{2}[.]")
    text = opened.answer()
    assert "".join(page.locator("#output span").all_text_contents()) == text


def test_one_is_no_plural(opened: Opened) -> None:
    opened.choose("regex", "a")
    assert "takes 1 token or more" in opened.verdict()
    opened.answer()
    assert opened.text("status").startswith("complete: 1 token in")


def test_the_examples_as_they_are_chosen(opened: Opened) -> None:
    for name, pattern in ANSWERS.items():
        opened.page.select_option("#example", name)
        assert re.fullmatch(pattern, opened.answer()), name


@pytest.mark.parametrize(
    ("kind", "constraint", "said", "line"),
    [
        ("regex", "(ab", "", "line 1\n(ab\n"),
        ("schema", '{\n  "type": "object",\n  "properties": {"a": {"type": "sting"}}\n}', "sting", 'line 3\n  "prop'),
        ("schema", '{\n\t"type": object}', "", 'line 2\n\t"type": object}\n\t        ^'),
        ("grammar", 'start: "a" b\n', "", 'line 1\nstart: "a" b\n           ^'),
        ("regex", "😀😀[z-a]", "", "line 1\n😀😀[z-a]\n"),
    ],
)
def test_errors_stand_under_their_place(kind: str, constraint: str, said: str, line: str, opened: Opened) -> None:
    opened.choose(kind, constraint)
    opened.page.wait_for_selector("#fault:visible")
    assert said in opened.verdict()
    assert opened.text("fault").startswith(line) and opened.text("fault").endswith("^")
    assert opened.page.get_attribute("#constraint", "aria-invalid") == "true"
    opened.page.click("#goto")
    assert opened.page.evaluate("document.activeElement.id") == "constraint"
    opened.choose("regex", "a")
    opened.page.wait_for_selector("#fault", state="hidden")
    assert opened.page.get_attribute("#constraint", "aria-invalid") == "false"


def test_a_quotation_is_marked_in_its_source(opened: Opened) -> None:
    page = opened.page
    page.fill("#prompt", f"{PASSAGE}\n\nWhat was bought? Quote the text.")
    opened.choose("document", f"😀 {PASSAGE}")
    assert opened.answer() in PASSAGE
    assert page.text_content("#source mark") == opened.text("output") and opened.text("source") == f"😀 {PASSAGE}"


def test_what_was_typed_for_a_kind_is_kept(opened: Opened) -> None:
    opened.choose("regex", "[0-9]+")
    opened.choose("choices", "a\nb")
    opened.page.check('input[name="kind"][value="regex"]')
    assert opened.page.input_value("#constraint") == "[0-9]+"


def test_the_same_request_as_code(opened: Opened, server: Running) -> None:
    page = opened.page
    opened.choose("regex", r"[a-c]{2}'\d")
    expected = opened.answer()
    for language, told in (
        ("python", "extra_body="),
        ("javascript", "await fetch("),
        ("curl", "curl http://127.0.0.1"),
    ):
        page.select_option("#language", language)
        assert told in opened.text("code")
        if language == "python":
            said: list[str] = []
            exec(compile(opened.text("code"), "page", "exec"), {"print": said.append})
            assert said == [expected]


def test_text_of_a_model_is_never_markup(opened: Opened) -> None:
    attack = '<img src=x onerror="document.title=1"><script>document.title=1</script>'
    opened.choose("choices", attack)
    assert opened.answer() == attack
    assert opened.page.title() == "trellm" and opened.page.locator("#output img").count() == 0


def test_it_can_be_used_without_a_mouse_and_stopped(opened: Opened) -> None:
    page = opened.page
    named = page.evaluate(
        "[...document.querySelectorAll('textarea, select, input')].filter(each => !each.labels.length)"
        ".map(each => each.id)"
    )
    assert named == []
    page.check('input[name="kind"][value="regex"]')
    page.fill("#constraint", "[a-z ]{500,}")
    page.focus("#more summary")
    page.keyboard.press("Enter")
    page.fill("#max_tokens", "700")
    page.focus("#run")
    page.keyboard.press("Enter")
    opened.until("document.getElementById('output').textContent.length > 0")
    page.keyboard.press("Escape")
    opened.until("document.getElementById('status').textContent === 'stopped'")


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "date": {"type": "string"}},
                "required": ["place", "date"],
                "additionalProperties": False,
            },
        },
    }
]


def test_a_link_holds_the_request_and_nothing_of_it_is_sent(opened: Opened, server: Running) -> None:
    page = opened.page
    page.fill("#key", KEY)
    page.fill("#prompt", 'Say "ü" & 😀\n#1 %')
    opened.choose("regex", "[0-9]{2}")
    page.click("#more summary")
    page.fill("#include", "1")
    page.fill("#seed", "7")
    page.check('input[name="mode"][value="text"]')
    opened.until("location.hash.includes('text')")
    link = page.url
    assert KEY not in link
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    for move in (page.reload, lambda: page.goto(f"{server.url}/#"), lambda: page.goto(link)):
        move()
    assert page.input_value("#prompt") == 'Say "ü" & 😀\n#1 %'
    assert page.is_checked('input[name="kind"][value="regex"]') and page.input_value("#constraint") == "[0-9]{2}"
    assert page.is_checked('input[name="mode"][value="text"]') and page.input_value("#seed") == "7"
    assert page.input_value("#include") == "1" and page.input_value("#max_tokens") == "200"
    assert sent and not any("Say" in url.split("#")[0] for url in sent)


@pytest.mark.parametrize("fragment", ["%", "null", "7", "[", '{"kind":"__proto__","turns":[{"role":"tool"},3]}'])
def test_links_that_hold_nothing_of_this_page(fragment: str, opened: Opened, server: Running) -> None:
    opened.page.goto(f"{server.url}/#{fragment}")
    opened.until("document.getElementById('status').textContent.includes('link') || kind === 'none'")
    assert opened.page.locator("#turns li").count() == 0


def test_several_turns(opened: Opened, server: Running) -> None:
    page = opened.page
    page.fill("#prompt", "What is 4 + 7?")
    opened.choose("regex", "[0-9]{2}")
    first = opened.answer()
    page.click("#reply")
    assert page.locator("#turns li").all_text_contents() == ["user: What is 4 + 7?", f"assistant: {first}"]
    assert page.input_value("#prompt") == "" and page.evaluate("document.activeElement.id") == "prompt"
    page.fill("#prompt", "What is 5 + 7?")
    second = opened.answer()
    asked = [{"role": "user", "content": "What is 4 + 7?"}, {"role": "assistant", "content": first}]
    asked += [{"role": "user", "content": "What is 5 + 7?"}]
    body = {"model": "small", "messages": asked, "regex": "[0-9]{2}", "temperature": 0}
    assert server.post("/v1/chat/completions", body).json()["choices"][0]["message"]["content"] == second
    page.reload()
    assert page.locator("#turns li").count() == 2
    page.click("#forget")
    assert page.locator("#turns li").count() == 0 and not page.is_visible("#forget")


def test_calls_of_tools_and_beams(opened: Opened) -> None:
    page = opened.page
    page.check('input[name="kind"][value="none"]')
    page.fill("#prompt", "Will it rain in Oakwick on June 10, 2024?")
    page.click("#more summary")
    page.fill("#tools", "[")
    assert opened.answer() == "" and "the list of tools is no JSON" in opened.text("status")
    page.fill("#tools", json.dumps(TOOLS))
    assert opened.answer() == 'get_weather {"place": "Oakwick", "date": "June 10, 2024"}'
    assert not page.is_visible("#reply")
    page.fill("#tools", "")
    page.fill("#beams", "3")
    opened.choose("choices", "ab\nac")
    assert opened.answer() in ("ab", "ac")
    assert '"beams": 3' in opened.text("code")


WHERE = """id => { const box = document.getElementById(id).getBoundingClientRect();
return [box.left, box.top, box.right, box.bottom]; }"""


def test_request_and_answer_are_in_view_on_a_laptop(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 1280, "height": 800})
    for name in ANSWERS:
        opened.page.select_option("#example", name)
        opened.verdict()
        opened.answer()
        for part in ("prompt", "constraint", "run", "output", "status"):
            left, top, right, bottom = opened.page.evaluate(WHERE, part)
            assert left >= 0 and top >= 0 and right <= 1280 and bottom <= 800, (name, part)
        assert opened.page.evaluate("document.documentElement.scrollWidth") == 1280


def test_a_phone_shows_the_answer_behind_the_button(opened: Opened) -> None:
    opened.page.set_viewport_size({"width": 390, "height": 844})
    opened.verdict()  # stands above the button
    button, answer = (opened.page.evaluate(WHERE, part) for part in ("run", "answer"))
    assert 0 <= answer[1] - button[3] < 60
    opened.page.evaluate("scrollTo(0, 0)")
    opened.answer()
    _, top, _, bottom = opened.page.evaluate(WHERE, "output")
    assert top >= 0 and bottom <= 844
    assert opened.page.evaluate("document.documentElement.scrollWidth") == 390


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_schemes(scheme: str, opened: Opened) -> None:
    opened.page.emulate_media(color_scheme=scheme)
    shades = opened.page.evaluate(
        """() => { const style = getComputedStyle(document.getElementById('prompt'));
        return [style.color, style.backgroundColor].map(each => each.match(/[0-9.]+/g).slice(0, 3).map(Number)); }"""
    )
    text, ground = (sum(shade) / 3 for shade in shades)
    assert (text < 80 and ground > 200) if scheme == "light" else (text > 200 and ground < 80)


def test_a_key_is_asked_for_by_the_page(browser: Any) -> None:
    for server in running(models.small(), Settings(keys=(KEY,), texts=8)):
        opened = Opened(browser, server)
        assert "Authorization" in opened.text("model")
        opened.page.fill("#key", KEY)
        opened.page.keyboard.press("Tab")
        opened.until("document.getElementById('model').textContent.includes('context')")
        opened.choose("regex", "[0-9]{2}")
        assert len(opened.answer()) == 2
        opened.page.close()
