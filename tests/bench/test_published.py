"""The published numbers against the paper's own source, cell by cell."""

import re
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

from visvm.bench.methods import METHODS as ENTRIES
from visvm.bench.report.published import read_published

PAPER = Path(__file__).parents[3] / "shared/paper/000_724e25743f943102.txt"
needs_paper = pytest.mark.skipif(not PAPER.is_file(), reason="the paper is not here")

CONTENT = tomllib.loads(files("visvm.bench.report").joinpath("published.toml").read_text("utf-8"))
DATASETS = {known["printed"]: name for name, known in CONTENT["datasets"].items()}
METHODS = {known["printed"]: name for name, known in CONTENT["methods"].items()} | {
    "Vis (Ours)": "vis"
}


def source(label):
    """The LaTeX of the table with a label, to its end."""
    text = PAPER.read_text("utf-8")
    start = text.index(rf"\label{{tab:{label}}}")
    return text[start : text.index(r"\end{table", start)]


def lines(latex):
    """Rows of a table as (method, numbers), in the order of the source; headers are left out."""
    latex = re.sub(
        r"\\(midrule|bottomrule|toprule|hline)|\\(rowcolor|cmidrule|cline)(\([lr]+\))?\{[^}]*\}",
        "",
        latex,
    )
    latex = re.sub(
        r"~?\\cite[pt]?\{[^}]*\}|\\multirow\{[^}]*\}\{[^}]*\}\{[^}]*\}|"
        r"\\(textbf|mathbf|bf)\b|[${}]",
        "",
        latex,
    )
    latex = latex.replace(r"\name\ ", "Vis ").replace(r"\name", "Vis")
    for line in latex.split(r"\\"):
        name, *cells = (part.strip() for part in line.split("&"))
        while cells and not name:
            name, *cells = cells
        if name in METHODS and cells:
            yield (
                METHODS[name],
                [tuple(map(float, re.findall(r"\d+\.?\d*", cell))) for cell in cells],
            )


@needs_paper
def test_main_table():
    found = {}
    for part in source("benchmark").split(r"\begin{NiceTabular}")[1:]:
        datasets = [
            DATASETS[name] for name in re.findall(r"\\multicolumn\{4\}\{c\}\{(\S+?)\s*\}", part)
        ]
        protocols = re.findall(r"B\d+ Inc\d+", part)
        assert (len(datasets), len(protocols)) == (3, 6)
        for method, cells in lines(part):
            values = [value for (value,) in cells]
            assert len(values) == 12
            for place, protocol in enumerate(protocols):
                setting = found.setdefault(datasets[place // 2], {}).setdefault(protocol, {})
                setting[method] = values[2 * place : 2 * place + 2]
    assert found == CONTENT["benchmark"]
    assert (
        sum(len(methods) for protocols in found.values() for methods in protocols.values())
        == 9 * 2 * 10
    )


@needs_paper
def test_random_features():
    columns = (
        ("aircraft", "average"),
        ("aircraft", "final"),
        ("cifar100", "average"),
        ("cifar100", "final"),
    )
    found = {}
    for method, cells in lines(source("random_feature_seed")):
        for (dataset, measure), cell in zip(columns, cells, strict=True):
            found.setdefault(dataset, {}).setdefault("B0 Inc10", {}).setdefault(method, {})[
                measure
            ] = list(cell)
    assert found == CONTENT["random_features"]


@needs_paper
def test_backbones():
    latex = source("backbone_generalization")
    found = {}
    for encoder, known in CONTENT["encoders"].items():
        if known["printed"] in latex:
            part = latex[latex.index(known["printed"]) :].split(r"\midrule")[0]
            for method, cells in lines(part.replace(known["printed"], "")):
                for dataset, pair in (("aircraft", cells[:2]), ("cifar100", cells[2:])):
                    setting = (
                        found.setdefault(encoder, {})
                        .setdefault(dataset, {})
                        .setdefault("B0 Inc10", {})
                    )
                    setting[method] = [value for (value,) in pair]
    assert found == CONTENT["backbones"]


@needs_paper
def test_forgetting():
    latex = source("forgetting")
    datasets = [DATASETS[name] for name in re.findall(r"\\multicolumn\{2\}\{c\}\{(\S+?)\}", latex)]
    protocols = re.findall(r"B\d+ Inc\d+", latex)
    found = {}
    for method, cells in lines(latex):
        for place, (value,) in enumerate(cells):
            found.setdefault(datasets[place // 2], {}).setdefault(protocols[place], {})[method] = (
                value
            )
    assert found == CONTENT["forgetting"]


@needs_paper
def test_text():
    found = {}
    for method, cells in lines(source("text_ablation")):
        for dataset, pair in (("aircraft", cells[:2]), ("cifar100", cells[2:])):
            found.setdefault(dataset, {}).setdefault("B0 Inc10", {})[method] = [
                value for (value,) in pair
            ]
    assert found == CONTENT["text"]


@needs_paper
def test_overhead():
    found = {
        method: [value for (value,) in cells]
        for method, cells in lines(source("overhead_cars_b0_inc10"))
    }
    assert found == CONTENT["overhead"]["methods"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("vit_b_16-laion400m_e32-55e67d44.pt", "clip-b16-laion400m"),
        ("C:\\weights\\ViT_B_16-laion400m_e32.pt", "clip-b16-laion400m"),
        (
            "timm/vit_base_patch16_clip_224.laion400m_e32/open_clip_model.safetensors",
            "clip-b16-laion400m",
        ),
        ("google/siglip-base-patch16-224", "siglip-b16"),
        ("facebook/dinov2-base", "dinov2-b14"),
        ("facebook/dinov2-base-imagenet1k-1-layer", None),
        ("vit_b_16-laion400m_e31-00efa78f.pt", None),
        ("vit_b_16_plus_240-laion400m_e32-699c4b84.pt", None),
        ("clip-b16-openai", None),
        ("dinov2-s14", None),
    ],
)
def test_encoders_are_known_again(name, expected):
    assert read_published().encoder(name) == expected


def test_numbers_of_a_setting():
    published = read_published()
    found = published.numbers("clip-b16-laion400m", "aircraft", "B0 Inc10")
    assert (found["vis"].average, found["vis"].final, found["vis"].forgetting) == (
        75.21,
        66.46,
        None,
    )
    assert found["vis"].average_seeds == (75.236, 0.106)
    assert found["acil"].average_seeds is None
    assert found["zs-clip"].final == 17.22
    assert found["engine"].average == 69.74
    assert published.numbers("clip-b16-laion400m", "cars", "B50 Inc10")["ranpac"].forgetting == 1.71
    assert published.numbers("siglip-b16", "cifar100", "B0 Inc10")["vis"].final == 83.83
    assert published.numbers("siglip-b16", "cub200", "B0 Inc20") == {}
    assert published.numbers("clip-b16-laion400m", "aircraft", "B0 Inc20") == {}
    assert published.numbers(None, "aircraft", "B0 Inc10") == {}


def test_every_method_and_data_set_is_described():
    published = read_published()
    assert len(published.datasets) == 9
    for dataset in published.datasets:
        assert published.test_images(dataset) > 0
        for protocol in CONTENT["benchmark"][dataset]:
            assert set(published.numbers("clip-b16-laion400m", dataset, protocol)) <= set(
                published.methods
            )
    assert {entry.published for entry in ENTRIES.values()} - {None} <= set(published.methods)
    assert set(published.row_methods("vis")) == {"vis", "vis-paper"}
    assert published.row_methods("ranpac") == ["ranpac-head", "ranpac"]
    assert published.row_methods("rapf") == ["rapf"]
    assert published.row_methods("dualprompt") == ["dualprompt"]
    assert set(published.overhead["methods"]) <= set(published.methods)
