"""Sections that follow the paper's main tables and figures."""

from collections.abc import Sequence
from typing import Any

from visvm.bench.methods import METHODS
from visvm.bench.report import plots
from visvm.bench.report.comparison import (
    AVERAGE,
    FINAL,
    Material,
    about_published,
    compare,
    has_sessions,
    in_parts,
)
from visvm.bench.report.formats import count
from visvm.bench.report.grouping import Setting
from visvm.bench.report.pages import Block, Picture, Section, section
from visvm.bench.report.summary import ORACLE, RELATIVES, grouped, with_options

_TEXTUAL = ("zs-clip", "vis+text", "vis")
_ABLATION = ("zs-clip", "visual-lssvm", "visual-lssvm+kernel", "vis-paper", "vis")
_CLASSIFIERS = ("ncm", "ridge", "vis")


def main_table(material: Material) -> Section | None:
    """Compare Ā and A_B of every method on every data set and protocol."""
    blocks: list[Block] = []
    for encoder, found in material.by_encoder.items():
        blocks.append(about_published(material, found))
        parts = in_parts(found, 6)
        blocks += [compare(material, encoder, part, (AVERAGE, FINAL)) for part in parts]
    intro = (
        "Average accuracy over sessions (Ā) and accuracy after the last session (A_B), in percent: "
        "class order 1993, seed 0 (or the least there are), test images, default options. A method "
        "that was run with other options only has them behind its name. The best is bold, the "
        "second underlined."
    )
    runs = [run.run for setting in material.compared for run in setting.standard.values()]
    intro += _widths({run.method for run in runs if not run.options})
    if any(run.method == ORACLE for run in runs):
        intro += (
            f" {ORACLE} keeps all images seen and learns them all again after every session: a "
            "ceiling, not a competitor."
        )
    return section("Accuracy", intro, blocks)


def _widths(shown: set[str]) -> str:
    """Say which D the methods have that were run with their defaults: it differs."""
    entries = [entry for entry in METHODS.values() if entry.name in shown]
    by_width = grouped(entries, lambda entry: entry.options.get("n_components"))
    said = "; ".join(
        f"{count(width)} of {', '.join(entry.name for entry in by_width[width])}"
        for width in sorted(filter(None, by_width), reverse=True)
    )
    return f" D is each method's own: {said}." if said else ""


def curves(material: Material) -> Section | None:
    """Draw accuracy over classes seen."""
    intro = (
        "Accuracy on all classes seen, after every session. Behind each name is the accuracy after "
        "the last session; in brackets behind vis, by how many points it is ahead of the best "
        "other method (a minus: behind it). The oracle does not count as one. The relatives of vis "
        "(parts left out, trained otherwise, another classifier) are compared separately, below."
    )
    pictures = [_curves(material, each) for each in material.compared if has_sessions(each)]
    return section("Accuracy over classes seen", intro, pictures)


def _curves(material: Material, setting: Setting) -> Picture:
    lines = [
        plots.Line(each.label, each.run.method, each.seen, [100 * a for a in each.accuracies])
        for each in setting.standard.values()
    ]
    gaps = {
        "best other method": plots.gap(lines),
        "best relative": plots.gap(lines, RELATIVES.__contains__),
    }
    found = {kind: gap for kind, gap in gaps.items() if gap is not None}
    where = [f"{_distance(gap.points)} {gap.other}, the {kind}" for kind, gap in found.items()]
    ours = next((gap.ours for gap in found.values()), "")
    said = f" In the end {ours} is {', and '.join(where)}." if where else ""
    caption = f"{setting.label}: accuracy over classes seen.{said}"
    drawing = plots.draw_curves(setting.label, lines, material.look)
    return Picture(f"curves-{material.names[setting.label]}", caption, drawing)


def _distance(points: float) -> str:
    shown = f"{abs(points):.2f}"
    if shown == "0.00":
        return "level with"
    return f"{shown} points {'ahead of' if points > 0 else 'behind'}"


def ablation(material: Material) -> Section | None:
    """Draw what the parts of ours add, one by one."""
    intro = (
        "Accuracy after the last session: a linear LS-SVM on the last block's feature, with the "
        "kernel map, with fused blocks."
    )
    if all(each.run.method != "zs-clip" for each in material.finished):
        intro += (
            " zs-clip, the paper's first bar, is left out: it needs the text features of the "
            "class names (--text)."
        )
    return _bars_section(material, "Ablation", intro, _ABLATION)


def textual(material: Material) -> Section | None:
    """Draw class names alone, our method with them, and without."""
    intro = (
        "Accuracy after the last session: zero-shot CLIP, which only compares images with class "
        "names; our method with a row for every class name in its sums; and without."
    )
    return _bars_section(material, "Textual information", intro, _TEXTUAL)


def classifiers(material: Material) -> Section | None:
    """Draw three classifiers on the same features."""
    intro = (
        "Accuracy after the last session of class means, one-hot ridge and LS-SVM on the same "
        "fused and lifted features."
    )
    return _bars_section(material, "Choice of classifier", intro, _CLASSIFIERS)


def _bars_section(
    material: Material, title: str, intro: str, methods: Sequence[str]
) -> Section | None:
    pictures = []
    for encoder, settings in material.by_encoder.items():
        groups = [group for setting in settings if len((group := _bars(setting, methods))[1]) > 1]
        shown = [method for method in methods if any(method in heights for _, heights in groups)]
        if groups:
            drawing = plots.bars(encoder, groups, shown, material.look)
            name = f"{title.lower().replace(' ', '-')}-{material.names[encoder]}"
            what = f"{', '.join(shown)}; accuracy after the last session."
            pictures.append(Picture(name, f"{title} with {encoder}: {what}", drawing))
    return section(title, intro, pictures)


def _bars(setting: Setting, methods: Sequence[str]) -> plots.BarGroup:
    """Take as many methods as were run with the same options."""
    runs = [each for each in setting.standard.values() if each.run.method in methods]

    def alike(options: dict[str, Any]) -> dict[str, float]:
        return {
            each.run.method: 100 * each.final
            for each in runs
            if each.run.options == METHODS[each.run.method].changed(options)
        }

    options = max(
        (each.run.options for each in runs),
        key=lambda options: (len(alike(options)), -len(options)),
        default={},
    )
    return with_options(setting.stacked, options), alike(options)


def backbones(material: Material) -> Section | None:
    """Compare encoders on the same images and sessions."""
    blocks = [
        compare(material, stream, part, (AVERAGE, FINAL), lambda each: each.encoder, only_ran=True)
        for stream, found in grouped(material.compared, lambda each: each.stream).items()
        if len(found) > 1
        for part in in_parts(found, 6)
    ]
    intro = (
        "The same images in the same sessions, seen by different encoders. In brackets, where they "
        "apply: numbers of the paper."
    )
    return section("Encoders", intro, blocks)
