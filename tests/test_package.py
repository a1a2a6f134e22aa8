"""The package as a whole: its names, its texts, what importing it costs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import visvm

ROOT = Path(__file__).parents[1]


def run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout


def test_public_names():
    assert all(getattr(visvm, name) is not None for name in visvm.__all__)
    assert set(visvm.__all__) - {"__version__"} <= set(dir(visvm))
    assert {"ImageClassifier", "IncrementalLSSVC", "VisClassifier"} < set(visvm.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        _ = visvm.nothing
    assert issubclass(visvm.NeverLearnedError, visvm.VisvmError)
    assert issubclass(visvm.MemoryLimitError, MemoryError)


def test_the_core_imports_no_extra():
    loaded = run("import sys, visvm; print(*sys.modules)").split()
    assert "visvm" in loaded
    assert not {"torch", "onnxruntime", "PIL", "ray", "fastapi", "sklearn"} & set(loaded)


def test_the_package_is_a_program():
    shown = subprocess.run(
        [sys.executable, "-m", "visvm", "--version"], capture_output=True, text=True, check=True
    )
    assert shown.stdout.strip() == visvm.__version__


def test_the_changelog_names_this_version():
    assert f"\n## [{visvm.__version__}]" in (ROOT / "CHANGELOG.md").read_text("utf-8")


def test_the_readme_is_one_page_whose_links_lead_somewhere():
    text = (ROOT / "README.md").read_text("utf-8")
    assert len(text.split()) <= 600
    links = re.findall(r"\]\(([^)#]+)\)", text)
    assert len(links) > 5
    assert all((ROOT / link).exists() for link in links)
