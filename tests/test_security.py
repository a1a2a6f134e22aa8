"""SECURITY.md names tests that exist, and the audit is of the versions that are pinned."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[1]
SECURITY = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
AUDIT = (ROOT / "docs/dependencies.md").read_text(encoding="utf-8")


def pins():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    found = (line.partition("==") for line in lines if not line.startswith("#"))
    return {name.lower().replace("_", "-"): version for name, _, version in found}


def requirements():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    ours = {"dev", "test", "docs"}  # of those who change visvm
    served = [each for name in extras.keys() - ours for each in extras[name]]
    named = [Requirement(each) for each in project["dependencies"] + served]
    return [each for each in named if each.name != "visvm"]


def test_every_file_that_security_md_names_exists():
    named = set(re.findall(r"`((?:tests|benchmarks)/[\w/]+\.py)`", SECURITY))
    assert len(named) > 20
    assert [name for name in sorted(named) if not (ROOT / name).is_file()] == []
    tests = [name for name in named if name.startswith("tests/")]
    assert all("def test_" in (ROOT / name).read_text() for name in tests)


def test_every_row_says_what_does_not_hold():
    rows = [line.split("|")[1:-1] for line in SECURITY.splitlines() if line.startswith("| **")]
    assert len(rows) > 10
    assert all(holds.strip() and lacks.strip() for _, holds, lacks, _ in rows)


def test_the_audit_is_of_the_pinned_versions():
    for required in requirements():
        name = required.name.lower().replace("_", "-")
        lines = (line.replace("_", "-") for line in AUDIT.splitlines())
        row = next(line for line in lines if re.search(rf"\b{name}\b", line))
        assert pins()[name] in row or "as pinned" in row, name
        assert Version(pins()[name]) in required.specifier


def test_the_lowest_versions_are_those_of_the_audit():
    for required in requirements():
        row = next(
            (line for line in AUDIT.splitlines() if line.startswith(f"| {required.name} ")), None
        )
        if row is not None:
            assert row.split("|")[3].strip() == str(required.specifier).removeprefix(">=")
