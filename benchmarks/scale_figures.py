"""The two figures of docs/scale.md."""

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from scale_measure import WIDTH
from scale_model import FOLDERS, MIXED, SPREAD, WEB, Setup, widest
from scale_simulation import simulate

from visvm.bench.report.style import BLUE, ORANGE

NODES = [1, 2, 4, 8, 16, 32, 64]


def draw_time(setup: Setup, path: Path) -> None:
    """Draw days over the number of nodes, and what an image takes of a core."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2)
    draw_days(setup, left)
    draw_parts(setup, right)
    entries = right.get_legend_handles_labels()
    figure.legend(*entries, frameon=False, fontsize=8, loc="outside lower right", ncols=5)
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_days(setup: Setup, axes: Axes) -> None:
    """Draw the time of the whole stream over the number of nodes."""
    for job, line in zip(setup.jobs, ("o-", "s--", "^-", "D--"), strict=True):
        totals = [simulate(job, n, spread=SPREAD).added + job.solve_seconds(n) for n in NODES]
        days = [seconds / 86_400 for seconds in totals]
        axes.plot(NODES, days, line, color=ORANGE if job.node.gpu else BLUE)
        above = 5 if job.node is setup.cpu else -5  # two of the lines end close together
        place = {"xytext": (8, above), "textcoords": "offset points", "va": "center"}
        axes.annotate(f"{job.stream.name}, {job.node.name}", (64, days[-1]), fontsize=8, **place)
    axes.set(xscale="log", yscale="log", xlim=(0.9, 1000))
    axes.set(xlabel="nodes", ylabel="until the model is solved")
    axes.set_xticks(NODES, [str(n) for n in NODES])
    axes.set_yticks(
        [1 / 96, 1 / 24, 0.25, 1, 7, 30, 365],
        ["15 min", "1 h", "6 h", "1 day", "1 week", "30 days", "1 year"],
    )
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.set_title("The whole stream", loc="left", fontsize=10)


def draw_parts(setup: Setup, axes: Axes) -> None:
    """Draw what an image takes of a core, beside what the cores have."""
    jobs = [setup.job(stream, setup.gpu) for stream in (FOLDERS, MIXED, WEB)]
    parts, begin = [job.core_seconds(max(NODES)) for job in jobs], [0.0] * 3
    looks = ("0.85", ""), ("0.55", ""), (BLUE, ""), (ORANGE, "///"), ("0.2", "")
    for name, (colour, hatch) in zip(parts[0], looks, strict=True):
        values = [1000 * each[name] for each in parts]
        look = {"color": colour, "hatch": hatch, "edgecolor": "white", "height": 0.6}
        axes.barh(range(3), values, left=begin, label=name, **look)
        begin = [before + value for before, value in zip(begin, values, strict=True)]
    budget = 1000 * setup.gpu.cores / setup.gpu.images_per_second
    axes.axvline(budget, color="black", linestyle=":", linewidth=1.2)
    label = f"{budget:.0f} ms: what {setup.gpu.cores} cores have beside a GPU"
    axes.annotate(label, (budget, -0.55), (4, 0), textcoords="offset points", fontsize=8)
    axes.set_yticks(range(3), [job.stream.name.replace(", ", ",\n") for job in jobs])
    axes.set(ylim=(2.6, -0.8), xlabel="time of one core for an image, beside the encoder (ms)")
    axes.set_title("Decoding and summing, D = 15 000", loc="left", fontsize=10)


def draw_limits(setup: Setup, path: Path) -> None:
    """Draw the D and C that one machine can hold and solve."""
    figure = Figure(figsize=(7, 4.4), layout="constrained")
    axes = figure.subplots()
    classes = [round(10 ** (2 + step / 15)) for step in range(61)]
    memories = (setup.cpu.memory, setup.gpu.memory, 1e12)
    for memory, line in zip(memories, ("-", "--", "-."), strict=True):
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
    axes.set(xscale="log", yscale="log", xlim=(100, 1e6), ylim=(1000, 400_000))
    axes.set(xlabel="classes C", ylabel="width D")
    axes.set_title("What one machine with so much memory can solve", loc="left", fontsize=10)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
