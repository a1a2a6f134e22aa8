"""The command line: ``visvm --help``.

Exit code 0, or 2 with one clear line on standard error for anything the user can put right; with
``--json``, the line and its code also as JSON on standard output. What is heavy is imported by the
command that needs it, so that help and mistakes are answered at once.
"""

import io
import json
import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from visvm import __version__
from visvm.cli import advise, ask, bench, card, check, export, learn, serve, sites, sort, undo
from visvm.cli.masked import masked_app
from visvm.cli.options import Json, Quiet, in_options
from visvm.cli.plain import PlainCommand, PlainGroup
from visvm.cli.text import text_app
from visvm.cli.upkeep import cache_app, weights_app
from visvm.errors import InputError, VisvmError, escaped

_INTERRUPTED = 130
_RESUME = "run the same command again to resume"
_LEFT = {  # by commands that write more than one file, when they are interrupted
    "bench": f"rows measured so far are kept; {_RESUME}",
    "sort": f"photos sorted so far are kept; {_RESUME}",
    "masked": f"a key or card may have been written; {_RESUME}",
    "demo": "some files may have been written; run the same command again",
}

app = typer.Typer(
    name="visvm",
    cls=PlainGroup,
    help="Learn to recognise images class by class, and never forget.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
        ),
    ] = False,
) -> None:
    pass


def demo(
    folder: Annotated[
        Path | None,
        typer.Argument(help="Your own folder with one sub-folder per class.", metavar="[FOLDER]"),
    ] = None,
    output: Annotated[
        Path, typer.Option("--out", help="Folder for photos, model, figure and page.")
    ] = Path("visvm-demo"),
    encoder: Annotated[str, typer.Option(help="The encoder.")] = "dinov2-s14",
    quiet: Quiet = False,
) -> None:
    """Show the whole idea in a few minutes: photos learned class by class, beside two rivals.

    One forgets, one is retrained on everything. Then strangers are asked and labels checked.
    """
    from visvm.cli import demo as demonstration
    from visvm.cli.terminal import out, progress_bars

    with progress_bars(quiet) as progress:
        demonstration.run(out(), progress, output, folder, encoder)


def doctor(
    what: Annotated[
        str | None,
        typer.Argument(
            help="data: which data sets of the benchmark are here, and how to get them; speed: how "
            "long a photo takes at each --quality of 'visvm learn'.",
            metavar="[data|speed]",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="With 'data': the folder of data sets.", show_default="VISVM_DATA"),
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="With 'speed': the encoder.", show_default="dinov2-s14"),
    ] = None,
    as_json: Json = False,
) -> None:
    """Say what works on this machine: weights, extras, memory, cache; or data sets; or speed."""
    from visvm.bench.loading import examine_data, find_data_root
    from visvm.cli.doctor import examine, show, show_data
    from visvm.cli.speed import measure_speed, show_speed
    from visvm.cli.terminal import answer, progress_bars

    if encoder is not None and what != "speed":
        advice = "--encoder was given without 'speed'. Say 'visvm doctor speed', or leave it out."
        raise InputError(advice, code="option-without-speed")
    if data is not None and what != "data":
        advice = "--data was given without 'data'. Say 'visvm doctor data', or leave it out."
        raise InputError(advice, code="option-without-data")
    if what == "speed":
        with progress_bars(quiet=False) as progress:
            speed = measure_speed(encoder, progress)
        answer(speed, lambda: show_speed(speed), as_json=as_json)
        return
    if what == "data":
        root = find_data_root(data)
        states = examine_data(root)
        found = {"root": root, "datasets": states}
        answer(found, lambda: show_data(root, states), as_json=as_json)
        return
    if what is not None:
        advice = f"'visvm doctor' does not know {what!r}. Ask about 'data' or 'speed', or nothing."
        raise InputError(advice, code="doctor-unknown")
    found = examine()
    answer(found, lambda: show(found), as_json=as_json)


_COMMANDS = {
    "Every day": (
        *(learn.learn, check.check, ask.predict, advise.explain, ask.evaluate, sort.sort),
        *(ask.info, advise.suggest, serve.serve),
    ),
    "Put a model right": (undo.undo, learn.forget, learn.rename_class, learn.forget_class),
    "Several models, several sites": (sites.merge, sites.unmerge, export.export, card.card),
    "This machine": (doctor, demo),
    "Research": (bench.bench, bench.report),
}
for _panel, _group in _COMMANDS.items():
    for _command in _group:
        _name = _command.__name__.replace("_", "-")
        app.command(_name, cls=PlainCommand, rich_help_panel=_panel)(_command)
for _app, _name in ((weights_app, "weights"), (cache_app, "cache")):
    app.add_typer(_app, name=_name, rich_help_panel="This machine")
app.add_typer(masked_app, name="masked", rich_help_panel="Several models, several sites")
app.add_typer(text_app, name="text", rich_help_panel="Research")


def main() -> None:
    """Run the command line: the outermost frame."""
    warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # a terminal without λ is no reason to fail
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="visvm", standalone_mode=False)
        if sys.stdout is not None:  # as it is where it was closed before we began
            sys.stdout.flush()
    except SystemExit as stop:  # typer's own end, when the reader of our output has gone
        code = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except Exception as error:
        said = describe_error(error)
        if said is None:
            raise
        _show_error(*said)
        code = 2
    if code == _INTERRUPTED:
        left = _LEFT.get(next(iter(sys.argv[1:]), ""), "nothing was changed")
        _show_error("interrupted", f"interrupted; {left}")
    sys.exit(code)


def describe_error(error: Exception) -> tuple[str, str] | None:
    """Return the code and the one line for what a user can put right; None for what only we can."""
    if isinstance(error, VisvmError):
        return error.code, in_options(str(error))
    if hasattr(error, "format_message"):  # what typer raises for a wrong command or option
        if not error.format_message():  # help was shown, as no command was given
            return "usage", ""
        context = getattr(error, "ctx", None)
        command = "visvm" if context is None else context.command_path
        said = " ".join(error.format_message().split()).rstrip(".")
        return "usage", f"{said}. See '{command} --help'."
    if isinstance(error, MemoryError):
        advice = "Close other programs, or give fewer images at a time"
        return "memory-limit", f"This machine has too little memory for that. {advice}."
    if isinstance(error, OSError):
        return "system", f"{error.filename or 'the system'}: {error.strerror or error}"
    if type(error).__name__ == "NotFittedError":
        return "not-fitted", str(error)
    return None


def _show_error(code: str, line: str) -> None:
    if line:
        sys.stderr.write(f"visvm: {escaped(line)}\n")
    if "--json" in sys.argv:
        sys.stdout.write(json.dumps({"error": {"code": code, "message": line}}) + "\n")


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    sys.stderr.write(f"visvm: note: {escaped(str(message))}\n")


if __name__ == "__main__":
    main()
