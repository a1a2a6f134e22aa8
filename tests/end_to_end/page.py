"""What a person does on the page, in a browser."""

import base64

import pytest
from playwright.sync_api import expect

TIMEOUT = 30_000  # milliseconds; only ever waited for in full by a test that fails
LONG = "n" * 150
TELL_VIOLATIONS = """addEventListener('securitypolicyviolation',
  (event) => console.error('CSP', event.violatedDirective))"""
FOCUS_IS_SEEN = """[document.activeElement, document.activeElement.closest('label')]
  .some((each) => each && getComputedStyle(each).outlineStyle !== 'none')"""


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


def teach_right(page, label):
    """Say what the photo that was asked about shows."""
    find(page, "wrong").click()
    find(page, "wrong-label").fill(label)
    find(page, "teach-it").click()


def row_of(page, label):
    """The row of a class."""
    return find(page, "class-row").filter(
        has=page.get_by_test_id("class-name").get_by_text(label, exact=True)
    )


def act(page, label, action):
    """Choose an action in the menu of a class."""
    row = row_of(page, label)
    row.get_by_test_id("class-menu").click()
    row.get_by_test_id(action).click()


def rename(page, old, new):
    act(page, old, "rename")
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
