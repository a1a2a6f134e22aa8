"""The documentation: its commands run, its examples too, and what it names is there."""

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
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
PAGES = sorted(str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md"))
DOCUMENTS = [  # all that the site shows, but history
    f"../{path.relative_to(ROOT)}"
    for path in (*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("benchmarks/*.md")))
    if path.name != "CHANGELOG.md"
]
OTHER_PROGRAMS = {"curl", "docker", "export", "g++", "./ask", "chmod", "systemctl", "loginctl"}
OTHER_PROGRAMS |= {"mkdir", "npm", "tar", "ln"}
# needs what is not here: a cluster, a hub, a camera, data sets, npm, minutes, a second site
ONLY_READ = re.compile(
    r"--ray|facebook/|--camera|\bbench\b|\breport\b|doctor|weights fetch|--web|text encode"
    r"|--text|masked (?:roster|sums|total)|import torch|-m (?:venv|http.server)"
)


def blocks(page, language):
    text = (DOCS / page).read_text("utf-8")
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)


def commands(page):
    variables = {}
    for block in blocks(page, "sh"):
        for line in block.splitlines():
            for name, value in variables.items():
                line = line.replace(f"${name} ", f"{value} ")
            words = shlex.split(line, comments=True)
            if words and (named := re.fullmatch(r"(\w+)=(.*)", words[0])):
                variables[named[1]] = named[2]
                words = shlex.split(named[2])
            if words:
                yield words


def having(language):
    return [page for page in (*PAGES, *DOCUMENTS) if blocks(page, language)]


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
def test_every_command_runs(visvm, place, page, monkeypatch):
    if page.startswith(("index", "start/photos", "../README")):
        os.remove("birds.visvm")
    if page == "video.md":
        from tests.clips import write_clip

        write_clip(place / "feeder.mp4")
    for words in commands(page):
        if words[0] != "visvm":
            other_program(page, words, monkeypatch)
            continue
        if ONLY_READ.search(" ".join(words)):
            understood(words[1:])
            continue
        if words[1:3] == ["sort", "birds.visvm"]:
            Path("sorted").mkdir(exist_ok=True)
        code, _, err = visvm(*expanded(words), *(["--components", "40"] * makes_a_model(words)))
        assert code == 0, f"{page}: {shlex.join(words)}: {err}"


def other_program(page, words, monkeypatch):
    """Run what is Python or moves files; of pip and make, see that it is there."""
    match words:
        case ["cp" | "mv", fetched, _] if fetched.startswith(("$", "include/")):
            pass  # of what pip or npm would have brought
        case ["cp", *files]:
            shutil.copy(*files)
        case ["mv", *files]:
            shutil.move(*files)
        case ["pip", "install", *what]:
            project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
            for extra in re.findall(r"[\w-]+", "".join(re.findall(r"\[(.*?)\]", " ".join(what)))):
                assert extra in project["optional-dependencies"], f"{page}: {extra}"
        case ["make", target, *_]:
            assert target in make_targets(), f"{page}: {target}"
        case ["python" | "python3", *given] if not ONLY_READ.search(" ".join(given)):
            if given[0] == "-c":
                exec(compile(given[1], page, "exec"), {})
            else:
                monkeypatch.setattr(sys, "argv", given)
                runpy.run_path(str(ROOT / given[0]), run_name="__main__")
        case [program, *_]:
            assert program in {*OTHER_PROGRAMS, "python", "python3"}, f"{page}: {program}"


def make_targets():
    return re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


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


@pytest.mark.parametrize("page", [*PAGES, *DOCUMENTS])
def test_what_is_named_in_prose_is_there(page):
    import typer

    from visvm.cli.main import app

    def options(command):
        return {option for each in command.params for option in each.opts + each.secondary_opts}

    def all_options(command):
        inner = getattr(command, "commands", {}).values()
        return options(command).union(*map(all_options, inner))

    program = typer.main.get_command(app)
    text = re.sub(r"^( *)```.*?^\1```", "", (DOCS / page).read_text("utf-8"), flags=re.M | re.S)
    for span in re.findall(r"`([^`]+)`", text):
        first, *rest = span.replace("\\|", " ").split()
        if first == "visvm":
            command = program
            while rest and hasattr(command, "commands"):
                assert rest[0] in command.commands, f"{page}: {span}"
                command, rest = command.commands[rest[0]], rest[1:]
            wanted = {re.split("[=.,…]", word)[0] for word in rest if word.startswith("--")}
            assert wanted <= all_options(command) | {"--help"}, f"{page}: {span}"
        elif first == "make" and rest:
            assert rest[0] in make_targets(), f"{page}: {span}"
        elif first == "python" and rest and rest[0].endswith(".py"):
            assert (ROOT / rest[0]).exists(), f"{page}: {span}"


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


def test_a_dead_link_fails_the_build(tmp_path):
    (line,) = re.findall(r"mkdocs (build .*)", (ROOT / "Makefile").read_text("utf-8"))
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("[there](no-such-page.md)\n")
    (tmp_path / "mkdocs.yml").write_text("site_name: one page\n")
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", *line.split()],
        cwd=tmp_path,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
    )
    assert built.returncode != 0
    assert "no-such-page.md" in built.stderr


def test_every_page_is_in_the_navigation():
    named = re.findall(r"([\w/-]+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    assert set(PAGES) <= set(named)
    assert len(named) == len(set(named))
