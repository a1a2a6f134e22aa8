"""The tree's own rules, on its sources: small files and functions, nothing private of others."""

import ast
from pathlib import Path

import visvm

SOURCES = sorted(Path(visvm.__file__).parent.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_files_have_at_most_400_lines():
    assert [str(p) for p in SOURCES if len(p.read_text(encoding="utf-8").splitlines()) > 400] == []


def test_functions_have_at_most_50_lines():
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = [
        f"{path.name}: {node.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, functions) and node.end_lineno - node.lineno >= 50
    ]
    assert long == []


def test_the_top_level_has_at_most_ten_modules():
    top = Path(visvm.__file__).parent
    packages = {path.parent.name for path in top.glob("*/__init__.py")}
    assert len(packages | {path.stem for path in top.glob("[!_]*.py")}) <= 10


def test_nothing_private_of_another_module_is_imported():
    private = [
        f"{path.name}: {name.name}"
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("visvm")
        for name in node.names
        if name.name.startswith("_") and name.name != "__version__"
    ]
    assert private == []
