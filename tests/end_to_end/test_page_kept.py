"""The page: several photos at once, the camera, and what the browser keeps."""

import csv
import io

import pytest
from playwright.sync_api import expect

from tests.end_to_end.page import ask, expect_classes, find, row_of, show, teach

pytestmark = pytest.mark.browser


def table_of(page):
    """What the page saves as a table."""
    with page.expect_download() as download:
        find(page, "csv").click()
    return list(csv.DictReader(io.StringIO(download.value.path().read_text("utf-8"))))


def test_several_photos_are_asked_at_once_and_stay_after_a_reload(taught, visit, photos, tmp_path):
    page, broken = visit(taught), tmp_path / "broken.png"
    broken.write_text("no photo")
    show(page, "ask")
    given = {colour: photos[colour][0].read_bytes() for colour in ("red", "green", "blue")}
    files = [
        {"name": f"{colour}.png", "mimeType": "image/png", "buffer": content}
        for colour, content in given.items()
    ]
    bad = {"name": "=broken.png", "mimeType": "image/png", "buffer": b"no photo"}
    find(page, "ask-input").set_input_files([*files, bad])
    answers = find(page, "asked-answer")
    expect(answers).to_have_count(4)
    expect(answers.last).to_contain_text("=broken.png (")
    for answer, colour in zip(answers.all(), given, strict=False):
        expect(answer).to_contain_text(colour)
    expect(find(page, "verdict")).to_contain_text("red")  # the first one is shown large
    page.get_by_role("button", name="green.png").click()
    expect(find(page, "verdict")).to_contain_text("green")
    rows = table_of(page)
    assert [(row["path"], row["label"], row["unknown"]) for row in rows] == [
        (f"{colour}.png", colour, "0") for colour in given
    ]
    assert all(0 < float(row["score"]) <= 1 for row in rows)

    page.reload()
    expect(find(page, "asked-row")).to_have_count(4)
    expect(find(page, "verdict")).to_contain_text("red")
    assert table_of(page) == rows
    find(page, "keeps").click()
    kept = find(page, "keeps-list")
    expect(kept).to_contain_text("4 photos that you asked about")
    find(page, "keeps-remove").click()
    expect(find(page, "keeps-dialog")).to_contain_text("Nothing.")
    page.reload()
    expect(page.locator("#model-summary")).to_contain_text("Knows 4 classes")
    expect(find(page, "asked-row")).to_have_count(0)


def test_the_camera_takes_photos_to_teach_and_one_to_ask(taught, visit):
    page = visit(taught, permissions=["camera"])
    find(page, "teach-camera").click()
    for n in (1, 2):
        find(page, "shutter").click()
        expect(find(page, "camera")).to_contain_text(f"{n} taken")
    find(page, "camera-done").click()
    expect(find(page, "group")).to_contain_text("2 photos")
    expect(find(page, "group-label")).to_be_focused()
    show(page, "ask")
    find(page, "ask-camera").click()
    expect(find(page, "live")).to_contain_text("%")  # of what it sees, before there is a photo
    find(page, "shutter").click()
    expect(find(page, "answer").first).to_be_visible()


def test_an_answer_is_confirmed_undone_and_pictures_are_kept(untaught, visit, photos, asked):
    page = visit(untaught)
    expect(find(page, "first-steps")).to_be_visible()
    result = teach(page, {"red": photos["red"], "green": photos["green"]})
    expect(result).to_contain_text("2 new classes")
    expect(find(page, "first-steps")).to_be_hidden()
    show(page, "history")
    expect(page.locator("#history-sentence")).to_contain_text("It knew 2 classes")
    expect(find(page, "history-chart")).to_have_count(0)
    show(page, "classes")
    expect(find(page, "class-pictures").first).to_be_hidden()
    find(page, "pictures").check()  # also of what was taught before, while its photos are at hand
    expect(row_of(page, "red").locator("img")).to_have_count(4)
    ask(page, asked["red"])
    find(page, "right").click()
    expect(page.locator("#ask-note")).to_contain_text("Learned: one more photo of red.")
    expect(find(page, "right")).to_be_hidden()  # it would be learned twice
    show(page, "classes")
    expect(row_of(page, "red").get_by_test_id("class-count")).to_have_text("7")
    show(page, "ask")
    page.locator("#ask-note").get_by_test_id("undo-this").click()
    expect(page.locator("dialog")).to_contain_text("It learned session 2 (1 image).")
    find(page, "undo-confirm").click()
    expect(page.locator("#ask-stale")).to_be_visible()
    page.locator("#ask-again").click()
    expect(find(page, "right")).to_be_visible()

    page.reload()
    show(page, "classes")
    expect_classes(page, "green", "red")
    expect(row_of(page, "red").locator("img")).to_have_count(4)
    expect(row_of(page, "red").get_by_test_id("class-count")).to_have_text("6")
    find(page, "pictures").uncheck()
    expect(page.locator("#class-rows img")).to_have_count(0)
    show(page, "teach")
    expect(find(page, "result")).to_contain_text("2 new classes")  # still, after the reload
