"""Screenshots of every view, light and dark, on a phone and on a desktop: ``make screenshots``.

The model learns pictures that come with scikit-learn: pieces of its two photographs, and its
handwritten digits.
"""

import base64
import io
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from tests.end_to_end.process import browser_path, running
from tests.tiny import pieces
from visvm.bench.digits import digit_pictures

SIZES = {
    "desktop": {"viewport": {"width": 1200, "height": 800}},
    "phone": {"viewport": {"width": 390, "height": 800}, "has_touch": True, "is_mobile": True},
}
SHOWN = {"flower": "flower.jpg", "temple": "china.jpg"}
KEEP = """async (shown) => {
  const { remember, wantPictures } = await import('/pictures.js');
  await wantPictures(true);
  await remember(shown.map(([label, content]) => ({ label,
    file: new File([Uint8Array.from(atob(content), (each) => each.charCodeAt(0))], label) })));
}"""
CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]


def digits(label: str, n: int) -> list[bytes]:
    """Return handwritten digits of one kind."""
    return [content for name, content in digit_pictures(0, n) if name == label]


def between(share: float) -> bytes:
    """Return a flower through which a temple is seen: nobody can be sure of it."""
    one, other = (
        Image.open(io.BytesIO(pieces(name, 1, 3)[0])).resize((320, 320)) for name in SHOWN.values()
    )
    file = io.BytesIO()
    Image.blend(one, other, share).save(file, "JPEG")
    return file.getvalue()


def payload(contents: list[bytes]) -> list[dict]:
    """Return files as Playwright gives them to a page."""
    return [
        {"name": f"{number}.jpg", "mimeType": "image/jpeg", "buffer": content}
        for number, content in enumerate(contents, 1)
    ]


def gather(page: Page, contents: list[bytes], label: str) -> None:
    """Put photos and their label on the page."""
    page.get_by_test_id("input-photos").set_input_files(payload(contents))
    group = page.get_by_test_id("group").last
    group.get_by_test_id("group-label").fill(label)


def keep_pictures(page: Page) -> None:
    """Let this browser have small pictures of the classes, as the one that taught them has."""
    shown = {label: pieces(name, 4, 0) for label, name in SHOWN.items()}
    shown |= {label: digits(label, 4) for label in ("seven", "four", "two")}
    named = [
        [label, base64.b64encode(content).decode()]
        for label, contents in shown.items()
        for content in contents
    ]
    page.evaluate(KEEP, named)


def learn(page: Page) -> None:
    """Press Learn, and wait until it has learned."""
    page.get_by_test_id("learn").click()
    page.get_by_test_id("result").wait_for(timeout=300_000)


def teach_all(page: Page) -> None:
    """Teach three sessions, with photos kept for testing."""
    page.get_by_test_id("keep-test").check()
    sessions = [["flower", "temple"], ["seven", "four"], ["two"]]
    for seed, labels in enumerate(sessions):
        for label in labels:
            gather(
                page, pieces(SHOWN[label], 15, seed) if label in SHOWN else digits(label, 15), label
            )
        learn(page)


def shoot_teach(page: Page, snap) -> None:
    """Take pictures of photos that wait to be learned, and of the camera."""
    gather(page, pieces("flower.jpg", 8, 7), "flower")
    gather(page, digits("nine", 6), "nine")
    page.wait_for_timeout(800)  # until the thumbnails are drawn
    page.evaluate("document.activeElement.blur()")
    size = page.viewport_size
    whole = page.evaluate("document.documentElement.scrollHeight")
    # not full_page, in which the bar at the bottom would hide what is below it
    page.set_viewport_size({**size, "height": whole})
    snap("teach")
    page.set_viewport_size(size)
    page.get_by_test_id("teach-camera").click()
    page.wait_for_timeout(1000)
    snap("camera")
    page.get_by_test_id("camera-done").click()
    for _ in range(2):
        page.get_by_test_id("group-remove").first.click()


def shoot_ask(page: Page, snap) -> None:
    """Take pictures of answers: a sure one, one of many, and what is said of it."""
    page.get_by_test_id("tab-ask").click()
    page.get_by_test_id("ask-input").set_input_files(payload(pieces("china.jpg", 1, 99)))
    page.get_by_test_id("answer").first.wait_for(timeout=60_000)
    snap("ask")
    page.get_by_test_id("wrong").click()
    snap("wrong")
    many = [pieces("china.jpg", 1, 5), pieces("flower.jpg", 1, 5), digits("four", 1)]
    doubtful = [between(0.45), between(0.55), between(0.65)]
    files = payload([content for kind in many for content in kind] + doubtful)
    page.get_by_test_id("ask-input").set_input_files(files)
    page.get_by_text("to look at yourself").wait_for(timeout=60_000)
    page.locator(".asked", has_not_text="Looking").wait_for(timeout=60_000)
    page.locator("#ask-several").evaluate("each => each.scrollIntoView()")
    snap("several")
    page.locator(".asked .pick").last.click()
    page.evaluate("scrollTo(0, 0)")
    snap("unknown")
    page.locator(".fine summary").click()
    page.get_by_test_id("rate").select_option("0")  # it has to say something
    page.locator(".verdict.unsure").wait_for(timeout=60_000)
    page.evaluate("scrollTo(0, 0)")
    snap("unsure")


def shoot(page: Page, folder: Path, kind: str) -> None:
    """Take one picture of every view."""

    def snap(name: str) -> None:
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{name}-{kind}.png")

    page.locator("#model-summary", has_text="Knows 5").wait_for()
    keep_pictures(page)
    shoot_teach(page, snap)
    shoot_ask(page, snap)
    page.get_by_test_id("tab-classes").click()
    page.evaluate("scrollTo(0, 0)")
    snap("classes")
    page.get_by_test_id("class-menu").nth(1).click()
    snap("menu")
    page.keyboard.press("Escape")
    page.get_by_test_id("tab-history").click()
    snap("history")
    page.get_by_test_id("keeps").click()
    snap("keeps")
    page.keyboard.press("Escape")
    page.get_by_test_id("tab-ask").click()
    page.get_by_test_id("ask-input").set_input_files(payload(pieces("flower.jpg", 1, 99)))
    page.locator("#verdict-name", has_text="flower").wait_for(timeout=60_000)
    page.get_by_test_id("why").click()
    page.get_by_test_id("heat").wait_for(timeout=120_000)
    page.evaluate("scrollTo(0, 0)")
    snap("why")


def each_kind(browser: Browser, address: str, visit) -> None:
    """Let a function see the page in every size and scheme."""
    for size, options in SIZES.items():
        for scheme in ("light", "dark"):
            context = browser.new_context(
                **options,
                color_scheme=scheme,
                device_scale_factor=1.5,
                reduced_motion="reduce",
            )
            page = context.new_page()
            page.goto(address)
            visit(page, f"{size}-{scheme}")
            context.close()


def main() -> None:
    """Write all pictures to the folder that is given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)

    def empty(page: Page, kind: str) -> None:
        page.get_by_test_id("first-steps").wait_for()
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"empty-{kind}.png")

    with (
        tempfile.TemporaryDirectory() as place,
        running(Path(place) / "things.visvm", "dinov2-s14") as server,
        sync_playwright() as playwright,
    ):
        options = ["--no-sandbox", *CAMERA]
        browser = playwright.chromium.launch(executable_path=browser_path(), args=options)
        each_kind(browser, server.address, empty)
        page = browser.new_context().new_page()
        page.goto(server.address)
        teach_all(page)
        each_kind(browser, server.address, lambda page, kind: shoot(page, folder, kind))
        browser.close()


if __name__ == "__main__":
    main()
