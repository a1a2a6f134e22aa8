"""The page in a browser: what its tests share."""

import os

import pytest

from tests import tiny
from tests.end_to_end.page import LONG, TELL_VIOLATIONS, TIMEOUT
from tests.end_to_end.process import browser_path, running
from visvm import ImageClassifier

# without a graphics card, what stands in for one costs more than it draws faster
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-software-rasterizer", "--disable-extensions"]
# what the address bar would show is two more pages in every window, dearer than ours
FLAGS += ["--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup"]
# a camera for pages that ask for one, where the context may use it
FLAGS += ["--use-fake-device-for-media-stream"]


@pytest.fixture(scope="module")
def browser():
    path = browser_path()
    if path is None:
        (pytest.fail if os.environ.get("CI") else pytest.skip)("chromium is not installed")
    from playwright.sync_api import expect, sync_playwright

    expect.set_options(timeout=TIMEOUT)
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def visit(browser):
    """Open the page in a browser of its own; what breaks in its scripts fails the test."""
    contexts, broken = [], []

    def open_page(server, **options):
        context = browser.new_context(**{"reduced_motion": "reduce", **options})
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


@pytest.fixture(scope="session")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    tiny.write_encoder(folder)
    tiny.write_photos(folder / "shown", tuple(tiny.COLOURS), n=6)
    tiny.write_photos(folder / "asked", tuple(tiny.COLOURS), n=1, seed=1)
    return folder


@pytest.fixture(scope="session")
def photos(place):
    """Photos to learn, by colour."""
    return {colour: sorted((place / "shown" / colour).iterdir()) for colour in tiny.COLOURS}


@pytest.fixture(scope="session")
def asked(place):
    """A photo to ask about, by colour."""
    return {colour: place / "asked" / colour / "1-0.png" for colour in tiny.COLOURS}


@pytest.fixture(scope="session")
def taught(place, photos):
    """A service whose model knows four classes, one of a long name; for tests that only look."""
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
