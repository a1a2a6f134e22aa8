"""``visvm text``: files of text features of classes, for ``visvm bench --text``.

``encode`` makes one; ``note`` says of one from elsewhere what it encodes, and for which tower.

Phrases come as a JSON file: of each class a list, or of each class what tells it from another::

    {"ape": ["long arms", "no tail"], "bear": {"ape": ["four legs"]}}
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from visvm.cli.options import Quiet, home, require_unread
from visvm.cli.plain import PlainCommand, PlainGroup
from visvm.encoders.files import MOST_OF_TEXT, read_file
from visvm.errors import InputError, shown

text_app = typer.Typer(help="Text features of class names.", no_args_is_help=True, cls=PlainGroup)

_NAMES = typer.Argument(help="A file with one class name per line.", metavar="NAMES", callback=home)
_TOWER = typer.Option(help="A CLIP or SigLIP folder or hub name, or an open_clip checkpoint.")
_OUT = typer.Option("--out", help="The file to write.", metavar="FILE.npz", callback=home)
_PROMPT = typer.Option(
    help="Such as 'a photo of a {}.', several times; or a data set, which means its own.",
    show_default="a photo of a {}.",
)
_IMAGES = typer.Option(
    help="The image tower beside it, whose digest is kept in the file; 'unknown' keeps none.",
    show_default="the same",
)
_PHRASES = typer.Option(help="What is said of classes: a JSON file.", callback=home)
_PHRASE_PROMPT = typer.Option(
    help="Where the phrase goes, {phrase}, and the name of its class, {name}."
)

_FEATURES = typer.Argument(
    help="An archive (.npz) with arrays names, (C,), and features, (C, p) or (C, K, p).",
    metavar="FEATURES",
    callback=home,
)
_SAYS = typer.Option(help="What was encoded, such as 'one definition per class'; once for each.")
_BESIDE = typer.Option(help="The image tower beside it, whose digest is kept in the file.")


@text_app.callback()
def _text() -> None:
    """Text features of class names."""


@text_app.command(cls=PlainCommand)
def encode(
    names: Annotated[Path, _NAMES],
    encoder: Annotated[str, _TOWER],
    output: Annotated[Path, _OUT],
    prompt: Annotated[list[str] | None, _PROMPT] = None,
    image_encoder: Annotated[str | None, _IMAGES] = None,
    phrases: Annotated[Path | None, _PHRASES] = None,
    phrase_prompt: Annotated[str, _PHRASE_PROMPT] = "{name} with {phrase}",
    quiet: Quiet = False,
) -> None:
    """Encode class names, once: the file is all that a benchmark needs."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders.loading import load_encoder
    from visvm.encoders.prompts import chosen_prompts
    from visvm.encoders.text_tower import encode_names, load_text_encoder
    from visvm.encoders.texts import write_texts

    _check_output(output, names, phrases)
    classes, prompts = _read_names(names), chosen_prompts(prompt or ["a photo of a {}."])
    said = [] if phrases is None else _read_phrases(phrases, classes)
    _check_phrase_prompt(phrase_prompt)
    with progress_bars(quiet) as progress:
        tower = load_text_encoder(encoder, progress)
        beside = image_encoder or encoder
        digest = "" if beside == "unknown" else load_encoder(beside, progress).digest
        texts = encode_names(tower, classes, prompts, said, phrase_prompt, digest, progress)
    write_texts(output, texts)
    if not quiet:
        n, k, p = texts.features.shape
        fact = f"{shown(output)}: {n} classes, {k} prompts, {len(said)} phrases, {p} wide"
        out().print(fact, markup=False)


@text_app.command(cls=PlainCommand)
def note(
    features: Annotated[Path, _FEATURES],
    prompt: Annotated[list[str], _SAYS],
    output: Annotated[Path, _OUT],
    tower: Annotated[str | None, typer.Option(help="The name of the text tower.")] = None,
    image_encoder: Annotated[str | None, _BESIDE] = None,
    quiet: Quiet = False,
) -> None:
    """Say of text features from elsewhere what they encode, so that every result can name it."""
    from visvm.cli.terminal import out, progress_bars
    from visvm.encoders.loading import load_encoder
    from visvm.encoders.texts import read_texts, write_texts

    _check_output(output, features)
    texts = read_texts(features)
    if len(prompt) != texts.features.shape[1]:
        raise InputError(
            f"{shown(features)} has {texts.features.shape[1]} features of every class, and "
            f"{len(prompt)} were described. Give --prompt once for each.",
            code="prompt-count",
        )
    digest = texts.image_digest
    if image_encoder is not None:
        with progress_bars(quiet) as progress:
            digest = load_encoder(image_encoder, progress).digest
    noted = replace(texts, prompts=tuple(prompt), tower=tower or texts.tower, image_digest=digest)
    write_texts(output, noted)
    if not quiet:
        out().print(f"{shown(output)}: {len(noted.names)} classes, {prompt[0]}", markup=False)


def _check_output(output: Path, *read: Path | None) -> None:
    """Refuse to replace what is no file of text features."""
    from visvm.encoders.texts import read_texts

    require_unread(output, *read)
    if output.suffix.lower() != ".npz":
        raise InputError(
            f"{shown(output)} would hold text features. Let its name end in .npz.",
            code="ending-other",
        )
    if os.path.lexists(output):
        try:
            read_texts(output)
        except InputError as error:
            raise InputError(
                f"{shown(output)} is there, and holds no text features. Give another --out.",
                code="text-file-foreign",
            ) from error


def _read_names(path: Path) -> list[str]:
    names = [line.strip() for line in _content(path).splitlines() if line.strip()]
    if not names or len(set(names)) < len(names):
        fact = "names a class twice" if names else "names no class"
        raise InputError(f"{shown(path)} {fact}. Correct it.", code="names-invalid")
    return names


def _read_phrases(path: Path, classes: list[str]) -> list[tuple[str, int, int]]:
    """Return phrases, with the places of their class and of the one they compare it with, or -1."""
    content = _content(path)
    try:
        said: Any = json.loads(content)
        found = [
            (phrase, classes.index(name), -1 if other is None else classes.index(other))
            for name, about in said.items()
            for other, listed in (about.items() if isinstance(about, dict) else [(None, about)])
            for phrase in _listed(listed)
        ]
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{shown(path)} does not hold phrases of these classes ({reason}). "
            'Write {"class": ["phrase", …]} or {"class": {"other class": ["phrase", …]}}.',
            code="phrases-invalid",
        ) from error
    return found


def _listed(found: Any) -> list[str]:
    if not isinstance(found, list) or not all(isinstance(each, str) and each for each in found):
        raise TypeError(f"{str(found)[:40]} is not a list of texts")
    return found


def _check_phrase_prompt(prompt: str) -> None:
    if "{phrase}" not in prompt or "{" in prompt.replace("{phrase}", "").replace("{name}", ""):
        raise InputError(
            f"--phrase-prompt must have {{phrase}}, and may have {{name}}; got {prompt!r}. "
            "Correct it.",
            code="prompt-invalid",
        )


def _content(path: Path) -> str:
    try:
        return read_file(path, MOST_OF_TEXT).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{shown(path)} cannot be read ({error}). Check the path.", code="names-unreadable"
        ) from error
