"""The two figures of docs/scale.md."""

from pathlib import Path

from matplotlib.figure import Figure
from scale_measure import WIDTH
from scale_model import FOLDERS, MIXED, SPREAD, WEB, Setup, simulate, widest

from visvm.bench.report.style import BLUE, ORANGE


def draw_time(setup: Setup, path: Path) -> None:
    """Days over the number of nodes, and what an image takes of a core."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    nodes = [1, 2, 4, 8, 16, 32, 64]
    for job, marker, line in zip(setup.jobs, "os^D", ("-", "--", "-", "--"), strict=True):
        days = [
            (simulate(job, n, spread=SPREAD).added + job.solve_seconds(n)) / 86_400 for n in nodes
        ]
        left.plot(
            nodes, days, color=ORANGE if job.node.gpu else BLUE, marker=marker, linestyle=line
        )
        above = 5 if job.node is setup.cpu else -5  # two of the lines end close together
        label = f"{job.stream.name}, {job.node.name}"
        left.annotate(
            label, (64, days[-1]), (8, above), textcoords="offset points", va="center", fontsize=8
        )
    left.set(
        xscale="log",
        yscale="log",
        xlim=(0.9, 1000),
        xlabel="nodes",
        ylabel="until the model is solved",
    )
    left.set_xticks(nodes, [str(n) for n in nodes])
    left.set_yticks(
        [1 / 96, 1 / 24, 0.25, 1, 7, 30, 365],
        ["15 min", "1 h", "6 h", "1 day", "1 week", "30 days", "1 year"],
    )
    left.minorticks_off()
    left.grid(alpha=0.3)
    left.set_title("The whole stream", loc="left", fontsize=10)

    jobs = [setup.job(stream, setup.gpu) for stream in (FOLDERS, MIXED, WEB)]
    parts, begin = [job.core_seconds(max(nodes)) for job in jobs], [0.0] * 3
    for name, (colour, hatch) in zip(
        parts[0],
        (("0.85", ""), ("0.55", ""), (BLUE, ""), (ORANGE, "///"), ("0.2", "")),
        strict=True,
    ):
        values = [1000 * each[name] for each in parts]
        right.barh(
            range(3),
            values,
            left=begin,
            color=colour,
            hatch=hatch,
            edgecolor="white",
            label=name,
            height=0.6,
        )
        begin = [before + value for before, value in zip(begin, values, strict=True)]
    budget = 1000 * setup.gpu.cores / setup.gpu.images_per_second
    right.axvline(budget, color="black", linestyle=":", linewidth=1.2)
    label = f"{budget:.0f} ms: what {setup.gpu.cores} cores have beside a GPU"
    right.annotate(label, (budget, -0.55), (4, 0), textcoords="offset points", fontsize=8)
    right.set_yticks(range(3), [job.stream.name.replace(", ", ",\n") for job in jobs])
    right.set(ylim=(2.6, -0.8), xlabel="time of one core for an image, beside the encoder (ms)")
    right.set_title("Decoding and summing, D = 15 000", loc="left", fontsize=10)
    figure.legend(
        *right.get_legend_handles_labels(),
        frameon=False,
        fontsize=8,
        loc="outside lower right",
        ncols=5,
    )
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_limits(setup: Setup, path: Path) -> None:
    """The D and C that one machine can hold and solve."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.subplots()
    classes = [round(10 ** (2 + step / 15)) for step in range(61)]
    for memory, line in zip(
        (setup.cpu.memory, setup.gpu.memory, 1e12), ("-", "--", "-."), strict=True
    ):
        widths = [widest(each, memory) for each in classes]
        axes.plot(classes, widths, color=BLUE, linestyle=line)
        axes.annotate(
            f"{memory / 1e9:,.0f} GB".replace(",", " "),
            (classes[0], widths[0]),
            (4, 4),
            textcoords="offset points",
            color=BLUE,
            fontsize=9,
        )
    axes.plot([250, 75_000], [1000, 300_000], color="0.5", linestyle=":")
    axes.text(400, 1250, "D x C is larger", ha="left", fontsize=8, color="0.35")
    axes.text(265, 1250, "D² is larger", ha="right", fontsize=8, color="0.35")
    for stream, place in ((FOLDERS, (6, 9)), (WEB, (-30, -16))):
        axes.plot(stream.n_classes, WIDTH, "s", color=ORANGE)
        axes.annotate(
            stream.name,
            (stream.n_classes, WIDTH),
            place,
            textcoords="offset points",
            color=ORANGE,
            fontsize=9,
        )
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="classes C",
        ylabel="width D",
        ylim=(1000, 400_000),
        xlim=(100, 1e6),
    )
    axes.set_title("What one machine with so much memory can solve", loc="left", fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
