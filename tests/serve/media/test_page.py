"""Images on the page at /, in a real browser: chosen, pasted, shown, removed by the keyboard, and sent."""

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import PIL.Image
import pytest
from trellm import Image, generate

from ..conftest import Running
from ..test_page import Opened


def file_of(colour: str) -> bytes:
    file = io.BytesIO()
    PIL.Image.new("RGB", (8, 6), colour).save(file, "PNG")
    return file.getvalue()


RED, BLUE = file_of("red"), file_of("blue")
PASTE = """([name, data]) => {
  const bytes = Uint8Array.from(atob(data), (each) => each.charCodeAt(0));
  const transfer = new DataTransfer();
  transfer.items.add(new File([bytes], name, { type: "image/png" }));
  document.getElementById("prompt").dispatchEvent(
    new ClipboardEvent("paste", { clipboardData: transfer, bubbles: true, cancelable: true }));
}"""


@pytest.fixture
def sighted(browser: Any, seer: Running) -> Iterator[Opened]:
    found = Opened(browser, seer)
    found.until("sees")
    yield found
    assert found.errors == [] and found.hosts == {seer.url.split("/")[2]}
    found.page.close()


def choose(page: Any, **files: bytes) -> None:
    given = [{"name": f"{name}.png", "mimeType": "image/png", "buffer": data} for name, data in files.items()]
    page.set_input_files("#images", given)


def names(opened: Opened) -> list[str]:
    return opened.page.evaluate("[...document.querySelectorAll('#shown img')].map((each) => each.alt)")


def test_images_are_chosen_pasted_shown_and_sent(sighted: Opened, seer: Running) -> None:
    page = sighted.page
    choose(page, red=RED)
    page.evaluate(PASTE, ["blue.png", base64.b64encode(BLUE).decode()])
    sighted.until("document.querySelectorAll('#shown img').length === 2")
    assert names(sighted) == ["red.png", "blue.png"]
    sizes = page.evaluate("[...document.querySelectorAll('#shown img')].map((each) => each.naturalWidth)")
    assert sizes == [8, 8]
    page.fill("#prompt", "Which colours?")
    page.check('input[name="kind"][value="none"]')
    page.fill("#max_tokens", "9", force=True)
    said = sighted.answer()
    parts = [{"type": "image", "image": Image.of(data)} for data in (RED, BLUE)]
    chat = [{"role": "user", "content": [*parts, {"type": "text", "text": "Which colours?"}]}]
    assert said == generate.text(seer.service.model)(chat, max_tokens=9)
    code = sighted.text("code")
    assert '"data:image/png;base64,…"' in code and "iVBOR" not in code

    page.click("#reply")
    assert names(sighted) == [] and "(2 images) Which colours?" in sighted.text("turns")
    page.fill("#prompt", "And now?")
    again = sighted.answer()
    chat += [{"role": "assistant", "content": said}, {"role": "user", "content": "And now?"}]
    assert again == generate.text(seer.service.model)(chat, max_tokens=9)
    page.click("#link")
    assert "iVBOR" not in page.url and "Which" in page.url


def test_images_are_removed_by_the_keyboard(sighted: Opened) -> None:
    page = sighted.page
    choose(page, red=RED, blue=BLUE, green=file_of("green"))
    sighted.until("document.querySelectorAll('#shown img').length === 3")
    page.focus("#images")
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Remove blue.png"
    page.keyboard.press("Enter")
    assert names(sighted) == ["red.png", "green.png"]
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Remove green.png"
    page.keyboard.press("Enter")
    page.keyboard.press("Space")
    assert names(sighted) == [] and page.evaluate("document.activeElement.id") == "images"
    choose(page, red=RED)
    sighted.until("document.querySelectorAll('#shown img').length === 1")
    page.select_option("#example", "A date")
    assert names(sighted) == []


def test_what_is_no_image_is_told(sighted: Opened) -> None:
    sighted.page.set_input_files("#images", [{"name": "a.png", "mimeType": "image/png", "buffer": b"<svg/>"}])
    sighted.until("document.querySelectorAll('#shown img').length === 1")
    sighted.answer()
    assert sighted.text("status").startswith("image 1 of the request is in an unknown format")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_themes_tell_the_images_from_the_page(scheme: str, sighted: Opened) -> None:
    page = sighted.page
    page.emulate_media(color_scheme=scheme)
    choose(page, red=RED)
    sighted.until("document.querySelectorAll('#shown img').length === 1")
    style = "getComputedStyle(document.querySelector('#shown li'))"
    line, soft = page.evaluate(f"[{style}.borderTopColor, {style}.backgroundColor]")
    assert (line, soft) == {
        "light": ("rgb(213, 216, 221)", "rgb(245, 246, 248)"),
        "dark": ("rgb(58, 63, 71)", "rgb(31, 35, 40)"),
    }[scheme]
    box = page.locator("#shown img").bounding_box()
    assert box["height"] <= 64 and box["width"] <= 128


def test_texts_to_go_on_with_have_no_images(sighted: Opened) -> None:
    page = sighted.page
    assert page.is_visible("#images")
    page.check('input[name="mode"][value="text"]')
    assert not page.is_visible("#images")
    choose(page, red=RED)
    sighted.until("document.querySelectorAll('#shown img').length === 1")
    body = json.loads(page.evaluate("JSON.stringify(request()[1])"))
    assert "messages" not in body and isinstance(body["prompt"], str)


def test_a_model_that_reads_texts_alone_is_shown_no_place_for_images(browser: Any, server: Running) -> None:
    opened = Opened(browser, server)
    opened.page.evaluate(PASTE, ["red.png", base64.b64encode(RED).decode()])
    assert not opened.page.is_visible("#images") and names(opened) == []
    assert opened.errors == []
    opened.page.close()
