"""How predict shows an answer: a line to read, or one of JSON."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from visvm.model.over_time import Moment
    from visvm.model.results import Prediction


def show_answer(
    answer: "Prediction", *, raw: bool, as_json: bool, moment: "Moment | None" = None
) -> None:
    """Show an answer; with the moment that it is for, of a video."""
    from visvm.cli.terminal import out, print_json
    from visvm.errors import shown
    from visvm.model.formats import percent

    if as_json:
        time = {} if moment is None else {"seconds": moment.seconds, "frames": moment.n_frames}
        top = [{"label": label, "score": score} for label, score in answer.top]
        said = {"path": answer.path, **time, "label": answer.label, "score": answer.score}
        known = {"known": answer.known, "unknown": answer.unknown}
        level = {"level": answer.level, "level_score": answer.level_score}
        print_json({**said, "top": top, **known, **level}, indent=None)
        return
    best = [f"{label} {f'{score:.3f}' if raw else percent(score)}" for label, score in answer.top]
    if answer.level is not None and answer.level != answer.label:
        best = [f"{answer.level} {percent(answer.level_score or 0.0)}", *best]
    if answer.unknown:
        best = ["none of these", f"closest: {best[0]}", *best[1:]]
    console = out()
    when = "" if moment is None else f" {clock(moment.seconds)}"
    console.print(f"{shown(answer.path)}{when}: ", end="", markup=False)
    console.print(best[0], style="bold", end="", markup=False)
    console.print("".join(f" · {each}" for each in best[1:]), style="dim", markup=False)


def clock(seconds: float) -> str:
    """Return a time as clocks show it.

    Examples
    --------
    >>> clock(3.25), clock(3725.0)
    ('0:03.2', '1:02:05.0')
    """
    tenths = int(10 * seconds)
    minutes, rest = divmod(tenths, 600)
    hours, minutes = divmod(minutes, 60)
    front = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    return f"{front}:{rest // 10:02}.{rest % 10}"
