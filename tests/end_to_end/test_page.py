"""The page of `visvm serve` in a browser: everything a person does, two at once, by keyboard, on a phone, and what goes wrong."""

import base64
import json
import os
import re
import shutil

import pytest
from PIL import Image
from playwright.sync_api import expect, sync_playwright

from tests import tiny
from tests.end_to_end.process import browser_path, running
from visvm import ImageClassifier

TIMEOUT = 30_000  # milliseconds; only ever waited for in full by a test that fails
VIEWS = ("teach", "ask", "classes", "history")
LONG = "n" * 150
TOKEN = "a-long-and-random-word"
READ_TOKEN = "another-long-and-random-word"
MANY = 300
RESTARTED = "The server was restarted before this was learned. Your photos are still here: press Learn again."
TELL_VIOLATIONS = "addEventListener('securitypolicyviolation', (event) => console.error('CSP', event.violatedDirective))"
GIVEN = {
    "paste": "(data) => document.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))",
    "drop": "(data) => document.dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))",
}
SIDEWAYS = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
FOCUS_IS_SEEN = """[document.activeElement, document.activeElement.closest('label')]
  .some((each) => each && getComputedStyle(each).outlineStyle !== 'none')"""
LOW_TARGETS = """() => [...document.querySelectorAll('a, button, input, summary, select, textarea')]
  .filter((each) => each.checkVisibility())
  .map((each) => each.closest('label') ?? each)
  .filter((each) => each.getBoundingClientRect().height < 24)
  .map((each) => each.outerHTML)"""


@pytest.fixture(scope="module")
def browser():
    path = browser_path()
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("chromium is not installed")
    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Open the page in a browser of its own, one that knows nothing of the others; what breaks in its scripts fails the test."""
    contexts, broken = [], []

    def open_page(server, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(TIMEOUT)
        context.add_init_script(TELL_VIOLATIONS)
        context.on("weberror", lambda error: broken.append(str(error.error)))
        page = context.new_page()
        page.goto(server.address)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert not broken


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "shown", tuple(tiny.COLOURS), n=6)
    tiny.write_photos(folder / "asked", tuple(tiny.COLOURS), n=1, seed=1)
    return folder


@pytest.fixture(scope="module")
def photos(place):
    """Photos to learn, by colour."""
    return {colour: sorted((place / "shown" / colour).iterdir()) for colour in tiny.COLOURS}


@pytest.fixture(scope="module")
def asked(place):
    """A photo to ask about, by colour."""
    return {colour: place / "asked" / colour / "1-0.png" for colour in tiny.COLOURS}


@pytest.fixture(scope="module")
def taught(place, photos):
    """A service whose model knows four classes, one of which has a long name; for tests that only look."""
    model = place / "taught.visvm"
    learner = ImageClassifier(str(place / "tiny.onnx"), n_components=60, ridge=1.0, cache=False)
    for named in ({"red": "red", "green": "green"}, {"blue": "blue", "yellow": LONG}):
        learner.learn(
            [path for colour in named for path in photos[colour]],
            [name for colour, name in named.items() for _ in photos[colour]],
        )
    learner.save(model)
    with running(model, place / "tiny.onnx") as server:
        yield server


@pytest.fixture
def untaught(place, tmp_path):
    """A service whose model knows nothing."""
    with running(tmp_path / "m.visvm", place / "tiny.onnx") as server:
        yield server


def find(page, name):
    return page.get_by_test_id(name)


def show(page, view):
    find(page, f"tab-{view}").click()
    expect(page.locator(f"#panel-{view}")).to_be_visible()


def gather(page, paths, label=""):
    """Choose photos of one class."""
    groups = find(page, "group")
    before = groups.count()
    find(page, "input-photos").set_input_files(paths)
    expect(groups).to_have_count(before + 1)
    groups.last.get_by_test_id("group-label").fill(label)


def teach(page, shown):
    """Learn photos by label in one session; gives the card that tells the result."""
    show(page, "teach")
    for label, paths in shown.items():
        gather(page, paths, label)
    find(page, "learn").click()
    expect(find(page, "result")).to_be_visible()
    return find(page, "result")


def carried(page, paths):
    """Files as a drop or a paste carries them."""
    contents = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    return page.evaluate_handle(
        """async (contents) => {
          const carried = new DataTransfer();
          for (const [place, content] of contents.entries()) {
            const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
            carried.items.add(new File([bytes], `${place}.png`, { type: 'image/png' }));
          }
          return carried;
        }""",
        contents,
    )


def ask(page, path):
    """Ask about one photo; gives the labels and scores, the likeliest first."""
    show(page, "ask")
    find(page, "ask-input").set_input_files(path)
    expect(find(page, "answer").first).to_be_visible()
    rows = find(page, "answer").all()
    widths = [row.locator(".meter-fill").evaluate("each => each.style.width") for row in rows]
    scores = [float(width.removesuffix("%")) / 100 for width in widths]
    return list(zip(page.locator(".answer-label").all_inner_texts(), scores, strict=True))


def row_of(page, label):
    """The row of a class."""
    return find(page, "class-row").filter(
        has=page.get_by_test_id("class-name").get_by_text(label, exact=True)
    )


def rename(page, old, new):
    row = row_of(page, old)
    row.get_by_test_id("rename").click()
    row = find(page, "class-row").filter(has=find(page, "rename-input"))
    row.get_by_test_id("rename-input").fill(new)
    row.get_by_test_id("rename-save").click()
    expect(row_of(page, new)).to_be_visible()


def expect_classes(page, *labels):
    expect(find(page, "class-name")).to_have_text(list(labels))


def focused(page):
    """The test hook of what has the focus, else the name of its element."""
    return page.evaluate(
        "document.activeElement.dataset.testid ?? document.activeElement.localName"
    )


def tab_to(page, name, key="Tab"):
    """Press Tab until something has the focus, which can be seen all the way."""
    for _ in range(60):
        page.keyboard.press(key)
        if focused(page) == name:
            return
        assert focused(page) == "body" or page.evaluate(FOCUS_IS_SEEN), (
            f"no focus to be seen on {focused(page)}"
        )
    pytest.fail(f"{name} cannot be reached by {key}")


def test_a_person_teaches_asks_corrects_renames_and_forgets(untaught, visit, photos, asked):
    page = visit(untaught)
    result = teach(page, {colour: photos[colour] for colour in ("red", "green", "blue")})
    expect(result).to_contain_text(re.compile(r"3 new classes, 18 photos, [\d.]+ s\."))
    expect(page.locator("#model-summary")).to_have_text("Knows 3 classes from 18 photos")
    for colour in ("red", "green", "blue"):
        assert ask(page, asked[colour])[0][0] == colour

    ask(page, asked["yellow"])
    find(page, "wrong-label").fill("yellow")
    find(page, "teach-it").click()
    expect(page.locator("#ask-note")).to_contain_text("Learned. Its answer is now yellow")
    expect(find(page, "answer").first).to_contain_text("yellow")

    show(page, "classes")
    expect_classes(page, "blue", "green", "red", "yellow")
    expect(find(page, "class-count")).to_have_text(["6", "6", "6", "1"])
    rename(page, "red", "crimson")
    expect_classes(page, "blue", "crimson", "green", "yellow")
    row_of(page, "green").get_by_test_id("forget").click()
    expect(page.locator("dialog")).to_contain_text("Forget “green”?")
    expect(page.locator("dialog")).to_contain_text("6 photos")
    find(page, "forget-cancel").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect_classes(page, "blue", "crimson", "green", "yellow")
    row_of(page, "green").get_by_test_id("forget").click()
    find(page, "forget-confirm").click()
    expect_classes(page, "blue", "crimson", "yellow")

    page.reload()
    expect_classes(page, "blue", "crimson", "yellow")
    show(page, "history")
    expect(find(page, "history-item")).to_have_count(2)  # the newest first
    expect(find(page, "history-item").first).to_contain_text("New: yellow")
    expect(find(page, "history-item").last).to_contain_text("18 photos, 3 classes known after it.")
    expect(find(page, "history-chart")).to_be_visible()
    assert "green" not in [label for label, _ in ask(page, asked["green"])]
    assert ask(page, asked["red"])[0][0] == "crimson"


def test_kill_9_within_a_session_leaves_the_photos_on_the_page(place, visit, photos, tmp_path):
    model, many = tmp_path / "m.visvm", tmp_path / "many"
    many.mkdir()
    # a small file that takes its time to be decoded
    Image.new("RGB", (400, 400), tiny.COLOURS["blue"]).save(many / "0.png")
    for number in range(1, MANY):
        shutil.copy(many / "0.png", many / f"{number}.png")
    with running(model, place / "tiny.onnx") as server:
        page = visit(server)
        teach(page, {"red": photos["red"], "green": photos["green"]})
        gather(page, sorted(many.iterdir()), "blue")
        with page.expect_response("**/api/learn") as accepted:
            find(page, "learn").click()
        accepted.value.finished()
        server.kill()
    expect(find(page, "progress")).to_contain_text("The server does not answer")
    expect(page.locator("#connection")).to_contain_text("The server does not answer")
    with running(model, place / "tiny.onnx", "--port", server.port):
        expect(find(page, "teach-error")).to_have_text(RESTARTED)
        expect(find(page, "group")).to_contain_text(f"{MANY} photos")
        expect(find(page, "group-label")).to_have_value("blue")
        expect(page.locator("#connection")).to_be_hidden()
        expect(page.locator("#model-summary")).to_have_text("Knows 2 classes from 12 photos")
        find(page, "learn").click()
        expect(find(page, "result")).to_contain_text(f"1 new class, {MANY} photos")
        expect(find(page, "teach-error")).to_have_count(0)
        show(page, "classes")
        expect_classes(page, "blue", "green", "red")


def test_whoever_begins_with_little_is_asked_first(untaught, visit, photos):
    page = visit(untaught)
    gather(page, photos["red"], "red")
    find(page, "learn").click()
    expect(page.locator("dialog")).to_contain_text(
        "Two or more classes with five or more photos each"
    )
    page.keyboard.press("Escape")
    expect(find(page, "group-label")).to_have_value("red")
    find(page, "learn").click()
    find(page, "learn-anyway").click()
    expect(find(page, "result")).to_contain_text("begin a new one with more of both")


def test_cancelling_gives_the_photos_back(taught, visit, photos):
    page = visit(taught)
    gather(page, photos["red"], "red")
    page.route("**/api/learn", lambda route: None)  # an upload that does not come to its end
    find(page, "learn").click()
    expect(find(page, "group")).to_have_count(0)
    find(page, "cancel").click()
    expect(find(page, "group-label")).to_have_value("red")
    expect(find(page, "status")).to_contain_text("Nothing was learned")


def test_a_folder_names_its_classes(taught, visit, place):
    page = visit(taught)
    find(page, "input-folder").set_input_files(place / "shown")
    expect(find(page, "group")).to_have_count(4)
    assert sorted(each.input_value() for each in find(page, "group-label").all()) == sorted(
        tiny.COLOURS
    )
    expect(page.locator("#teach-summary")).to_have_text("24 photos in 4 classes")


def test_photos_are_dropped_and_pasted(taught, visit, photos, asked):
    page = visit(taught)
    page.dispatch_event(
        '[data-testid="drop-teach"]', "drop", {"dataTransfer": carried(page, photos["red"])}
    )
    expect(find(page, "group")).to_contain_text("6 photos")
    show(page, "ask")
    for colour, event in (("green", "paste"), ("blue", "drop")):
        page.evaluate(GIVEN[event], carried(page, [asked[colour]]))
        expect(find(page, "answer").first).to_contain_text(colour)


def test_classes_are_put_together_and_photos_taken_out(untaught, visit, photos):
    page = visit(untaught)
    teach(page, {"red": photos["red"], "rot": photos["yellow"], "green": photos["green"]})
    show(page, "classes")
    row_of(page, "rot").get_by_test_id("rename").click()
    find(page, "rename-input").fill("red")
    find(page, "rename-save").click()
    expect(page.locator("dialog")).to_contain_text("Put “rot” and “red” together?")
    page.get_by_role("button", name="Put together").click()
    expect_classes(page, "green", "red")
    expect(find(page, "class-count")).to_have_text(["6", "12"])
    for chosen, count in ((photos["yellow"], "6"), (photos["blue"], "6")):
        row_of(page, "red").get_by_test_id("forget").click()
        page.get_by_role("button", name="Take photos out…").click()
        page.locator("#take-out").set_input_files(chosen)
        page.get_by_role("button", name="Take them out").click()
        expect(row_of(page, "red").get_by_test_id("class-count")).to_have_text(count)
    # blue photos were never learned as red
    expect(row_of(page, "red").get_by_role("alert")).to_be_visible()


def test_classes_that_are_numbers_are_renamed_and_forgotten_too(place, visit, photos, tmp_path):
    learner = ImageClassifier(str(place / "tiny.onnx"), n_components=60, ridge=1.0, cache=False)
    several = [path for colour in photos for path in photos[colour][:3]]
    learner.learn(several, list(range(12)))
    learner.save(tmp_path / "m.visvm")
    with running(tmp_path / "m.visvm", place / "tiny.onnx") as server:
        page = visit(server)
        show(page, "classes")
        expect(find(page, "class-row")).to_have_count(12)
        rename(page, "0", "70")
        row_of(page, "11").get_by_test_id("forget").click()
        find(page, "forget-confirm").click()
        expect(find(page, "class-row")).to_have_count(11)
        assert {label for label, _ in ask(page, several[0])} <= {
            str(number) for number in (*range(1, 11), 70)
        }


def test_two_browsers_see_each_others_classes(untaught, visit, photos):
    one, other = visit(untaught), visit(untaught)
    show(other, "classes")
    teach(one, {"red": photos["red"], "green": photos["green"]})
    expect_classes(other, "green", "red")
    row_of(other, "red").get_by_test_id("rename").click()
    find(other, "rename-input").fill("crimson")

    show(one, "classes")
    third = visit(untaught)
    for page, label in ((third, "blue"), (one, "yellow")):
        show(page, "teach")
        gather(page, photos[label], label)
    find(third, "learn").click()
    find(one, "learn").click()
    expect(find(third, "result")).to_contain_text("New: blue")
    expect(find(one, "result")).to_contain_text("New: yellow")
    expect(find(other, "class-row")).to_have_count(4)
    # what is being typed was left alone
    expect(find(other, "rename-input")).to_have_value("crimson")
    expect(find(other, "rename-input")).to_be_focused()
    find(other, "rename-save").click()
    show(one, "classes")
    expect_classes(one, "blue", "crimson", "green", "yellow")


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
    find(page, "wrong-label").fill(script)
    find(page, "teach-it").click()
    expect(page.locator("#ask-note")).to_contain_text("Learned.")
    show(page, "classes")
    expect(row_of(page, image)).to_be_visible()
    rename(page, "green", "<b>green</b>")
    row_of(page, script).get_by_test_id("forget").click()
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


def test_everything_is_done_by_keyboard(untaught, visit, photos, asked):
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
    tab_to(page, "wrong-label")
    page.keyboard.type("blue")
    press("Enter")
    expect(page.locator("#ask-note")).to_contain_text("Learned.")
    expect(page.locator("#ask-note")).to_be_focused()

    tab_to(page, "tab-ask", key="Shift+Tab")
    press("ArrowRight")
    expect_classes(page, "blue", "green", "red")
    tab_to(page, "forget")
    press("Enter")
    expect(find(page, "forget-cancel")).to_be_focused()
    for _ in range(8):
        press("Tab")
        assert page.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    press("Escape")
    expect(page.locator("dialog")).to_have_count(0)
    expect(row_of(page, "blue").get_by_test_id("forget")).to_be_focused()
    press("Shift+Tab")
    press("Enter")
    expect(find(page, "rename-input")).to_be_focused()
    press("Escape")
    expect(row_of(page, "blue").get_by_test_id("rename")).to_be_focused()
    press("Enter")
    page.keyboard.type("navy")  # instead of the old name, which is selected
    press("Enter")
    expect_classes(page, "green", "navy", "red")
    expect(row_of(page, "navy").get_by_test_id("rename")).to_be_focused()


def test_errors_are_told_where_they_happen(untaught, visit, photos, asked, tmp_path):
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
    expect(find(page, "teach-error")).to_contain_text(
        "every file must be an image; 1 cannot be read: broken.png ("
    )
    expect(find(page, "group")).to_have_count(2)  # nothing was lost

    show(page, "ask")
    find(page, "ask-input").set_input_files(note)
    expect(find(page, "ask-error")).to_have_text("note.txt is not a photo.")
    find(page, "ask-input").set_input_files(asked["red"])
    expect(find(page, "ask-error")).to_contain_text("knows no class")
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
    find(page, "teach-it").click()
    expect(find(page, "ask-error")).to_have_text("Please type a name.")
    find(page, "ask-input").set_input_files(broken)
    expect(find(page, "ask-error")).to_contain_text("every file must be an image")


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
        expect(find(reader, "teach-it")).to_be_hidden()
        show(reader, "classes")
        expect_classes(reader, "green", "red")
        expect(find(reader, "forget").first).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1280])
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
    row_of(page, "red").get_by_test_id("rename").click()
    fits()
    row_of(page, "blue").get_by_test_id("forget").click()
    fits()
    page.keyboard.press("Escape")
    show(page, "history")
    expect(find(page, "history-chart")).to_be_visible()
    fits()
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert all((int(part) < 100) == (scheme == "dark") for part in re.findall(r"\d+", background))


def test_every_fifth_photo_is_kept_in_this_browser_to_test_with(untaught, visit, photos):
    page = visit(untaught)
    find(page, "keep-test").check()
    result = teach(page, {"red": photos["red"], "green": photos["green"]})
    expect(result).to_contain_text(
        re.compile(r"2 new classes, 10 photos.*Accuracy on your 2 test photos: \d+ %\.")
    )
    expect(page.locator("#kept-count")).to_have_text("This browser keeps 2 test photos.")
    page.reload()
    expect(page.locator("#kept-count")).to_have_text("This browser keeps 2 test photos.")
    find(page, "keep-test").check()
    result = teach(page, {"blue": photos["blue"]})
    expect(result).to_contain_text(
        re.compile(
            r"Accuracy on your 3 test photos: \d+ %\. On the classes it knew: \d+ %, before \d+ %\."
        )
    )
    show(page, "history")
    expect(find(page, "history-item").first).to_contain_text("Accuracy on your 3 test photos")
    show(page, "classes")
    expect(find(page, "class-count")).to_have_text(["5", "5", "5"])
    row_of(page, "blue").get_by_test_id("forget").click()
    find(page, "forget-confirm").click()
    expect_classes(page, "green", "red")
    show(page, "teach")
    expect(page.locator("#kept-count")).to_have_text("This browser keeps 2 test photos.")
    other = visit(untaught)
    expect(other.locator("#model-summary")).to_have_text("Knows 2 classes from 10 photos")
    expect(other.locator("#kept-line")).to_be_hidden()  # they did not leave this browser


def test_the_page_answers_as_the_command_does(taught, visit, visvm, place, asked):
    page = visit(taught)
    for colour in ("red", "green", "blue", "yellow"):
        code, out, _ = visvm(
            "predict", place / "taught.visvm", asked[colour], "--json", "--no-cache", "--quiet"
        )
        assert code == 0
        told = [(each["label"], each["score"]) for each in json.loads(out)["top"]]
        answered = ask(page, asked[colour])
        assert [label for label, _ in answered] == [label for label, _ in told]
        assert [score for _, score in answered] == pytest.approx(
            [score for _, score in told], abs=1e-5
        )
        shown = [
            float(text.strip("< %")) for text in page.locator(".answer-score").all_inner_texts()
        ]
        assert shown == pytest.approx([100 * score for _, score in told], abs=1)
