"""The page of `visvm serve` in a browser: everything a person does, and two at once."""

import json
import re

import pytest
from playwright.sync_api import expect

from tests import tiny
from tests.end_to_end.page import (
    act,
    ask,
    carried,
    expect_classes,
    find,
    gather,
    rename,
    row_of,
    show,
    teach,
    teach_right,
)
from tests.end_to_end.process import running
from visvm import ImageClassifier

pytestmark = pytest.mark.browser

GIVEN = {
    "paste": """(data) => document.dispatchEvent(
      new ClipboardEvent('paste', { clipboardData: data, bubbles: true }))""",
    "drop": """(data) => document.dispatchEvent(
      new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }))""",
}


def test_a_person_teaches_asks_corrects_renames_and_forgets(untaught, visit, photos, asked):
    page = visit(untaught)
    result = teach(page, {colour: photos[colour] for colour in ("red", "green", "blue")})
    expect(result).to_contain_text(re.compile(r"3 new classes, 18 photos, [\d.]+ s\."))
    expect(page.locator("#model-summary")).to_have_text("Knows 3 classes from 18 photos")
    for colour in ("red", "green", "blue"):
        assert ask(page, asked[colour])[0][0] == colour
        expect(find(page, "verdict")).to_contain_text(colour)
        expect(find(page, "status")).to_contain_text(f"Answer: {colour}")  # for screen readers

    ask(page, asked["yellow"])
    expect(find(page, "verdict")).to_have_class("verdict unknown")
    expect(find(page, "verdict")).to_contain_text("None of these")
    expect(find(page, "right")).to_be_hidden()
    page.locator(".fine summary").click()
    find(page, "rate").select_option("0")  # never: the same photo is asked again
    expect(find(page, "verdict")).not_to_have_class("verdict unknown")
    teach_right(page, "yellow")
    expect(page.locator("#ask-note")).to_contain_text("Learned. Its answer is now yellow")
    expect(find(page, "answer").first).to_contain_text("yellow")

    show(page, "classes")
    expect_classes(page, "blue", "green", "red", "yellow")
    expect(find(page, "class-count")).to_have_text(["6", "6", "6", "1"])
    rename(page, "red", "crimson")
    expect_classes(page, "blue", "crimson", "green", "yellow")
    act(page, "green", "forget")
    expect(page.locator("dialog")).to_contain_text("Forget “green”?")
    expect(page.locator("dialog")).to_contain_text("6 photos")
    find(page, "forget-cancel").click()
    expect(page.locator("dialog")).to_have_count(0)
    expect_classes(page, "blue", "crimson", "green", "yellow")
    act(page, "green", "forget")
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


def test_the_last_change_is_undone_once(untaught, visit, photos):
    page = visit(untaught)
    teach(page, {"red": photos["red"], "green": photos["green"]})
    show(page, "history")
    expect(find(page, "undo")).to_be_hidden()  # before the first session there was nothing
    show(page, "classes")
    rename(page, "red", "crimson")
    show(page, "history")
    expect(find(page, "history-event")).to_have_text(re.compile("Renamed red to crimson"))
    find(page, "undo").click()
    expect(page.locator("dialog")).to_contain_text("It renamed red to crimson.")
    find(page, "undo-confirm").click()
    expect(find(page, "undo")).to_be_hidden()
    expect(find(page, "history-event")).to_have_count(0)
    show(page, "classes")
    expect_classes(page, "green", "red")


def test_it_answers_with_a_group_and_says_why(untaught, visit, photos, asked):
    page = visit(untaught)
    blue = photos["blue"]
    teach(page, {"cold/dark": blue, "cold/light": blue, "warm": photos["red"]})
    assert len(ask(page, asked["blue"])) == 3
    expect(find(page, "level")).to_contain_text(re.compile(r"^cold \d+ %"))
    find(page, "why").click()
    expect(find(page, "heat")).to_have_js_property("width", round(448 * (26 / 20) ** 0.5))
    expect(page.locator("#why-help")).to_be_visible()
    find(page, "why").click()
    expect(find(page, "heat")).to_have_count(0)
    expect(page.locator("#ask-stage img")).to_be_visible()
    assert ask(page, asked["red"])[0][0] == "warm"
    expect(find(page, "level")).to_contain_text("warm")


def test_beginning_with_little_needs_a_confirmation(untaught, visit, photos):
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
    expect(find(page, "result").locator("li")).to_have_count(1)  # the note on so small a beginning


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
    act(page, "rot", "rename")
    find(page, "rename-input").fill("red")
    find(page, "rename-save").click()
    expect(page.locator("dialog")).to_contain_text("Put “rot” and “red” together?")
    page.get_by_role("button", name="Put together").click()
    expect_classes(page, "green", "red")
    expect(find(page, "class-count")).to_have_text(["6", "12"])
    for chosen, count in ((photos["yellow"], "6"), (photos["blue"], "6")):
        act(page, "red", "take-out")
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
        act(page, "11", "forget")
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
    act(other, "red", "rename")
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
    act(page, "blue", "forget")
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
        typed = [(each["label"], each["score"]) for each in json.loads(out)["top"]]
        answered = ask(page, asked[colour])
        assert [label for label, _ in answered] == [label for label, _ in typed]
        assert [score for _, score in answered] == pytest.approx(
            [score for _, score in typed], abs=1e-5
        )
        shown = [
            float(text.strip("< %"))
            for text in page.locator("#answers .answer-score").all_inner_texts()
        ]
        assert shown == pytest.approx([100 * score for _, score in typed], abs=1)


def test_doubtful_photos_are_shown_before_they_are_learned(untaught, visit, photos):
    page = visit(untaught)
    show(page, "teach")
    gather(page, photos["red"], "red")
    gather(page, [*photos["green"], photos["blue"][0]], "green")
    gather(page, [*photos["blue"][1:], photos["blue"][1]], "blue")
    find(page, "check").click()
    expect(find(page, "checked")).to_contain_text("1 label looks wrong.")
    doubts = find(page, "doubt")
    expect(doubts.first).to_contain_text("labelled green, looks like blue")
    expect(page.locator("#model-summary")).to_have_text("Knows nothing yet")
    doubts.first.get_by_test_id("doubt-label").click()
    same = doubts.filter(has_text=re.compile(r"png the same photo as"))
    expect(same).to_have_count(1)
    same.get_by_test_id("doubt-remove").click()
    find(page, "learn").click()
    expect(find(page, "result")).to_contain_text("3 new classes, 18 photos")
    expect(find(page, "result")).to_contain_text("Estimated accuracy")
