"""Screenshots of every view, light and dark, on a phone and on a desktop: ``make screenshots``.

The model learns pictures that come with scikit-learn: pieces of its two photographs, and its
handwritten digits.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.end_to_end.process import browser_path, running
from tests.tiny import pieces
from visvm.bench.digits import digit_pictures

SIZES = {"desktop": (1200, 800), "phone": (390, 800)}
SHOWN = {"flower": "flower.jpg", "temple": "china.jpg"}


def digits(label: str, n: int) -> list[bytes]:
    """Return handwritten digits of one kind."""
    return [content for name, content in digit_pictures(0, n) if name == label]


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


def shoot(page: Page, folder: Path, kind: str) -> None:
    """Take one picture of every view."""
    page.get_by_test_id("tab-teach").click()
    gather(page, pieces("flower.jpg", 8, 7), "flower")
    gather(page, digits("nine", 6), "nine")
    page.wait_for_timeout(800)  # until the thumbnails are drawn
    page.evaluate("document.activeElement.blur()")
    size = page.viewport_size
    whole = page.evaluate("document.documentElement.scrollHeight")
    # not full_page, in which the bar at the bottom would hide what is below it
    page.set_viewport_size({**size, "height": whole})
    page.screenshot(path=folder / f"teach-{kind}.png")
    page.set_viewport_size(size)
    for _ in range(2):
        page.get_by_test_id("group-remove").first.click()
    page.get_by_test_id("tab-ask").click()
    page.get_by_test_id("ask-input").set_input_files(payload(pieces("china.jpg", 1, 99)))
    page.get_by_test_id("answer").first.wait_for(timeout=60_000)
    page.wait_for_timeout(500)
    page.screenshot(path=folder / f"ask-{kind}.png")
    for view in ("classes", "history"):
        page.get_by_test_id(f"tab-{view}").click()
        page.wait_for_timeout(500)
        page.screenshot(path=folder / f"{view}-{kind}.png")


def main() -> None:
    """Write all pictures to the folder that is given."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        running(Path(place) / "things.visvm", "dinov2-s14") as server,
        sync_playwright() as playwright,
    ):
        browser = playwright.chromium.launch(executable_path=browser_path(), args=["--no-sandbox"])
        taught = browser.new_context()
        page = taught.new_page()
        page.goto(server.address)
        teach_all(page)
        for size, (width, height) in SIZES.items():
            for scheme in ("light", "dark"):
                context = browser.new_context(
                    viewport={"width": width, "height": height},
                    color_scheme=scheme,
                    device_scale_factor=1.5,
                )
                view = context.new_page()
                view.goto(server.address)
                shoot(view, folder, f"{size}-{scheme}")
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
