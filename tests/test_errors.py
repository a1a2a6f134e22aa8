"""Every error has a code of its own that never changes: read from the sources."""

import ast
import pickle
import re
from functools import cache
from pathlib import Path

import pytest

import visvm
from visvm import errors
from visvm.errors import InputError, VisvmError

SOURCES = Path(visvm.__file__).parent
GOLDEN = Path(__file__).parent / "data" / "error_codes.txt"


@cache
def sources():
    """The syntax trees of all modules, by path."""
    return {
        path.relative_to(SOURCES).as_posix(): ast.parse(path.read_text())
        for path in sorted(SOURCES.rglob("*.py"))
    }


@cache
def error_classes():
    """The names of all classes below src/visvm that are a VisvmError."""
    bases = {}
    for tree in sources().values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                bases[node.name] = {getattr(base, "id", None) for base in node.bases}
    known = {"VisvmError"}
    while more := {name for name, above in bases.items() if above & known} - known:
        known |= more
    return known


def errors_in(tree, classes):
    """The calls in a tree that make an error."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", None))
            if name in classes:
                yield node


def code_in(value):
    """The code that an expression is, with a star for what is filled in; None if passed on."""
    if isinstance(value, ast.Constant):
        return value.value
    if isinstance(value, ast.JoinedStr):
        parts = [code_in(part) if isinstance(part, ast.Constant) else "*" for part in value.values]
        return "".join(parts)
    return None


def codes_in(tree, classes):
    """All codes that a tree gives to errors: in calls, of classes, and by ``describe_error``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield from (code_in(each.value) for each in node.keywords if each.arg == "code")
        elif isinstance(node, ast.ClassDef) and node.name in classes:
            for each in node.body:
                if isinstance(each, ast.Assign) and each.targets[0].id == "code":
                    yield code_in(each.value)
        elif isinstance(node, ast.FunctionDef) and node.name == "describe_error":
            returned = [each.value for each in ast.walk(node) if isinstance(each, ast.Return)]
            yield from (code_in(each.elts[0]) for each in returned if isinstance(each, ast.Tuple))


def test_every_error_is_given_a_code():
    classes = error_classes()
    assert {"InputError", "ModelFileError"} < classes
    bare = [
        f"{name}:{call.lineno}"
        for name, tree in sources().items()
        for call in errors_in(tree, classes)
        if not any(keyword.arg == "code" for keyword in call.keywords)
    ]
    assert not bare, f"these errors lack an explicit code=: {', '.join(bare)}"


def test_codes_are_stable():
    classes = error_classes()
    found = {code for tree in sources().values() for code in codes_in(tree, classes)} - {None}
    golden = GOLDEN.read_text().splitlines()
    assert golden == sorted(set(golden)), f"{GOLDEN.name} is not sorted, or has a line twice"
    assert not (gone := sorted(set(golden) - found)), (
        f"these codes are gone: {', '.join(gone)}. Codes are stable, as programs rely on them: "
        f"give the error its code again. Only what can no longer happen may leave {GOLDEN.name}."
    )
    assert not (new := sorted(found - set(golden))), (
        f"these codes are new: {', '.join(new)}. Codes are stable, so choose well: use one that "
        f"{GOLDEN.name} has for the same meaning, or add the new one there, in its place."
    )


def test_codes_are_a_few_words_joined_by_hyphens():
    for code in GOLDEN.read_text().splitlines():
        assert re.fullmatch(r"([a-z][a-z0-9]*|\*)(-([a-z0-9]+|\*)){0,3}", code), code


def test_the_tree_of_errors_names_every_class_with_its_code():
    classes = [each for each in vars(errors).values() if isinstance(each, type)]
    for each in classes:
        if issubclass(each, VisvmError):
            assert re.search(rf"\b{each.__name__}\b.* {each.code}\b", errors.__doc__), each


def test_an_error_keeps_its_code_on_its_way_to_another_process():
    again = pickle.loads(pickle.dumps(InputError("The list is empty.", code="images-empty")))
    assert (str(again), again.code) == ("The list is empty.", "images-empty")


@pytest.mark.parametrize("broken", ["raise InputError('x')", "raise errors.ImageError('x')"])
def test_an_error_without_a_code_is_found(broken):
    (call,) = errors_in(ast.parse(broken), error_classes())
    assert not call.keywords


def test_codes_of_every_kind_are_found():
    source = """
class OneError(VisvmError):
    code = "one"
def describe_error(error):
    return "two", str(error)
raise InputError("x", code="three")
raise InputError("x", code=f"four-{name}")
raise InputError("x", code=error.code)
"""
    found = [*codes_in(ast.parse(source), {"OneError", "InputError"})]
    assert sorted(found, key=str) == [None, "four-*", "one", "three", "two"]
