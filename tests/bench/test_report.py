import itertools
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import matplotlib
import pytest
from msgspec.structs import replace
from PIL import Image

from tests.bench.make_rows import (
    ENCODERS,
    METHODS,
    made_up_folder,
    make_rows,
    make_run,
    write_rows,
)
from tests.bench.written import CLIP
from tests.refusals import refused
from visvm import InputError
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import Section, write_html, write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.report.sections import SECTIONS, losses
from visvm.bench.report.write import write_report

pytestmark = pytest.mark.slow

VOID = {"meta", "br", "path", "use", "rect", "circle"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with every section; of the second encoder only what two methods make."""
    folder = tmp_path_factory.mktemp("whole")
    rows = made_up_folder(
        protocols={"B0 Inc20": [20] * 4}, methods=(*list(METHODS)[:3], *list(METHODS)[5:])
    )
    first, _ = ENCODERS
    write_rows(
        folder,
        [row for row in rows if row.run.encoder == first or row.run.method in ("simplecil", "vis")],
    )
    return folder, write_report(folder)


class Page(HTMLParser):
    """Tags, attributes and text of a page; complains about tags that are not closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.found, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID or tag in ("path", "rect", "use", "circle"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_every_section_and_every_file_is_there(whole):
    folder, written = whole
    assert written[:2] == [folder / "report.html", folder / "report.md"]
    assert all(path.is_file() for path in written)
    titles = re.findall(r"^## (.+)$", (folder / "report.md").read_text("utf-8"), re.MULTILINE)
    assert len(titles) == len(SECTIONS) - 1  # no method with text was run
    kinds = {re.match(r"[a-z]+", path.name)[0] for path in written[2:]}
    assert kinds == {
        *(
            "curves",
            "ablation",
            "choice",
            "sensitivity",
            "class",
            "sessions",
            "trade",
            "overhead",
            "confusions",
        ),
    }
    assert {path.name for path in folder.iterdir()} == {
        "results.jsonl",
        "report.html",
        "report.md",
        "figures",
    }


def test_figures_are_valid(whole):
    _, written = whole
    figures = written[2:]
    assert figures
    for path in figures:
        if path.suffix == ".png":
            with Image.open(path) as image:
                image.load()
                assert image.info["dpi"][0] > 149
                assert image.width > 400
        else:
            root = ET.fromstring(path.read_text("utf-8"))
            assert root.tag == "{http://www.w3.org/2000/svg}svg"
            assert b"data:" not in path.read_bytes()  # vectors all the way


def test_page_needs_nothing_else(whole):
    folder, _ = whole
    text = (folder / "report.html").read_text("utf-8")
    page = Page(text)
    assert "://" not in text
    assert not {tag for tag, _ in page.found} & {"script", "link", "img", "iframe", "object"}
    links = [attributes["href"] for _, attributes in page.found if "href" in attributes]
    ids = [attributes["id"] for _, attributes in page.found if "id" in attributes]
    assert len(set(ids)) == len(ids)
    assert links
    assert {link[1:] for link in links} <= set(ids)
    assert all(link.startswith("#") for link in links)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert all("aria-label" in attributes for tag, attributes in page.found if tag == "svg")


def test_markdown_is_whole(whole):
    folder, _ = whole
    text = (folder / "report.md").read_text("utf-8")
    for figure in re.findall(r"\]\((figures/[^)]+)\)", text):
        assert (folder / figure).is_file()
    tables = [
        list(lines)
        for is_table, lines in itertools.groupby(
            text.splitlines(), lambda line: line.startswith("|")
        )
        if is_table
    ]
    assert len(tables) > 10
    for header, rule, *rows in tables:
        counts = {len(re.findall(r"(?<!\\)\|", line)) for line in (header, rule, *rows)}
        assert len(counts) == 1
        assert re.fullmatch(r"\|( (:---|---:) \|)+", rule)
        assert rows
    anchors = re.findall(r"\]\(#([^)]+)\)", text)
    assert anchors == [
        title.lower().replace(" ", "-") for title in re.findall(r"^## (.+)$", text, re.MULTILINE)
    ]


def test_same_rows_give_the_same_bytes(tmp_path):
    rows = [
        row
        for method, final in (("vis", 0.8), ("mine", 0.7))
        for row in make_rows(make_run(method), [0.9, final])
    ]
    contents = []
    for name, setting in (
        ("a", {}),
        ("b", {"axes.facecolor": "red", "font.size": 30, "svg.fonttype": "none"}),
    ):
        write_rows(tmp_path / name, rows)
        with matplotlib.rc_context(setting):  # a user's own style changes nothing
            contents.append(
                {
                    path.relative_to(tmp_path / name): path.read_bytes()
                    for path in write_report(tmp_path / name)
                }
            )
    assert contents[0] == contents[1]


def test_nothing_finished(tmp_path):
    write_rows(tmp_path, make_rows(make_run("vis"), [0.9, 0.8])[:1])
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "nothing to compare yet" in text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What was run"]


def test_figures_of_runs_that_are_gone_go_with_them(tmp_path, unrendered):
    kept = [row for method in ("vis", "slda") for row in make_rows(make_run(method), [0.9, 0.8])]
    gone = [
        row for method in ("vis", "slda") for row in make_rows(make_run(method, **CLIP), [0.9, 0.8])
    ]
    write_rows(tmp_path, kept + gone)
    first = write_report(tmp_path)
    (tmp_path / "figures" / "my-own.png").write_bytes(b"kept")
    write_rows(tmp_path, kept)
    second = write_report(tmp_path)
    assert set(second) < set(first)
    assert set((tmp_path / "figures").iterdir()) == {
        path for path in second if path.parent.name == "figures"
    } | {tmp_path / "figures" / "my-own.png"}


NASTY = ['<b>&"bold"', "a|b*c_d`e", "$x$ [link](javascript:1)", "\\ ~~日本~~\nnew line"]


def test_names_are_text_whatever_is_in_them(unrendered):
    rows = make_rows(make_run(NASTY[0], dataset="<i>birds"), [0.9, 0.8], names=NASTY)
    rows[-1] = replace(rows[-1], confusions=[(0, 1, 3), (2, 3, 2)])
    section = losses.confused_classes(gather(rows, read_published()))
    page = Page(write_html("t", [section]))
    assert not {tag for tag, _ in page.found} & {"b", "i"}
    assert all(name in page.text for name in NASTY)
    markdown = write_markdown("t", [section])
    assert (
        r"| &lt;b&gt;&amp;\"bold\" | a\|b\*c\_d\`e | 3 | 10 | 30.0 |".replace(r"\"", '"')
        in markdown
    )
    assert (
        r"| \$x\$ \[link\](javascript:1) | \\ \~\~日本\~\~ new line | 2 | 10 | 20.0 |" in markdown
    )


def test_only_methods_of_ones_own(tmp_path, unrendered):
    rows = [
        row for method in ("first", "second") for row in make_rows(make_run(method), [0.9, 0.8])
    ]
    write_rows(tmp_path, rows)
    assert len(write_report(tmp_path)) > 2
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "first, cub200 B0 Inc2, dinov2-s14" in text
    assert "## Ablation" not in text


@pytest.mark.parametrize(
    ("content", "said"),
    [(None, "visvm bench"), (b'{"run": 1}\n', "Line 1"), (b"\xff\n", "Line 1")],
)
def test_rows_that_cannot_be_read_are_refused_in_one_line(tmp_path, content, said):
    if content is not None:
        (tmp_path / "results.jsonl").write_bytes(content)
    with pytest.raises(InputError) as caught:
        write_report(tmp_path)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "results.jsonl").write_bytes(b"")
    with refused("results-empty", InputError) as caught:
        write_report(tmp_path)
    assert f"visvm bench RECIPE --out {tmp_path}" in str(caught.value)


def test_failure_leaves_the_old_report(tmp_path, monkeypatch, unrendered):
    rows = make_rows(make_run("vis"), [0.9, 0.8])
    write_rows(tmp_path, rows[:1])
    write_report(tmp_path)
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".jsonl"
    }
    write_rows(tmp_path, rows)

    def fail(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", fail)
        with refused("report-unwritable", InputError) as caught:
            write_report(tmp_path)
    assert "No space left on device" in str(caught.value)
    assert {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".jsonl"
    } == before
    assert not list(tmp_path.rglob(".*.part"))
    write_report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() != before[tmp_path / "report.html"]


def test_anchor_is_githubs():
    assert Section("Old & new: A_B!", []).anchor == "old--new-a_b"
