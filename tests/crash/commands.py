"""The commands that change models, on small files.

All that differs from run to run is fixed, so that the same command gives the same bytes. Each runs
in the folder that is watched. Photos, and what else is only read, lie outside of it.
"""

import itertools
import os
import secrets
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache, partial
from pathlib import Path

import msgspec
import numpy as np

from tests import tiny
from tests.crash.power import Tree
from visvm import ImageClassifier
from visvm.cli import export, learn, masked, sites, undo, upkeep
from visvm.encoders import loading
from visvm.encoders.cache import FeatureCache
from visvm.encoders.encoder import Preprocessing
from visvm.head import lift
from visvm.learning import labelled, local, session
from visvm.model import changes, masks, predictor, rounds
from visvm.model import masked as masking
from visvm.model.sites import SiteStatistics

MODEL = Path("m.visvm")
QUIET = {"no_cache": True, "quiet": True}


@dataclass(frozen=True)
class Command:
    """A command that writes.

    Attributes
    ----------
    name : str
    prepare : callable
        Makes the files that it starts from, in the working folder.
    run : callable
        Runs it there.
    torn : tuple of str
        Patterns of files that may be in any state after a crash: running it again mends them.
    ignored : tuple of str
        Patterns of files that may differ at the end as well.
    sqlite : bool
        Whether SQLite writes.
    """

    name: str
    prepare: Callable[[], object]
    run: Callable[[], object]
    torn: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    sqlite: bool = False

    def hides(self, name: str) -> bool:
        """Whether a file is nobody's but the program's own, or may be torn."""
        own = any(part.startswith(".") for part in Path(name).parts)
        return own or any(fnmatch(name, pattern) for pattern in (*self.torn, *self.ignored))

    def compared(self, tree: Tree) -> Tree:
        """The files that must be the same at the end."""
        return {
            name: content
            for name, content in tree.items()
            if not any(fnmatch(name, pattern) for pattern in self.ignored)
        }


class NumpyEncoder:
    """The tiny encoder in numpy, one image at a time, so that no batch changes a bit."""

    name, digest, layer_dims = "numpy", "0" * 64, (tiny.WIDTH,) * len(tiny.BLOCKS)
    preprocessing = Preprocessing(tiny.SIDE, tiny.SIDE + 2, tiny.MEAN, tiny.STD)

    def encode(self, pixels):
        return np.concatenate([tiny.reference(each[None]) for each in pixels]).astype(np.float32)

    def project(self, final):
        return final


def fix_everything() -> None:
    """Make every run of a command give the same bytes; for a process that does nothing else."""
    os.environ["VISVM_JOURNAL_SECONDS"] = "0"
    encoder = NumpyEncoder()
    for module in (loading, predictor):
        module.load_encoder = lambda *_, **__: encoder
    ImageClassifier.load_encoder = lambda *_: encoder
    for module in (changes, masking):
        module.now = lambda: "2026-01-02T03:04:05+00:00"
    labelled._version = lambda _: ""
    session._Clock.lap = lambda clock, stage: clock.seconds.setdefault(stage, 0.0)
    session._Clock.move = lambda *_: None
    session.peak_bytes = lambda: None
    drawn = cache(lift.frozen_normal)  # for speed
    lift.frozen_normal = lambda *given: drawn(*given).copy()
    local._MOST_ROWS = 2  # so that several journals are written
    secrets.token_hex = lambda n: "0123456789abcdef"[: 2 * n]
    secrets.token_bytes = lambda n: b"k" * n
    secrets.token_urlsafe = lambda n: "0" * n
    tempfile._get_candidate_names = lambda: map(str, itertools.count())
    warnings.simplefilter("ignore")


class Photos:
    """Folders of photos, and what models are made of them."""

    def __init__(self, folder: Path) -> None:
        self.first = str(tiny.write_photos(folder / "first", ("red", "green", "blue"), n=2))
        self.more = str(tiny.write_photos(folder / "more", ("yellow", "red"), n=2, seed=1))
        self.blue = str(tiny.write_photos(folder / "blue", ("blue",), n=2, seed=2))

    def base(self, **options) -> None:
        """A model that has learned the first photos."""
        new = {"encoder": "numpy", "transform": "squash", "components": 20, "ridge": 1.0}
        learn.learn(MODEL, self.first, **new, **{**QUIET, **options})

    def grown(self) -> None:
        """A model that has learned more of them."""
        self.base()
        learn.learn(MODEL, self.more, **QUIET)

    def dense(self) -> None:
        """A model that has learned the same photos so often that its sums are dense."""
        self.base()
        for _ in range(3):
            learn.learn(MODEL, self.first, again=True, **QUIET)

    def with_site(self) -> None:
        """A model, and the sums of a site."""
        self.base()
        export.export(MODEL, for_site=Path("site.visvm"), quiet=True)
        sums = {"statistics_only": Path("site.sums"), "reveal": True, **QUIET}
        learn.learn(Path("site.visvm"), self.more, **sums)

    def merged(self) -> None:
        """A model that holds a site."""
        self.with_site()
        sites.merge(MODEL, [MODEL, Path("site.sums")], force=True, quiet=True)


def model_commands(folder: Path) -> Iterator[Command]:
    """The commands that change models; `folder` is for what they read."""
    folder.mkdir()
    photos = Photos(folder)
    grown, dense, with_site = photos.grown, photos.dense, photos.with_site
    more = partial(learn.learn, MODEL, photos.more, **QUIET)
    forget = partial(learn.forget, MODEL, **QUIET)
    rename = partial(learn.rename_class, MODEL, "red", quiet=True)
    sums = {"statistics_only": Path("blue.sums"), "reveal": True, **QUIET}
    merge = partial(sites.merge, models=[MODEL, Path("site.sums")], quiet=True)
    exporting = partial(export.export, MODEL, quiet=True)
    yield from (
        Command("learn, a new model", lambda: None, photos.base),
        Command("learn, a thin model", photos.base, more),
        Command("learn, a dense model", dense, more),
        Command(
            "learn --statistics-only",
            with_site,
            partial(learn.learn, Path("site.visvm"), photos.blue, **sums),
        ),
        Command("forget, thin", grown, partial(forget, photos.more)),
        Command("forget, dense", dense, partial(forget, photos.first)),
        Command("forget-class", grown, partial(learn.forget_class, MODEL, "red", quiet=True)),
        Command("rename-class", grown, partial(rename, "rot")),
        Command("rename-class --merge", grown, partial(rename, "blue", merge=True)),
        Command("merge", with_site, partial(merge, Path("all.visvm"))),
        Command("merge --force, in place", with_site, partial(merge, MODEL, force=True)),
        Command(
            "unmerge", photos.merged, partial(sites.unmerge, MODEL, Path("site.sums"), quiet=True)
        ),
        Command("learn, after a change", grown, partial(learn.learn, MODEL, photos.blue, **QUIET)),
        Command("forget --no-undo", grown, partial(forget, photos.more, no_undo=True)),
        Command("undo", grown, partial(undo.undo, MODEL, quiet=True)),
        Command("undo --discard", grown, partial(undo.undo, MODEL, discard=True, quiet=True)),
        Command(
            "rename-class, no hard links", partial(_copied, grown), partial(_copied, rename, "x")
        ),
        Command("export", photos.base, partial(exporting, Path("out.visvm"))),
        Command(
            "export OUT.onnx", photos.base, partial(exporting, Path("out.onnx"), head_only=True)
        ),
        Command("export --for-site", photos.base, partial(exporting, for_site=Path("a.visvm"))),
        Command("save_pretrained", photos.base, _share),
    )
    yield from _masked_commands(photos)
    yield from _cache_commands(photos)


def _share() -> None:
    """Write the folder of a hub."""
    ImageClassifier.load(MODEL, cache=False).save_pretrained("hub")


def _copied(command: Callable[..., object], *arguments: str) -> None:
    """Run a command on a file system without hard links."""

    def no_link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    linked, os.link = os.link, no_link
    try:
        command(*arguments)
    finally:
        os.link = linked


def _masked_commands(photos: Photos) -> Iterator[Command]:
    """What a site does in a round of masked sums: once it has joined, its key remembers it."""
    key, roster, cards = Path("a.key"), Path("a.roster"), [Path("a.card"), Path("b.card")]
    join = partial(masked.masked_join, Path("site.visvm"), photos.more, key, quiet=True)

    def joined() -> None:
        photos.with_site()
        join()
        mine = rounds.read_note(cards[0], rounds.Card)
        public = masks.public_of(b"b" * 32).hex()
        other = msgspec.structs.replace(mine, name="b", site="b" * 16, public=public)
        rounds.write_note(cards[1], other)
        third = msgspec.structs.replace(mine, name="c", site="c" * 16, public="c" * 64)
        rounds.write_note(Path("c.card"), third)

    def in_round() -> None:
        joined()
        masked.masked_roster(MODEL, roster, [*cards, Path("c.card")], quiet=True)

    yield Command("masked join", photos.with_site, join)
    make = partial(masked.masked_roster, MODEL, roster, cards, quiet=True)
    yield Command("masked roster", joined, make)
    sums = (key, roster, Path("site.sums"), Path("a.masked"))
    yield Command("masked sums", in_round, partial(masked.masked_sums, *sums, quiet=True))
    reveal = partial(masked.masked_reveal, key, roster, Path("a.reveal"), without=["b"], quiet=True)
    yield Command("masked reveal", in_round, reveal)

    def masked_by_both() -> None:
        joined()
        make()
        who, own = rounds.read_note(roster, rounds.Roster), SiteStatistics.load("site.sums")
        other = rounds.Key((b"b" * 32).hex(), rounds.read_note(cards[1], rounds.Card))
        for mine in (rounds.read_note(key, rounds.Key), other):
            given = SiteStatistics(replace(own.model, site=mine.card.site))
            masking.mask(mine, who, given).save(Path(f"{mine.card.name}.masked"))

    total = (MODEL, roster, Path("total.sums"), [Path("a.masked"), Path("b.masked")])
    yield Command("masked total", masked_by_both, partial(masked.masked_total, *total, quiet=True))


def _cache_commands(photos: Photos) -> Iterator[Command]:
    def warm() -> None:
        photos.base()
        ImageClassifier.load(MODEL).evaluate(photos.more)

    def clear() -> None:
        upkeep.cache_clear(quiet=True)
        with FeatureCache() as cache:
            assert cache.info().n_images == 0

    learned = partial(learn.learn, MODEL, photos.more, quiet=True)
    given = {"ignored": ("cache", "cache/features.sqlite*"), "sqlite": True}
    yield Command("learn, an empty cache", photos.base, learned, **given)
    yield Command("learn, a full cache", warm, learned, **given)
    yield Command("cache clear", warm, clear, **given)
