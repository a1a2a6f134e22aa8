"""Commands that bring models and sites together, or part them: merge and unmerge."""

from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from visvm.cli.options import (
    Force,
    Json,
    ModelPath,
    Quiet,
    answer_made,
    changed,
    home,
    require_new,
    tell_waiting,
)
from visvm.cli.undo import NoUndo, tell_kept
from visvm.errors import InputError, ModelFileError


def merge(
    output: Annotated[
        Path, typer.Argument(help="The new model file.", metavar="OUT", callback=home)
    ],
    models: Annotated[
        list[Path],
        typer.Argument(
            help="A model, and what to add to it: models grown from copies of it, or files of "
            "'visvm learn --statistics-only'.",
            metavar="MODEL SITE…",
        ),
    ],
    force: Force = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Add up what several models or sites have learned. None is added twice."""
    from visvm.cli.reporting import answer_change
    from visvm.cli.terminal import note
    from visvm.image_classifier import ImageClassifier
    from visvm.model import changes
    from visvm.model.container import locked
    from visvm.model.file import read_header

    if len(models) < 2:
        advice = "There is one model, and nothing to add to it. Use: visvm merge OUT MODEL SITE…"
        raise InputError(advice, code="merge-one")
    with locked(output, tell_waiting(output, quiet)):
        command = _merging(output, models)
        if _is_made(output, command):
            return answer_made(output, as_json, quiet)
        require_new(output, force)
        histories = [read_header(path).sessions for path in models]
        whole = ImageClassifier.merge_files(models[0], models[1:])
        assert whole.model_ is not None
        whole.model_ = changes.noted(whole.model_, *command)
        whole.save(output)
    twice = 0
    for place, history in enumerate(histories):
        before = [report for other in histories[:place] for report in other]
        shared = sum(each.n_images for each in history if any(map(each.is_same_as, before)))
        twice += shared
        if shared and not quiet:
            note(f"{shared} images were learned by both before they parted and now count twice.")
    said = f"{output} knows {len(whole.classes_)} classes from {sum(whole.class_counts_)} images"
    return answer_change(output, said, as_json, quiet, images_counted_twice=twice)


def _merging(output: Path, models: list[Path]) -> list[str]:
    """Return what tells this merging from others: the content of all that is merged.

    That of a model that is replaced by it is left out, as it is another one afterwards.
    """
    from visvm.model.file import read_digest

    replaced = [output.exists() and path.exists() and output.samefile(path) for path in models]
    pairs = zip(models, replaced, strict=True)
    return ["merge", *("" if same else read_digest(path) for path, same in pairs)]


def _is_made(output: Path, command: list[str]) -> bool:
    """Whether this command has written the output already."""
    from visvm.model import changes
    from visvm.model.file import read

    if not output.exists():
        return False
    with suppress(ModelFileError):  # another file, which is not to be replaced
        return changes.is_made(read(output, sums=False), *command)
    return False


def unmerge(
    model: ModelPath,
    site: Annotated[
        Path, typer.Argument(help="The very file that was merged.", metavar="SITE", callback=home)
    ],
    no_undo: NoUndo = False,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Take a site, or another model, out of MODEL again, as if it had never been merged."""
    from visvm.cli.reporting import answer_change, knows
    from visvm.model.file import read_digest
    from visvm.model.sites import SiteStatistics

    with changed(model, "unmerge", read_digest(site), undo=not no_undo) as classifier:
        if classifier is None:
            return answer_made(model, as_json, quiet)
        sums = SiteStatistics.load(site)
        classifier.unmerge(sums)
    tell_kept(model, no_undo, quiet)
    said = f"took out the {sums.n_images} images of site {sums.site}; {knows(model, classifier)}"
    return answer_change(model, said, as_json, quiet, site=sums.site, n_images=sums.n_images)
