"""What a power cut leaves of a folder, at every operation of a process.

Files keep what they held when they were last flushed, and folders the names they had when they were
last flushed. Of everything since then, any part may have reached the disk. The outcomes tried here
are, for the names: none of the changes, all, the first so many, all without one, and one alone.
With each of them, files that were not flushed hold their old content, the new one, half of it, or
zeros. A file that was never flushed has no old content: it is empty.
"""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.operations import Operation

Name = tuple[int, str]  # inode of the folder, and the name in it
Tree = dict[str, "Content | None"]
"""Contents by path; None for a folder."""

CONTENTS = ("old", "new", "torn", "zeros")


@dataclass(frozen=True)
class Content:
    """What a file holds, and since when; of a symbolic link, where it leads."""

    data: bytes
    time: int = field(compare=False)  # of the last change, in nanoseconds
    link: bool = False


def write_tree(tree: Tree, folder: Path) -> None:
    """Make a folder with these files, with their times."""
    folder.mkdir()
    for name in sorted(tree):
        content = tree[name]
        if content is None:
            (folder / name).mkdir()
        elif content.link:
            os.symlink(content.data, folder / name)
        else:
            (folder / name).write_bytes(content.data)
            os.utime(folder / name, ns=(content.time, content.time))


def read_tree(folder: Path) -> Tree:
    """The files in a folder."""
    return {str(path.relative_to(folder)): _read(path) for path in folder.rglob("*")}


def _read(path: Path) -> Content | None:
    time = path.lstat().st_mtime_ns
    if path.is_symlink():
        return Content(os.fsencode(os.readlink(path)), time, link=True)
    return None if path.is_dir() else Content(path.read_bytes(), time)


class PowerCuts:
    """Watches the operations on a folder, and notes what a power cut would leave at each.

    Attributes
    ----------
    outcomes : list of lists of Tree
        At every operation, before it is done, the outcomes that differ from one another.
    """

    def __init__(self, root: Path) -> None:
        self._root = Path(os.path.realpath(root))
        self._held: dict[int, int] = {}  # an open descriptor keeps an inode from being used again
        self._old: dict[int, Content] = {}  # what is on the disk for sure
        self._pending: list[dict[Name, int | None]] = []
        self._now = self._names()
        self._durable = dict(self._now)
        for inode in self._held:  # all that was there before
            self._flush_file(inode)
        self.outcomes: list[list[Tree]] = []

    def close(self) -> None:
        """Let go of all files."""
        for descriptor in self._held.values():
            os.close(descriptor)

    def before(self, operation: Operation) -> None:
        """Note what is left if the power is cut instead."""
        self.cut()

    def cut(self) -> None:
        """Note what is left if the power is cut now."""
        distinct: list[Tree] = []
        root = os.stat(self._root).st_ino
        held = {inode: self._contents(inode) for inode in self._held}
        for names in self._possible_names():
            for kind in CONTENTS:
                tree = dict(_tree(names, held, root, "", kind))
                if tree not in distinct:
                    distinct.append(tree)
        self.outcomes.append(distinct)

    def after(self, operation: Operation) -> None:
        """Keep track of what is on the disk for sure, and what may be."""
        names = self._names()
        delta = {
            name: names.get(name)
            for name in self._now.keys() | names.keys()
            if self._now.get(name) != names.get(name)
        }
        self._now = names
        if delta:
            self._pending.append(delta)
        if operation.kind == "fsync":
            path = self._root / operation.path
            flush = self._flush_folder if path.is_dir() else self._flush_file
            flush(path.stat().st_ino)

    def _names(self) -> dict[Name, int]:
        """The inode behind every name."""
        found = {}
        for folder, _, _ in os.walk(self._root):
            inode = os.stat(folder).st_ino
            with os.scandir(folder) as entries:
                for entry in entries:
                    found[inode, entry.name] = entry.inode()
                    if entry.inode() not in self._held:
                        how = os.O_PATH | os.O_NOFOLLOW if entry.is_symlink() else os.O_RDONLY
                        self._held[entry.inode()] = os.open(entry.path, how)
        return found

    def _content(self, inode: int) -> Content | None:
        """What a file holds now, also one that has no name any more; None for a folder."""
        descriptor = self._held[inode]
        status = os.fstat(descriptor)
        if stat.S_ISLNK(status.st_mode):
            target = os.readlink(b"", dir_fd=descriptor)
            return Content(target, status.st_mtime_ns, link=True)
        if not stat.S_ISREG(status.st_mode):
            return None
        return Content(os.pread(descriptor, status.st_size, 0), status.st_mtime_ns)

    def _flush_file(self, inode: int) -> None:
        content = self._content(inode)
        if content is not None:
            self._old[inode] = content

    def _flush_folder(self, inode: int) -> None:
        def elsewhere(names):
            return {name: value for name, value in names.items() if name[0] != inode}

        here = {name: value for name, value in self._now.items() if name[0] == inode}
        self._durable = elsewhere(self._durable) | here
        self._pending = [left for delta in self._pending if (left := elsewhere(delta))]

    def _possible_names(self) -> Iterator[dict[Name, int]]:
        count = len(self._pending)
        everything = range(count)
        chosen = [[*everything[:length]] for length in range(count + 1)]
        chosen += [[place] for place in everything]
        chosen += [[other for other in everything if other != place] for place in everything]
        for places in {tuple(each): None for each in chosen}:
            names: dict[Name, int | None] = dict(self._durable)
            for place in places:
                names |= self._pending[place]
            yield {name: inode for name, inode in names.items() if inode is not None}

    def _contents(self, inode: int) -> dict[str, Content] | None:
        """What may be left of a file, by kind; None for a folder."""
        new = self._content(inode)
        if new is None:
            return None
        if new.link:  # made in one step with its name
            return dict.fromkeys(CONTENTS, new)
        old = self._old.get(inode, Content(b"", new.time))
        if old == new:
            return dict.fromkeys(CONTENTS, new)
        pairs = enumerate(zip(old.data, new.data, strict=False))
        shorter = min(len(old.data), len(new.data))
        kept = next((place for place, (one, other) in pairs if one != other), shorter)
        torn = Content(new.data[: (kept + len(new.data)) // 2], new.time)
        zeros = Content(new.data[:kept] + bytes(len(new.data) - kept), new.time)
        return dict(zip(CONTENTS, (old, new, torn, zeros), strict=True))


def _tree(
    names: dict[Name, int],
    held: dict[int, dict[str, Content] | None],
    folder: int,
    path: str,
    kind: str,
) -> Iterator[tuple[str, Content | None]]:
    """The files below a folder, by path."""
    for (parent, name), inode in names.items():
        if parent == folder:
            where, contents = os.path.join(path, name), held[inode]
            yield where, None if contents is None else contents[kind]
            if contents is None:
                yield from _tree(names, held, inode, where, kind)
