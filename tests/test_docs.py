"""The documentation: its commands run, its examples too, and its addresses are there."""

import os
import re
import runpy
import shlex
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiny
from tests.encoders import patched
from visvm.service.app import create_app
from visvm.service.gate import Tokens
from visvm.service.limits import Limits

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
WRITTEN_BY_COMMANDS = {"scale.md", "dependencies.md"}
PAGES = sorted(
    str(path.relative_to(DOCS))
    for path in DOCS.rglob("*.md")
    if path.name not in WRITTEN_BY_COMMANDS
)
OTHER_PROGRAMS = {"pip", "make", "docker", "curl", "export", "python", "g++", "./ask", "cp"}
OTHER_PROGRAMS |= {"mkdir", "npm", "tar", "mv", "ln"}
# needs what is not here: a cluster, a hub, a camera, data sets, npm, minutes, a second site
ONLY_READ = re.compile(
    r"--ray|facebook/|--camera|\bbench\b|\breport\b|doctor|weights fetch|--web|text encode"
    r"|masked (?:roster|sums|total)"
)


def blocks(page, language):
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def commands(page):
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            words = shlex.split(line, comments=True)
            if words:
                yield words


def having(language):
    return [page for page in PAGES if blocks(page, language)]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """Folders as the pages have them, and birds.visvm, which has learned photos/."""
    from visvm import ImageClassifier

    folder = tmp_path_factory.mktemp("docs")
    for name, classes, seed in (
        ("photos", ("red", "green", "blue"), 0),
        ("held-out", ("red", "green", "blue"), 1),
        ("new-photos", ("red", "yellow"), 2),
    ):
        tiny.write_photos(folder / name, classes, n=6, seed=seed)
    shutil.copytree(folder / "held-out" / "red", folder / "unsorted")
    shutil.copytree(folder / "photos", folder / "nested" / "plain")
    shutil.copy(folder / "unsorted" / "1-0.png", folder / "garden.jpg")
    shutil.copy(folder / "photos" / "red" / "0-0.png", folder / "nested" / "plain" / "red")
    with pytest.MonkeyPatch.context() as patch:
        patched.put_into_catalog(patch, folder, **{"dinov2-s14": patched.model()})
        model = ImageClassifier("dinov2-s14", n_components=40, cache=False)
        model.learn(folder / "photos")
        model.save(folder / "birds.visvm")
    return folder


@pytest.fixture
def place(base, tmp_path, monkeypatch):
    shutil.copytree(base, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    patched.put_into_catalog(monkeypatch, tmp_path, **{"dinov2-s14": patched.model()})
    monkeypatch.setattr("visvm.service.server.run_server", lambda *given, **others: None)
    return tmp_path / "here"


def expanded(words):
    """Leave out what the shell does: files that are written to, and patterns."""
    if ">" in words:
        words = words[: words.index(">")]
    for word in words[1:]:
        yield from sorted(map(str, Path().glob(word))) if "*" in word else [word]


@pytest.mark.parametrize("page", having("sh"))
def test_every_command_runs(visvm, place, page):
    if page.startswith(("index", "start/photos")):
        os.remove("birds.visvm")
    if page == "video.md":
        from tests.clips import write_clip

        write_clip(place / "feeder.mp4")
    for words in commands(page):
        program, *_ = words
        if program == "cp" and "$" not in words[1]:
            shutil.copy(*words[1:])
        if program != "visvm":
            assert program in OTHER_PROGRAMS, f"{page}: {program}"
            continue
        if ONLY_READ.search(" ".join(words)):
            understood(words[1:])
            continue
        if words[1:3] == ["sort", "birds.visvm"]:
            Path("sorted").mkdir(exist_ok=True)
        code, _, err = visvm(*expanded(words), *(["--components", "40"] * makes_a_model(words)))
        assert code == 0, f"{page}: {shlex.join(words)}: {err}"


def makes_a_model(words):
    return words[1] == "learn" and not Path(words[2]).exists()


def understood(words):
    """Read a command as the program does, without running it."""
    import typer

    from visvm.cli.main import app

    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        command, words = command.commands[words[0]], words[1:]
    command.make_context("visvm", [*words])


@pytest.mark.parametrize("page", [page for page in having("python") if "methods" not in page])
def test_the_python_of_a_page_runs(place, page, monkeypatch):
    monkeypatch.setenv("VISVM_PROGRESS", "off")
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), {})


def test_every_address_that_is_asked_is_one_of_the_service():
    service = SimpleNamespace(limits=Limits(), metrics=None)
    paths = create_app(service, Tokens(None, None)).openapi()["paths"]
    known = {re.sub(r"\{\w+\}", "{}", path) for path in paths}
    asked = set()
    for page in having("sh"):
        for words in commands(page):
            if words[0] == "curl":
                (address,) = (word for word in words if word.startswith("http://"))
                path = re.sub(r"^http://[^/]+|\?.*", "", address)
                asked.add(path.replace("/ID", "/{}"))
    assert asked
    assert asked <= known


@pytest.mark.parametrize("name", ["photos", "comparison"])
def test_a_notebook_runs(tmp_path, monkeypatch, name):
    import matplotlib as mpl

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VISVM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("VISVM_PROGRESS", "off")
    monkeypatch.setenv("NOTEBOOK_ENCODER", str(ROOT / "tests" / "data" / "tiny.onnx"))
    backend = mpl.get_backend()
    mpl.use("agg")
    try:
        runpy.run_path(str(DOCS / "notebooks" / f"{name}.py"))
    finally:
        mpl.pyplot.close("all")
        mpl.use(backend)


def test_every_page_is_in_the_navigation():
    named = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert set(PAGES) <= set(named)
    assert len(named) == len(set(named))
