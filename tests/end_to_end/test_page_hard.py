"""The page of `visvm serve` when it is hard: failures, keyboard, hostile names, small windows."""

import re

import pytest
from playwright.sync_api import expect

from tests.end_to_end.page import (
    LONG,
    act,
    ask,
    expect_classes,
    find,
    gather,
    rename,
    row_of,
    show,
    tab_to,
    teach,
    teach_right,
)
from tests.end_to_end.process import hang_in_encode, running
from visvm import ImageClassifier

pytestmark = pytest.mark.browser

VIEWS = ("teach", "ask", "classes", "history")
TOKEN = "a-long-and-random-word"
READ_TOKEN = "another-long-and-random-word"
RESTARTED = (
    "The server was restarted before this was learned. "
    "Your photos are still here: press Learn again."
)
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
LOW_TARGETS = """() => [...document.querySelectorAll('a, button, input, summary, select, textarea')]
  .filter((each) => each.checkVisibility())
  .map((each) => each.closest('label') ?? each)
  .filter((each) => each.getBoundingClientRect().height < 24)
  .map((each) => each.outerHTML)"""


@pytest.mark.kill
def test_kill_9_within_a_session_leaves_the_photos_on_the_page(place, visit, photos, tmp_path):
    model, hang = tmp_path / "m.visvm", tmp_path / "hang"
    given = {"environment": {"HANG": str(hang)}, "prepare": hang_in_encode}
    with running(model, place / "tiny.onnx", **given) as server:
        page = visit(server)
        teach(page, {"red": photos["red"], "green": photos["green"]})
        gather(page, photos["blue"], "blue")
        hang.touch()
        with page.expect_response("**/api/learn") as accepted:
            find(page, "learn").click()
        accepted.value.finished()
        server.kill()
    expect(find(page, "progress")).to_contain_text("The server does not answer")
    expect(page.locator("#connection")).to_contain_text("The server does not answer")
    with running(model, place / "tiny.onnx", "--port", server.port):
        expect(find(page, "teach-error")).to_have_text(RESTARTED)
        expect(find(page, "group")).to_contain_text("6 photos")
        expect(find(page, "group-label")).to_have_value("blue")
        expect(page.locator("#connection")).to_be_hidden()
        expect(page.locator("#model-summary")).to_have_text("Knows 2 classes from 12 photos")
        find(page, "learn").click()
        expect(find(page, "result")).to_contain_text("1 new class, 6 photos")
        expect(find(page, "teach-error")).to_have_count(0)
        show(page, "classes")
        expect_classes(page, "blue", "green", "red")


def test_cancelling_gives_the_photos_back(taught, visit, photos):
    page = visit(taught)
    gather(page, photos["red"], "red")
    page.route("**/api/learn", lambda route: None)  # an upload that does not come to its end
    find(page, "learn").click()
    expect(find(page, "group")).to_have_count(0)
    find(page, "cancel").click()
    expect(find(page, "group-label")).to_have_value("red")
    expect(find(page, "status")).to_contain_text("Nothing was learned")


def test_an_upload_without_an_answer_is_sent_again_and_learned_once(untaught, visit, photos):
    page, keys = visit(untaught), []

    def lose_the_first_answer(route):
        keys.append(route.request.headers["idempotency-key"])
        if len(keys) == 1:
            route.fetch()
            route.abort()
        else:
            route.continue_()

    page.route("**/api/learn", lose_the_first_answer)
    expect(teach(page, {"red": photos["red"], "green": photos["green"]})).to_be_visible()
    expect(page.locator("#model-summary")).to_have_text("Knows 2 classes from 12 photos")
    assert len(keys) == 2
    assert keys[0] == keys[1]
    expect(teach(page, {"blue": photos["blue"]})).to_be_visible()
    assert len(set(keys)) == 2


def test_labels_are_shown_as_text_and_a_whole_session_leaves_no_error(
    untaught, visit, photos, asked
):
    image, script = "<img src=x onerror=window.ran=1>", '"><script>window.ran=1</script>'
    page, errors = visit(untaught), []
    page.on(
        "console",
        lambda message: (
            errors.append(message.text) if message.type in ("error", "warning") else None
        ),
    )
    page.reload()
    result = teach(page, {image: photos["red"], "green": photos["green"]})
    expect(result).to_contain_text(image)
    assert ask(page, asked["red"])[0][0] == image
    teach_right(page, script)
    expect(page.locator("#ask-note")).to_contain_text("Learned.")
    show(page, "classes")
    expect(row_of(page, image)).to_be_visible()
    rename(page, "green", "<b>green</b>")
    act(page, script, "forget")
    expect(page.locator("dialog")).to_contain_text(f"Forget “{script}”?")
    find(page, "forget-confirm").click()
    expect(row_of(page, script)).to_have_count(0)
    show(page, "history")
    expect(find(page, "history-item").last).to_contain_text(image)
    expect(find(page, "history-item").first).to_contain_text(script)
    with page.expect_download() as download:
        show(page, "classes")
        page.locator("#download").click()
    assert download.value.failure() is None
    assert page.evaluate("window.ran") is None
    assert page.locator("img[src=x], main script, main b").count() == 0
    assert errors == []


def test_photos_are_taught_and_asked_by_keyboard(untaught, visit, photos, asked):
    page = visit(untaught)
    press = page.keyboard.press
    tab_to(page, "tab-teach")
    for view in ("ask", "classes", "history", "teach"):
        press("ArrowRight")
        expect(find(page, f"tab-{view}")).to_be_focused()
        expect(find(page, f"tab-{view}")).to_have_attribute("aria-selected", "true")
        expect(page.locator(f"#panel-{view}")).to_be_visible()
    for colour in ("red", "green"):
        tab_to(page, "input-photos", key="Tab" if colour == "red" else "Shift+Tab")
        find(page, "input-photos").set_input_files(photos[colour])
        expect(find(page, "group-label").last).to_be_focused()  # the page asks for the name
        page.keyboard.type(colour)
    tab_to(page, "learn")
    press("Enter")
    expect(find(page, "result")).to_contain_text("2 new classes")
    expect(find(page, "result")).to_be_focused()

    tab_to(page, "tab-teach", key="Shift+Tab")
    press("ArrowRight")
    tab_to(page, "ask-input")
    find(page, "ask-input").set_input_files(asked["blue"])
    expect(find(page, "answer").first).to_be_visible()
    tab_to(page, "wrong")
    press("Enter")
    expect(find(page, "wrong-label")).to_be_focused()
    page.keyboard.type("blue")
    press("Enter")
    expect(page.locator("#ask-note")).to_contain_text("Learned.")
    expect(page.locator("#ask-note")).to_be_focused()


def test_classes_are_renamed_by_keyboard(untaught, visit, photos):
    page = visit(untaught)
    press = page.keyboard.press
    teach(page, {colour: photos[colour] for colour in ("red", "green", "blue")})
    tab_to(page, "tab-teach", key="Shift+Tab")
    press("ArrowRight")
    press("ArrowRight")
    expect_classes(page, "blue", "green", "red")
    tab_to(page, "class-menu")
    press("Enter")
    expect(find(page, "rename")).to_be_focused()
    press("Escape")
    expect(row_of(page, "blue").get_by_test_id("class-menu")).to_be_focused()
    press("Enter")
    press("End")
    expect(find(page, "forget")).to_be_focused()
    press("Enter")
    expect(find(page, "forget-cancel")).to_be_focused()
    for _ in range(8):
        press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(row_of(page, "blue").get_by_test_id("class-menu")).to_be_focused()
    press("Enter")
    press("Enter")
    expect(find(page, "rename-input")).to_be_focused()
    press("Escape")
    expect(row_of(page, "blue").get_by_test_id("class-menu")).to_be_focused()
    press("Enter")
    press("Enter")
    page.keyboard.type("navy")  # instead of the old name, which is selected
    press("Enter")
    expect_classes(page, "green", "navy", "red")
    expect(row_of(page, "navy").get_by_test_id("class-menu")).to_be_focused()


def test_errors_are_shown_where_they_happen(untaught, visit, photos, asked, tmp_path):
    note, broken = tmp_path / "note.txt", tmp_path / "broken.png"
    note.write_text("not a photo")
    broken.write_text("not a photo either")
    page = visit(untaught)

    find(page, "input-photos").set_input_files([note, photos["red"][0]])
    expect(page.locator("#teach-drop-error").get_by_role("alert")).to_contain_text(
        "not photos: note.txt"
    )
    expect(find(page, "group")).to_contain_text("1 photo")
    find(page, "learn").click()
    expect(find(page, "group").get_by_role("alert")).to_have_text("Please type a name.")
    expect(find(page, "group-label")).to_be_focused()
    expect(find(page, "group-label")).to_have_attribute("aria-invalid", "true")
    find(page, "group-label").fill("red")
    expect(find(page, "teach-error")).to_have_count(0)
    gather(page, broken, "red")
    find(page, "learn").click()
    find(page, "learn-anyway").click()
    expect(find(page, "teach-error")).to_contain_text("broken.png (")
    expect(find(page, "group")).to_have_count(2)  # nothing was lost

    show(page, "ask")
    find(page, "ask-input").set_input_files(note)
    expect(find(page, "ask-error")).to_have_text("note.txt is not a photo.")
    find(page, "ask-input").set_input_files(asked["red"])
    expect(find(page, "ask-error")).to_contain_text("Teach it some first")
    show(page, "classes")
    expect(page.locator("#classes-empty")).to_be_visible()
    expect(page.locator("#download")).to_be_hidden()  # there is no file yet

    show(page, "teach")
    find(page, "group-remove").last.click()
    find(page, "learn").click()
    find(page, "learn-anyway").click()
    expect(find(page, "result")).to_contain_text("1 new class")
    assert ask(page, asked["red"])[0][0] == "red"
    expect(find(page, "ask-error")).to_have_count(0)
    teach_right(page, " ")
    expect(find(page, "ask-error")).to_have_text("Please type a name.")
    find(page, "ask-input").set_input_files(broken)
    expect(find(page, "ask-error")).to_contain_text("broken.png (")


def test_a_token_is_asked_for_until_it_is_the_right_one(place, visit, photos, asked, tmp_path):
    with running(
        tmp_path / "m.visvm",
        place / "tiny.onnx",
        environment={"VISVM_TOKEN": TOKEN, "VISVM_READ_TOKEN": READ_TOKEN},
    ) as server:
        page = visit(server)
        expect(find(page, "token-dialog")).to_contain_text("This server asks for a token")
        find(page, "token-input").fill("a-wrong-but-long-word")
        find(page, "token-save").click()
        expect(find(page, "token-dialog")).to_contain_text("That token was not accepted")
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Enter the token").click()
        find(page, "token-input").fill(TOKEN)
        find(page, "token-save").click()
        expect(page.locator("#model-summary")).to_have_text("Knows nothing yet")
        expect(page.locator("#connection")).to_be_hidden()
        teach(page, {"red": photos["red"], "green": photos["green"]})
        assert ask(page, asked["red"])[0][0] == "red"
        show(page, "classes")
        with page.expect_download() as download:
            page.locator("#download").click()
        download.value.save_as(tmp_path / "copy.visvm")
        assert ImageClassifier.load(tmp_path / "copy.visvm").classes_ == ("green", "red")
        page.reload()
        expect_classes(page, "green", "red")

        reader = visit(server)
        find(reader, "token-input").fill(READ_TOKEN)
        find(reader, "token-save").click()
        expect(reader.locator("#teach-locked")).to_contain_text("you may not change anything")
        expect(find(reader, "input-photos")).to_be_disabled()
        assert ask(reader, asked["green"])[0][0] == "green"
        expect(find(reader, "wrong")).to_be_hidden()
        show(reader, "classes")
        expect_classes(reader, "green", "red")
        expect(find(reader, "class-menu").first).to_be_hidden()


@pytest.mark.parametrize(("width", "scheme"), [(360, "dark"), (1280, "light")])
def test_nothing_is_too_wide_or_too_low(taught, visit, photos, asked, width, scheme):
    page = visit(taught, viewport={"width": width, "height": 740}, color_scheme=scheme)

    def fits():
        assert page.evaluate(SIDEWAYS) <= 0
        assert width > 360 or page.evaluate(LOW_TARGETS) == []

    for view in VIEWS:
        show(page, view)
        fits()
    show(page, "teach")
    gather(page, photos["red"], LONG)
    gather(page, photos["green"])
    find(page, "learn").click()
    expect(find(page, "teach-error")).to_be_visible()
    fits()
    find(page, "group-label").last.fill(LONG)
    page.route("**/api/learn", lambda route: None)
    find(page, "learn").click()
    expect(find(page, "progress")).to_be_visible()
    fits()
    ask(page, asked["red"])
    fits()
    show(page, "classes")
    act(page, "red", "rename")
    fits()
    act(page, "blue", "forget")
    fits()
    page.keyboard.press("Escape")
    show(page, "history")
    expect(find(page, "history-chart")).to_be_visible()
    fits()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all((int(part) < 100) == (scheme == "dark") for part in re.findall(r"\d+", background))
