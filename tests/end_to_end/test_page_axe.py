"""What axe-core finds on the page that keeps people out: nothing, in every view."""

import os
from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.end_to_end.page import act, ask, find, gather, show, teach

pytestmark = pytest.mark.browser

RUN = """(rules) => axe.run({
  runOnly: rules ? { type: 'rule', values: rules }
    : ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
}).then(({ violations }) => violations.map(({ id, nodes }) =>
  `${id}: ${nodes.map(({ html, any }) => `${html} ${any.map((each) => each.message)}`)}`))"""


@pytest.fixture(scope="module")
def axe():
    """The source of axe-core, which `make axe` installs."""
    kept = Path(__file__).parents[2] / ".venv"
    found = sorted(kept.glob("axe-core@*/node_modules/axe-core/axe.min.js"))
    if not found:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("axe-core is not installed")
    return found[-1].read_text("utf-8")


@pytest.fixture
def look(axe):
    """Let axe look at a page: at everything by day, and at its contrasts by night."""

    def violations(page):
        if page.evaluate("typeof axe") == "undefined":
            page.evaluate(axe)
        found = page.evaluate(RUN, None)
        page.emulate_media(color_scheme="dark", reduced_motion="reduce")
        found += page.evaluate(RUN, ["color-contrast"])
        page.emulate_media(color_scheme="light", reduced_motion="reduce")
        return found

    return violations


def test_axe_finds_nothing_on_a_phone(taught, visit, look, photos, asked):
    phone = {"viewport": {"width": 390, "height": 800}, "has_touch": True}
    page = visit(taught, color_scheme="light", permissions=["camera"], **phone)
    find(page, "teach-camera").click()
    expect(find(page, "shutter")).to_be_enabled()
    assert look(page) == []
    find(page, "camera-done").click()
    gather(page, photos["red"], "red")
    gather(page, photos["green"])
    find(page, "learn").click()
    expect(find(page, "teach-error")).to_be_visible()
    assert look(page) == []
    find(page, "group-label").last.fill("green")
    page.route("**/api/learn", lambda route: None)
    find(page, "learn").click()
    expect(find(page, "progress")).to_be_visible()
    assert look(page) == []
    ask(page, asked["red"])
    find(page, "wrong").click()
    page.locator(".fine summary").click()
    assert look(page) == []
    show(page, "classes")
    act(page, "red", "rename")
    find(page, "class-menu").first.click()
    assert look(page) == []
    page.keyboard.press("Escape")
    act(page, "green", "forget")
    assert look(page) == []


def test_axe_finds_nothing_on_a_desktop(untaught, visit, look, photos, asked):
    page = visit(untaught, color_scheme="light")
    expect(find(page, "first-steps")).to_be_visible()
    assert look(page) == []
    show(page, "classes")
    expect(page.locator("#classes-empty")).to_be_visible()
    assert look(page) == []
    teach(page, {colour: photos[colour] for colour in ("red", "green", "blue")})
    assert look(page) == []
    show(page, "ask")
    find(page, "ask-input").set_input_files([asked["red"], asked["yellow"]])
    expect(find(page, "asked-answer").last).to_contain_text("none of these")
    page.get_by_role("button", name=asked["yellow"].name).last.click()
    expect(find(page, "verdict")).to_have_class("verdict unknown")
    assert look(page) == []
    find(page, "keeps").click()
    expect(find(page, "keeps-remove")).to_have_count(1)
    assert look(page) == []
    page.keyboard.press("Escape")
    show(page, "teach")
    teach(page, {"yellow": photos["yellow"]})
    show(page, "history")
    expect(find(page, "history-chart")).to_be_visible()
    assert look(page) == []
