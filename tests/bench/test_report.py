import io
import itertools
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser

import matplotlib
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.text import Text
from msgspec.structs import replace
from PIL import Image

from tests.bench.make_rows import (
    METHODS,
    PROTOCOLS,
    made_up_folder,
    make_rows,
    make_run,
    write_rows,
)
from visvm import InputError
from visvm.bench.report import pages, plots, plots_analysis, sections, sections_analysis
from visvm.bench.report import write as report
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import write_html, write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.report.write import write_report

CLIP = {"encoder": "w/vit_b_16-laion400m_e32-55e67d44.pt", "weights_digest": "7" * 64}
VOID = {"meta", "br", "path", "use", "rect", "circle"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A report with every section."""
    folder = tmp_path_factory.mktemp("whole")
    rows = made_up_folder(
        protocols={"B0 Inc20": PROTOCOLS["B0 Inc20"]},
        methods=(*list(METHODS)[:3], *list(METHODS)[5:]),
    )
    write_rows(folder, rows)
    return folder, write_report(folder)


def both(make, *streams, **changes):
    """A section of (method or run, accuracies), as HTML and as Markdown."""
    rows = [
        row
        for run, accuracies in streams
        for row in make_rows(make_run(run, **changes) if isinstance(run, str) else run, accuracies)
    ]
    section = make(gather(rows, read_published()))
    return write_html("t", [section]), write_markdown("t", [section])


def markdown_row(markdown, name):
    (line,) = (
        line for line in markdown.splitlines() if re.match(rf"\| \*?{re.escape(name)}\*? \|", line)
    )
    return [cell.strip() for cell in line.strip("|").split("|")][1:]


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
    assert len(titles) == len(report._SECTIONS)
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


def test_best_is_bold_and_the_oracle_never():
    streams = [
        ("vis", [0.9, 0.7]),
        ("mine", [0.9, 0.8]),
        ("ncm", [0.5, 0.4]),
        ("vis-oracle", [0.99, 0.98]),
    ]
    html, markdown = both(sections.main_table, *streams)
    assert markdown_row(markdown, "mine") == ["**85.00**", "**80.00**"]
    assert markdown_row(markdown, "vis") == ["<u>80.00</u>", "<u>70.00</u>"]
    assert markdown_row(markdown, "ncm") == ["45.00", "40.00"]
    assert markdown_row(markdown, "vis-oracle") == ["98.50", "98.00"]
    assert (
        "<th scope=row>mine</th><td><strong>85.00</strong></td><td><strong>80.00</strong></td>"
        in html
    )
    assert "<tr class=ours><th scope=row>vis</th><td><u>80.00</u></td>" in html
    assert (
        "<tbody class=apart>\n<tr><th scope=row>vis-oracle</th><td>98.50</td><td>98.00</td></tr>"
        in html
    )


def test_equal_numbers_are_both_bold_and_one_method_is_not():
    _, markdown = both(sections.main_table, ("vis", [0.70001]), ("mine", [0.7]), ("ncm", [0.6]))
    assert [markdown_row(markdown, name)[0] for name in ("vis", "mine", "ncm")] == [
        "**70.00**",
        "**70.00**",
        "<u>60.00</u>",
    ]
    _, markdown = both(sections.main_table, ("vis", [0.7]))
    assert markdown_row(markdown, "vis") == ["70.00", "70.00"]


def test_method_missing_in_a_setting():
    _, markdown = both(
        sections.main_table, ("vis", [0.7]), (make_run("mine", protocol="B4 Inc2"), [0.6])
    )
    assert markdown_row(markdown, "vis") == ["70.00", "70.00", "–", "–"]
    assert markdown_row(markdown, "mine") == ["–", "–", "60.00", "60.00"]


def test_published_numbers_only_beside_the_papers_encoder():
    streams = [("vis", [0.7]), ("ranpac-head", [0.6]), ("mine", [0.5])]
    html, markdown = both(
        sections.main_table, *streams, dataset="aircraft", protocol="B0 Inc10", **CLIP
    )
    assert markdown_row(markdown, "vis") == ["**70.00** (75.21)", "**70.00** (66.46)"]
    assert markdown_row(markdown, "ranpac-head") == ["<u>60.00</u> (69.77)", "<u>60.00</u> (60.28)"]
    assert markdown_row(markdown, "mine") == ["50.00", "50.00"]
    assert markdown_row(markdown, "BOFA, published") == ["(70.96)", "(60.43)"]
    assert "<td><strong>70.00</strong></td><td class=aside>(75.21)</td>" in html
    assert "ranpac-head is its head alone" in markdown
    assert (
        "aircraft was tested on 20 images here, on about 3\N{NO-BREAK SPACE}333 by the published code"
        in markdown
    )
    for changes in (
        {"encoder": "dinov2-s14"},
        {"transform": "crop"},
        {"dataset": "my/aircraft"},
        {"protocol": "B0 Inc20"},
    ):
        where = {"dataset": "aircraft", "protocol": "B0 Inc10", **CLIP, **changes}
        _, markdown = both(sections.main_table, *streams, **where)
        assert "75.21" not in markdown
        assert "none are put beside ours" in markdown


def test_published_forgetting_seeds_and_overhead():
    changes = {"dataset": "cars", "protocol": "B0 Inc10", **CLIP}
    _, markdown = both(sections.forgetting, ("vis", [0.9, 0.8]), ("acil", [0.9, 0.6]), **changes)
    assert markdown_row(markdown, "vis") == ["**10.00** (3.57)"]  # lower is better
    _, markdown = both(sections_analysis.overhead, ("vis", [0.9, 0.8]), **changes)
    assert markdown_row(markdown, "RanPAC") == ["93.92", "6.47", "5.16", "1.31", "5.30", "3.49"]
    runs = [
        (make_run("vis", seed=seed, **{**changes, "dataset": "aircraft"}), [0.7 + 0.01 * seed])
        for seed in range(3)
    ]
    _, markdown = both(sections_analysis.random_features, *runs)
    assert markdown_row(markdown, "vis") == [
        "0, 1, 2",
        "71.000 ± 1.000 (75.236 ± 0.106)",
        "71.000 ± 1.000 (66.520 ± 0.277)",
        "",
    ]


def test_mean_and_deviation_over_class_orders():
    runs = [
        (make_run(method, class_order_seed=1993 + seed), [0.9, final + 0.02 * seed])
        for seed in (0, 1)
        for method, final in METHODS_TWO
    ]
    _, markdown = both(sections_analysis.class_orders, *runs)
    assert markdown_row(markdown, "vis") == [
        "1993, 1994",
        "**85.50 ± 0.71**",
        "**81.00 ± 1.41**",
        "",
    ]
    assert markdown_row(markdown, "mine") == [
        "1993, 1994",
        "<u>80.50 ± 0.71</u>",
        "<u>71.00 ± 1.41</u>",
        "+10.00 ± 0.00, ahead in 2 of 2",
    ]


METHODS_TWO = (("vis", 0.8), ("mine", 0.7))


@pytest.mark.parametrize(
    ("ours", "said", "shown"),
    [(0.8, "5.00 points ahead of", "+5.00"), (0.7, "5.00 points behind", "−5.00")],
)
def test_gap_at_the_end_of_the_curves(monkeypatch, ours, said, shown):
    labels = []
    monkeypatch.setattr(plots, "label_ends", lambda *given: labels.append(given[-1]))
    runs = ("vis", [1.0, ours]), ("mine", [1.0, 0.75]), ("vis-oracle", [1.0, 0.99])
    _, markdown = both(sections.curves, *runs)
    assert f"In the end vis is {said} mine, the best other method." in markdown
    assert set(labels) == {f" ({shown} on mine)"}
    _, markdown = both(sections.curves, *runs, ("ncm", [1.0, 0.75]))
    assert f"{said} mine, the best other method, and {said} ncm, the best relative." in markdown
    assert plots.signed(-5.0) == "−5.00"
    assert plots.signed(5.0) == "+5.00"


def test_sensitivity_is_told_in_numbers():
    kinds = {500: [0.5, 0.6], 1000: [0.7, 0.7], 2000: [0.8]}  # two seeds, two equal ones, one
    runs = [
        (
            make_run("vis", split="validation", seed=seed, options={"n_components": size}),
            [0.9, final],
        )
        for size, finals in kinds.items()
        for seed, final in enumerate(finals)
    ]
    _, markdown = both(sections_analysis.sensitivities, *runs)
    (head,) = (line for line in markdown.splitlines() if line.startswith("| A"))
    assert [cell.strip() for cell in head.strip("|").split("|")] == [
        "A<sub>B</sub> with",
        "500",
        "1 000",
        "2 000",
    ]
    assert markdown_row(markdown, r"identity\_weight = 0.01") == ["55.00 ± 7.07", "70.00", "80.00"]


def test_unfinished_run_is_listed_and_not_averaged():
    rows = (
        make_rows(make_run("vis"), [0.9, 0.8])
        + make_rows(make_run("mine", options={"a": 1}), [0.99, 0.98])[:1]
    )
    material = gather(rows, read_published())
    head = write_markdown("t", [sections.what_was_run(material)])
    cells = markdown_row(head, "mine (a=1)")
    assert cells == ["cub200", "B0 Inc2", "dinov2-s14", "1993", "0", "test", "1 of 2"]
    assert "1 runs are finished, 1 are not" in head
    assert "mine" not in write_markdown("t", [sections.main_table(material)])


def test_nothing_finished(tmp_path):
    write_rows(tmp_path, make_rows(make_run("vis"), [0.9, 0.8])[:1])
    write_report(tmp_path)
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "nothing to compare yet" in text
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == ["What was run"]


def test_figures_of_runs_that_are_gone_go_with_them(tmp_path):
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


def test_several_machines_are_told():
    rows = make_rows(make_run("vis"), [0.9, 0.8])
    one = write_markdown("t", [sections.what_was_run(gather(rows, read_published()))])
    assert "All rows come from one machine" in one
    rows[1] = replace(rows[1], environment={**rows[1].environment, "cpu": "another"})
    material = gather(rows, read_published())
    assert "several values of cpu" in write_markdown("t", [sections.what_was_run(material)])
    assert "more than one cpu" in write_markdown("t", [sections_analysis.overhead(material)])


NASTY = ['<b>&"bold"', "a|b*c_d`e", "$x$ [link](javascript:1)", "\\ ~~日本~~\nnew line"]


def test_names_are_text_whatever_is_in_them():
    rows = make_rows(make_run(NASTY[0], dataset="<i>birds"), [0.9, 0.8], names=NASTY)
    rows[-1] = replace(rows[-1], confusions=[(0, 1, 3), (2, 3, 2)])
    section = sections_analysis.confused_classes(gather(rows, read_published()))
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


def test_only_methods_of_ones_own(tmp_path):
    rows = [
        row for method in ("first", "second") for row in make_rows(make_run(method), [0.9, 0.8])
    ]
    write_rows(tmp_path, rows)
    assert len(write_report(tmp_path)) > 2
    text = (tmp_path / "report.md").read_text("utf-8")
    assert "first, cub200 B0 Inc2, dinov2-s14" in text
    assert "## Ablation" not in text


def test_options_are_in_the_name_and_other_runs_at_the_end():
    runs = [(make_run("vis", options={"n_components": size}), [0.5]) for size in (1, 2)]
    _, markdown = both(
        sections.main_table, (make_run("klda", options={"n_components": 500}), [0.6]), *runs
    )
    assert markdown_row(markdown, r"klda (n\_components=500)") == ["**60.00**", "**60.00**"]
    assert markdown_row(markdown, r"vis (n\_components=2)") == ["<u>50.00</u>", "<u>50.00</u>"]
    _, markdown = both(sections.main_table, (make_run("vis"), [0.6]), *runs)
    assert "components" not in markdown
    _, markdown = both(sections.other_runs, (make_run("vis"), [0.6]), *runs)
    assert markdown_row(markdown, r"vis (n\_components=2)")[-2:] == ["50.00", "50.00"]


def test_without_the_usual_seeds_the_least_are_compared():
    runs = [
        (make_run("vis", class_order_seed=order, seed=seed), [order / 10])
        for order, seed in ((8, 1), (7, 3), (7, 2))
    ]
    _, markdown = both(sections.main_table, *runs)
    assert markdown_row(markdown, "vis") == ["70.00", "70.00"]
    assert sections.other_runs(gather(make_rows(*runs[2]), read_published())) is None


def test_old_and_new_and_encoders():
    rows = make_rows(
        make_run("vis"), [0.9, 0.8], old_accuracy=0.6, new_accuracy=0.9, harmonic_mean=0.72
    )
    rows += make_rows(
        make_run("mine"), [0.9, 0.7], old_accuracy=0.8, new_accuracy=0.2, harmonic_mean=0.32
    )
    markdown = write_markdown("t", [sections.old_and_new(gather(rows, read_published()))])
    assert markdown_row(markdown, "vis") == ["<u>60.00</u>", "**90.00**", "**72.00**"]
    runs = [
        (make_run(method, **where), [0.5]) for method in ("vis", "mine") for where in ({}, CLIP)
    ]
    _, markdown = both(sections.backbones, *runs)
    assert len(markdown_row(markdown, "mine")) == 4
    assert sections.backbones(gather(make_rows(make_run(), [0.5]), read_published())) is None


def test_choices_are_told_in_words():
    rows = make_rows(
        make_run("vis"),
        [0.9, 0.8],
        choices={"ridge": 1000.0, "layers": [6, 12], "mixer_is_identity": False, "x": None},
    )
    rows += make_rows(make_run("simplecil"), [0.9, 0.8], choices={})
    markdown = write_markdown("t", [sections.choices(gather(rows, read_published()))])
    assert markdown_row(markdown, "vis") == ["ridge 1000, layers 6 12, mixer is identity false"]
    assert "simplecil" not in markdown


def test_rows_of_older_code_are_counted_and_left_out():
    old = make_rows(
        make_run("vis", revision=0), [0.5, 0.5], measured_at="2026-01-01T00:00:00+00:00"
    )
    new = make_rows(make_run("vis"), [0.9, 0.8], measured_at="2026-01-02T00:00:00+00:00")
    markdown = write_markdown("t", [sections.what_was_run(gather(old + new, read_published()))])
    assert "2 rows that older code of a method had measured are left out" in markdown
    assert "Code has changed" not in markdown
    elsewhere = make_rows(make_run("vis", revision=0, protocol="B50 Inc10"), [0.5, 0.5])
    markdown = write_markdown(
        "t", [sections.what_was_run(gather(elsewhere + new, read_published()))]
    )
    assert "left out" not in markdown
    assert "Code has changed between settings: of vis these" in markdown


def test_another_head_is_no_other_machine():
    rows = [
        row
        for head in "ab"
        for row in make_rows(
            make_run(head), [0.5], environment={"cores": 2, "threads": 2, "head": head}
        )
    ]
    markdown = write_markdown("t", [sections.what_was_run(gather(rows, read_published()))])
    assert "All rows come from one machine and one set of versions." in markdown


def test_the_main_table_tells_the_widths():
    other = (make_run("ranpac-head", options={"n_components": 7}), [0.5])
    _, markdown = both(
        sections.main_table,
        ("vis", [0.6]),
        ("ncm", [0.5]),
        ("klda", [0.5]),
        ("slda", [0.5]),
        ("mine", [0.5]),
        other,
    )
    assert (
        " D is each method's own: 15\N{NO-BREAK SPACE}000 of ncm, vis; 5\N{NO-BREAK SPACE}000 of klda."
        in markdown
    )
    assert "D is" not in both(sections.main_table, ("slda", [0.5]))[1]


def test_leads_where_ours_has_options():
    options = {"options": {"n_components": 5}}
    runs = [
        (make_run(method, seed=seed, **options), [0.5 + (method == "vis") / 10])
        for method in ("vis", "acil")
        for seed in (0, 1)
    ]
    _, markdown = both(sections_analysis.random_features, *runs)
    assert (
        markdown_row(markdown, r"acil (n\_components=5)")[-1] == "+10.000 ± 0.000, ahead in 2 of 2"
    )
    assert "| feature seeds |" in markdown


def test_the_legend_of_few_bars_is_inside():
    look = plots.styles(METHODS)
    methods = ["visual-lssvm", "visual-lssvm+kernel", "vis-paper", "vis"]
    with matplotlib.style.context(["default", plots._RC]):
        figure = plots.bars.__wrapped__(
            "t", [("digits", dict.fromkeys(methods, 70.0))], methods, look
        )
        FigureCanvasAgg(figure).draw()
        extent = figure.legends[0].get_window_extent()
    assert extent.x0 >= 0
    assert extent.x1 <= figure.bbox.x1


def test_bars_of_other_options_are_left_out(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        plots,
        "bars",
        lambda title, groups, *_: drawn.append(groups) or plots.Drawing("<svg></svg>", b""),
    )
    runs = [
        ("visual-lssvm", [0.5]),
        ("visual-lssvm+kernel", [0.6]),
        (make_run("vis", options={"n_components": 5}), [0.7]),
    ]
    both(sections.ablation, *runs)
    assert drawn
    assert all(
        set(heights) == {"visual-lssvm", "visual-lssvm+kernel"}
        for groups in drawn
        for _, heights in groups
    )


def test_bars_of_one_set_of_options_are_drawn(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        plots,
        "bars",
        lambda title, groups, *_: drawn.append(groups) or plots.Drawing("<svg></svg>", b""),
    )
    runs = [
        (make_run(method, options={"n_components": 5}), [0.7])
        for method in ("visual-lssvm+kernel", "vis")
    ]
    both(sections.ablation, ("visual-lssvm", [0.5]), *runs)
    ((name, heights),) = drawn[0]
    assert "n_components=5" in name
    assert list(heights) == ["visual-lssvm", "visual-lssvm+kernel", "vis"]


def test_a_busy_machine_is_told():
    def said(load):
        rows = make_rows(make_run("vis"), [0.9, 0.8], load_average=load)
        rows += make_rows(
            make_run("mine"), [0.9, 0.8], load_average=load, seconds={"learn": 0.1, "predict": 0.1}
        )
        return write_markdown("t", [sections_analysis.overhead(gather(rows, read_published()))])

    assert "other work ran beside 100 % of these sessions, up to 4.0 times" in said(8.0)
    assert "other work" not in said(2.0)
    assert markdown_row(said(2.0), "mine")[2] == "**0.200**"
    assert markdown_row(said(8.0), "mine")[2] == "0.200"
    assert "whether other work ran beside is not known" in said(None)


def test_rows_that_do_not_tell_of_shared_images_hide_none():
    rows = make_rows(make_run("vis"), [0.9, 0.8]) + make_rows(
        make_run("mine"), [0.9, 0.8], n_shared=7
    )
    text = write_markdown("t", [sections.what_was_run(gather(rows, read_published()))])
    assert markdown_row(text, "cub200")[4] == "7"


def test_ablation_says_what_is_left_out():
    streams = [("visual-lssvm", [0.5, 0.4]), ("vis", [0.6, 0.5])]
    _, markdown = both(sections.ablation, *streams)
    assert "zs-clip, the paper's first bar, is left out" in markdown
    _, markdown = both(sections.ablation, *streams, ("zs-clip", [0.3, 0.2]))
    assert "left out" not in markdown


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "'visvm bench"),
        (b"", "holds none"),
        (b'{"run": 1}\n', "Line 1"),
        (b"\xff\n", "Line 1"),
    ],
)
def test_no_rows_is_one_line(tmp_path, content, said):
    if content is not None:
        (tmp_path / "results.jsonl").write_bytes(content)
    with pytest.raises(InputError) as refusal:
        write_report(tmp_path)
    assert said in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_failure_leaves_the_old_report(tmp_path, monkeypatch):
    rows = make_rows(make_run("vis"), [0.9, 0.8])
    write_rows(tmp_path, rows[:1])
    write_report(tmp_path)
    before = {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".jsonl"
    }
    write_rows(tmp_path, rows)

    def fail(folder, content):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_bytes", fail)
        with pytest.raises(InputError, match="No space left on device"):
            write_report(tmp_path)
    assert {
        path: path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file() and path.suffix != ".jsonl"
    } == before
    assert not list(tmp_path.glob(".report-*"))
    write_report(tmp_path)
    assert (tmp_path / "report.html").read_bytes() != before[tmp_path / "report.html"]


def test_styles_stay_with_their_methods():
    few, many = plots.styles(["ncm", "mine", "vis"]), plots.styles([*METHODS, "mine"])
    assert few["ncm"] == many["ncm"]
    assert few["vis"] == many["vis"]
    looks = [
        (style.colour, style.dash, style.marker)
        for style in plots.styles(f"method {n}" for n in range(60)).values()
    ]
    assert len(set(looks)) == len(looks)


def overlaps(figure, texts):
    """Pairs of texts whose boxes share some area."""
    figure.canvas.draw()
    boxes = [
        (text.get_text(), Text.get_window_extent(text).shrunk(0.98, 0.9))
        for text in texts
        if text.get_text()
    ]
    return [(a, b) for (a, one), (b, two) in itertools.combinations(boxes, 2) if one.overlaps(two)]


def test_labels_do_not_overlap():
    look = plots.styles(METHODS)
    lines = [
        plots.Line(name, name, [1, 2], [90, 100 * final]) for name, (final, *_) in METHODS.items()
    ]
    costs = [
        plots_analysis.Measured(name, name, 100 * final, n, size, 1.0, 1.0, None)
        for name, (final, n, size, _) in METHODS.items()
    ]
    with matplotlib.style.context(["default", plots._RC]):
        curves = plots.curves.__wrapped__("t", lines, look)
        FigureCanvasAgg(curves)
        assert overlaps(curves, curves.axes[0].texts) == []
        inside = curves.bbox
        assert all(inside.x1 >= text.get_window_extent().x1 for text in curves.axes[0].texts)
        assert [text.get_text() for text in curves.axes[0].texts if "vis " in text.get_text()] == [
            "vis 82.01 (+1.41 on ranpac-head)"
        ]
        scatter = plots_analysis.trade_offs.__wrapped__("t", costs, look)
        FigureCanvasAgg(scatter)
        assert overlaps(scatter, scatter.axes[1].texts) == []
        named = [text.get_text() for text in scatter.axes[1].texts if text.get_text()]
        assert named == [f"{name} {100 * final:.2f}" for name, (final, *_) in METHODS.items()]
        assert all(scatter.bbox.x1 >= text.get_window_extent().x1 for text in scatter.axes[1].texts)


@pytest.mark.parametrize("n_panels", [1, 2, 3, 4])
def test_maps_of_sessions_are_whole(n_panels):
    panels = [("colours\nB0 Inc2", [[90.0], [80.0, 85.0], [70.0, 80.0, 0.0]])] * n_panels
    with matplotlib.style.context(["default", plots._RC]):
        figure = plots_analysis.session_maps.__wrapped__("vis, dinov2-s14", panels)
        figure.savefig(io.BytesIO(), format="svg")
        # it is laid out once: a second time, faults of the first would vanish
        figure.set_layout_engine("none")
        FigureCanvasAgg(figure)
        maps = figure.axes[:n_panels]
        texts = [
            text
            for axes in maps
            for text in (axes._left_title, axes.title, axes.xaxis.label, axes.yaxis.label)
        ]
        assert overlaps(figure, [figure._suptitle, *texts]) == []
        assert all(
            figure.bbox.containsx(box.x0) and figure.bbox.containsy(box.y0)
            for box in map(Text.get_window_extent, texts)
        )


def test_drawing_is_a_picture():
    drawing = plots.sweeps(
        "$t",
        [
            plots.Sweep(
                "a", [0, 1e-4, 15000], {"x": [(1.0, 0.0), None, (2.0, 0.1)], "y": [(1.0, 0.0)] * 3}
            )
        ],
    )
    ET.fromstring(drawing.svg)
    assert Image.open(io.BytesIO(drawing.png)).format == "PNG"
    assert [plots.plain(value) for value in (0, 1e-4, 0.01, 15000)] == [
        "0",
        "1e-4",
        "0.01",
        "15 000",
    ]


def test_anchor_is_githubs():
    assert pages.Section("Old & new: A_B!", []).anchor == "old--new-a_b"
