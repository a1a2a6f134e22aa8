import pytest
from msgspec.structs import replace

from tests.bench.make_rows import make_rows, make_run
from tests.bench.written import CLIP, both, markdown_row
from visvm.bench.report.comparison import gather
from visvm.bench.report.pages import write_markdown
from visvm.bench.report.published import read_published
from visvm.bench.report.sections import accuracy, costs, losses, overview, variation

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unrendered")]


def test_best_is_bold_and_the_oracle_never():
    streams = [
        ("vis", [0.9, 0.7]),
        ("mine", [0.9, 0.8]),
        ("ncm", [0.5, 0.4]),
        ("vis-oracle", [0.99, 0.98]),
    ]
    html, markdown = both(accuracy.main_table, *streams)
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
    _, markdown = both(accuracy.main_table, ("vis", [0.70001]), ("mine", [0.7]), ("ncm", [0.6]))
    assert [markdown_row(markdown, name)[0] for name in ("vis", "mine", "ncm")] == [
        "**70.00**",
        "**70.00**",
        "<u>60.00</u>",
    ]
    _, markdown = both(accuracy.main_table, ("vis", [0.7]))
    assert markdown_row(markdown, "vis") == ["70.00", "70.00"]


def test_method_missing_in_a_setting():
    _, markdown = both(
        accuracy.main_table, ("vis", [0.7]), (make_run("mine", protocol="B4 Inc2"), [0.6])
    )
    assert markdown_row(markdown, "vis") == ["70.00", "70.00", "–", "–"]
    assert markdown_row(markdown, "mine") == ["–", "–", "60.00", "60.00"]


def test_published_numbers_only_beside_the_papers_encoder():
    streams = [("vis", [0.7]), ("ranpac-head", [0.6]), ("mine", [0.5])]
    html, markdown = both(
        accuracy.main_table, *streams, dataset="aircraft", protocol="B0 Inc10", **CLIP
    )
    assert markdown_row(markdown, "vis") == ["**70.00** (75.21)", "**70.00** (66.46)"]
    assert markdown_row(markdown, "ranpac-head") == ["<u>60.00</u> (69.77)", "<u>60.00</u> (60.28)"]
    assert markdown_row(markdown, "mine") == ["50.00", "50.00"]
    assert markdown_row(markdown, "BOFA, published") == ["(70.96)", "(60.43)"]
    assert "<td><strong>70.00</strong></td><td class=aside>(75.21)</td>" in html
    assert "ranpac-head is its head alone" in markdown
    tested = (
        "aircraft was tested on 20 images here, on about 3\N{NO-BREAK SPACE}333 by the published"
    )
    assert tested in markdown
    for changes in (
        {"encoder": "dinov2-s14"},
        {"transform": "crop"},
        {"dataset": "my/aircraft"},
        {"protocol": "B0 Inc20"},
    ):
        where = {"dataset": "aircraft", "protocol": "B0 Inc10", **CLIP, **changes}
        _, markdown = both(accuracy.main_table, *streams, **where)
        assert "75.21" not in markdown
        assert "none are put beside ours" in markdown


def test_published_forgetting_seeds_and_overhead():
    changes = {"dataset": "cars", "protocol": "B0 Inc10", **CLIP}
    _, markdown = both(
        losses.what_is_forgotten, ("vis", [0.9, 0.8]), ("acil", [0.9, 0.6]), **changes
    )
    assert markdown_row(markdown, "vis") == ["**10.00** (3.57)"]  # lower is better
    _, markdown = both(costs.overhead, ("vis", [0.9, 0.8]), **changes)
    assert markdown_row(markdown, "RanPAC") == ["93.92", "6.47", "5.16", "1.31", "5.30", "3.49"]
    runs = [
        (make_run("vis", seed=seed, **{**changes, "dataset": "aircraft"}), [0.7 + 0.01 * seed])
        for seed in range(3)
    ]
    _, markdown = both(variation.random_features, *runs)
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
    _, markdown = both(variation.class_orders, *runs)
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
    _, markdown = both(variation.sensitivities, *runs)
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
    head = write_markdown("t", [overview.what_was_run(material)])
    cells = markdown_row(head, "mine (a=1)")
    assert cells == ["cub200", "B0 Inc2", "dinov2-s14", "1993", "0", "test", "1 of 2"]
    assert "1 runs are finished, 1 are not" in head
    assert "mine" not in write_markdown("t", [accuracy.main_table(material)])


def test_several_machines_are_told():
    rows = make_rows(make_run("vis"), [0.9, 0.8])
    one = write_markdown("t", [overview.what_was_run(gather(rows, read_published()))])
    assert "All rows come from one machine" in one
    rows[1] = replace(rows[1], environment={**rows[1].environment, "cpu": "another"})
    material = gather(rows, read_published())
    assert "several values of cpu" in write_markdown("t", [overview.what_was_run(material)])
    assert "more than one cpu" in write_markdown("t", [costs.overhead(material)])


def test_options_are_in_the_name_and_other_runs_at_the_end():
    runs = [(make_run("vis", options={"n_components": size}), [0.5]) for size in (1, 2)]
    _, markdown = both(
        accuracy.main_table, (make_run("klda", options={"n_components": 500}), [0.6]), *runs
    )
    assert markdown_row(markdown, r"klda (n\_components=500)") == ["**60.00**", "**60.00**"]
    assert markdown_row(markdown, r"vis (n\_components=2)") == ["<u>50.00</u>", "<u>50.00</u>"]
    _, markdown = both(accuracy.main_table, (make_run("vis"), [0.6]), *runs)
    assert "components" not in markdown
    _, markdown = both(overview.other_runs, (make_run("vis"), [0.6]), *runs)
    assert markdown_row(markdown, r"vis (n\_components=2)")[-2:] == ["50.00", "50.00"]


def test_without_the_usual_seeds_the_least_are_compared():
    runs = [
        (make_run("vis", class_order_seed=order, seed=seed), [order / 10])
        for order, seed in ((8, 1), (7, 3), (7, 2))
    ]
    _, markdown = both(accuracy.main_table, *runs)
    assert markdown_row(markdown, "vis") == ["70.00", "70.00"]
    assert overview.other_runs(gather(make_rows(*runs[2]), read_published())) is None


def test_old_and_new_and_encoders():
    rows = make_rows(
        make_run("vis"), [0.9, 0.8], old_accuracy=0.6, new_accuracy=0.9, harmonic_mean=0.72
    )
    rows += make_rows(
        make_run("mine"), [0.9, 0.7], old_accuracy=0.8, new_accuracy=0.2, harmonic_mean=0.32
    )
    markdown = write_markdown("t", [losses.old_and_new(gather(rows, read_published()))])
    assert markdown_row(markdown, "vis") == ["<u>60.00</u>", "**90.00**", "**72.00**"]
    runs = [
        (make_run(method, **where), [0.5]) for method in ("vis", "mine") for where in ({}, CLIP)
    ]
    _, markdown = both(accuracy.backbones, *runs)
    assert len(markdown_row(markdown, "mine")) == 4
    assert accuracy.backbones(gather(make_rows(make_run(), [0.5]), read_published())) is None


def test_choices_are_told_in_words():
    rows = make_rows(
        make_run("vis"),
        [0.9, 0.8],
        choices={"ridge": 1000.0, "layers": [6, 12], "mixer_is_identity": False, "x": None},
    )
    rows += make_rows(make_run("simplecil"), [0.9, 0.8], choices={})
    markdown = write_markdown("t", [overview.choices(gather(rows, read_published()))])
    assert markdown_row(markdown, "vis") == ["ridge 1000, layers 6 12, mixer is identity false"]
    assert "simplecil" not in markdown


def test_rows_of_older_code_are_counted_and_left_out():
    old = make_rows(
        make_run("vis", revision=0), [0.5, 0.5], measured_at="2026-01-01T00:00:00+00:00"
    )
    new = make_rows(make_run("vis"), [0.9, 0.8], measured_at="2026-01-02T00:00:00+00:00")
    markdown = write_markdown("t", [overview.what_was_run(gather(old + new, read_published()))])
    assert "2 rows measured by older code of a method are left out" in markdown
    assert "has changed between" not in markdown
    elsewhere = make_rows(make_run("vis", revision=0, protocol="B50 Inc10"), [0.5, 0.5])
    markdown = write_markdown(
        "t", [overview.what_was_run(gather(elsewhere + new, read_published()))]
    )
    assert "left out" not in markdown
    assert "The code of vis has changed between settings" in markdown


def test_another_head_is_no_other_machine():
    rows = [
        row
        for head in "ab"
        for row in make_rows(
            make_run(head), [0.5], environment={"cores": 2, "threads": 2, "head": head}
        )
    ]
    markdown = write_markdown("t", [overview.what_was_run(gather(rows, read_published()))])
    assert "All rows come from one machine and one set of versions." in markdown


def test_the_main_table_tells_the_widths():
    other = (make_run("ranpac-head", options={"n_components": 7}), [0.5])
    _, markdown = both(
        accuracy.main_table,
        ("vis", [0.6]),
        ("ncm", [0.5]),
        ("klda", [0.5]),
        ("slda", [0.5]),
        ("mine", [0.5]),
        other,
    )
    widths = "15 000 of ncm, vis; 5 000 of klda"
    assert f" D is each method's own: {widths}." in markdown.replace("\N{NO-BREAK SPACE}", " ")
    assert "D is" not in both(accuracy.main_table, ("slda", [0.5]))[1]


def test_leads_where_ours_has_options():
    options = {"options": {"n_components": 5}}
    runs = [
        (make_run(method, seed=seed, **options), [0.5 + (method == "vis") / 10])
        for method in ("vis", "acil")
        for seed in (0, 1)
    ]
    _, markdown = both(variation.random_features, *runs)
    assert (
        markdown_row(markdown, r"acil (n\_components=5)")[-1] == "+10.000 ± 0.000, ahead in 2 of 2"
    )
    assert "| feature seeds |" in markdown


def test_a_busy_machine_is_told():
    def said(load):
        rows = make_rows(make_run("vis"), [0.9, 0.8], load_average=load)
        rows += make_rows(
            make_run("mine"), [0.9, 0.8], load_average=load, seconds={"learn": 0.1, "predict": 0.1}
        )
        return write_markdown("t", [costs.overhead(gather(rows, read_published()))])

    assert "other work ran during 100 % of these sessions, up to 4.0 times" in said(8.0)
    assert "other work" not in said(2.0)
    assert markdown_row(said(2.0), "mine")[2] == "**0.200**"
    assert markdown_row(said(8.0), "mine")[2] == "0.200"
    assert "do not say whether other work ran" in said(None)


def test_rows_that_do_not_tell_of_shared_images_hide_none():
    rows = make_rows(make_run("vis"), [0.9, 0.8]) + make_rows(
        make_run("mine"), [0.9, 0.8], n_shared=7
    )
    text = write_markdown("t", [overview.what_was_run(gather(rows, read_published()))])
    assert markdown_row(text, "cub200")[4] == "7"


def test_ablation_says_what_is_left_out():
    streams = [("visual-lssvm", [0.5, 0.4]), ("vis", [0.6, 0.5])]
    _, markdown = both(accuracy.ablation, *streams)
    assert "zs-clip, the paper's first bar, is left out" in markdown
    _, markdown = both(accuracy.ablation, *streams, ("zs-clip", [0.3, 0.2]))
    assert "left out" not in markdown


def test_text_is_compared_with_no_text():
    streams = [("zs-clip", [0.3, 0.2]), ("vis+text", [0.7, 0.5]), ("vis", [0.6, 0.5])]
    page, markdown = both(accuracy.textual, *streams)
    assert "zs-clip, vis+text, vis; accuracy after the last session" in markdown
    assert "Textual information" in page
