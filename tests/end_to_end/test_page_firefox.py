"""The page in Firefox: a person teaches, asks and confirms. Skipped where there is no Firefox."""

import base64

import pytest

from tests.end_to_end.firefox import firefox_path, started

pytestmark = pytest.mark.browser

GIVE = """
  const [name, contents] = given;
  const carried = new DataTransfer();
  for (const [place, content] of contents.entries()) {
    const bytes = Uint8Array.from(atob(content), (letter) => letter.charCodeAt(0));
    carried.items.add(new File([bytes], `${place}.png`, { type: 'image/png' }));
  }
  const input = document.querySelector(`[data-testid=${name}]`);
  input.files = carried.files;
  input.dispatchEvent(new Event('change'));
"""
NAME_LAST = """
  const input = [...document.querySelectorAll('[data-testid=group-label]')].at(-1);
  input.value = given[0];
  input.dispatchEvent(new Event('input'));
"""
CLICK = "document.querySelector(`[data-testid=${given[0]}]`).click();"
SAYS = "return document.querySelector(given[0])?.textContent.includes(given[1]) ?? false;"
LOADED = "return [...document.fonts].some(({ status }) => status === 'loaded');"
VERDICT = ".verdict:not([hidden]) .verdict-name"


def contents_of(paths):
    return [base64.b64encode(path.read_bytes()).decode() for path in paths]


@pytest.mark.skipif(firefox_path() is None, reason="Firefox is not installed")
def test_a_person_teaches_asks_and_confirms(untaught, photos, asked, tmp_path):
    with started(tmp_path) as browser:
        browser.open(untaught.address)
        browser.until(SAYS, "#model-summary", "Knows nothing")
        for colour in ("red", "green"):
            browser.run(GIVE, "input-photos", contents_of(photos[colour]))
            browser.run(NAME_LAST, colour)
        browser.run(CLICK, "learn")
        browser.until(SAYS, "[data-testid=result]", "2 new classes")
        browser.run(CLICK, "tab-ask")
        browser.run(GIVE, "ask-input", contents_of([asked["red"]]))
        browser.until(SAYS, VERDICT, "red")
        browser.run(CLICK, "right")
        browser.until(SAYS, "#ask-note", "one more photo of red")
        browser.until(LOADED)
        browser.open(untaught.address)  # and what was asked is still there
        browser.until(SAYS, VERDICT, "red")
