"""Files, folders and links as they were before a handler first touched them: saved, and put back.

What is saved is on the disk before it is touched, so that it can be put back by another process if
this one is killed.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Final, Literal

import msgspec

from oncely.prove.watch import knowing

_RECORD: Final = ".json"


class Entry(msgspec.Struct, frozen=True):
    """What was at a path: a `link` has its target, a `file` its content in a file beside this."""

    path: str
    kind: Literal["nothing", "file", "folder", "link", "other"]
    mode: int = 0
    owner: int = -1
    group: int = -1
    size: int = 0
    changed_ns: int = 0
    times_ns: tuple[int, int] = (0, 0)
    target: str = ""


class SavedFiles:
    """`aside` is the folder of the proof: what is in it is not the user's."""

    def __init__(self, folder: Path, aside: Path) -> None:
        self._folder = folder
        self._aside = f"{aside}{os.sep}"

    @property
    def is_used(self) -> bool:
        return any(self._folder.glob(f"*{_RECORD}"))

    def save(self, path: str) -> None:
        """The entry at a path, and not what a link leads to. What is there by now stays saved."""
        place = _place(path)
        if place.startswith(self._aside):
            return
        with knowing():
            self._save(place)

    def save_content(self, path: str) -> None:
        """Before it is written: the entry, and the file that it leads to."""
        self.save(path)
        if os.path.islink(path):
            self.save(os.path.realpath(path))

    def save_tree(self, path: str) -> None:
        """A folder with all that is in it."""
        place = _place(path)
        self.save(place)
        if os.path.islink(place) or not os.path.isdir(place):
            return
        with knowing():
            for folder, folders, files in os.walk(place):
                for name in (*folders, *files):
                    self._save(os.path.join(folder, name))

    def changed(self) -> list[str]:
        """The paths where something else is by now."""
        return sorted(
            entry.path
            for entry in self._entries()
            if _entry(entry.path).kind != entry.kind
            or (entry.kind == "file" and not _is_untouched(entry))
            or (entry.kind == "link" and os.readlink(entry.path) != entry.target)
        )

    def restore(self) -> None:
        """What was not there goes, the deepest first; then the folders come back, and what is in
        them. The times of the folders are put back at the end, for all of that changes them."""
        entries = sorted(self._entries(), key=lambda entry: entry.path.count(os.sep))
        with knowing():
            for entry in reversed(entries):
                if entry.kind == "nothing":
                    _remove(entry.path)
            for entry in entries:
                if entry.kind == "folder":
                    _restore_folder(entry)
            for entry in entries:
                if entry.kind == "file":
                    self._restore_file(entry)
                elif entry.kind == "link":
                    _restore_link(entry)
            for entry in reversed(entries):
                if entry.kind == "folder" and os.path.isdir(entry.path):
                    os.utime(entry.path, ns=entry.times_ns)

    def _save(self, place: str) -> None:
        name = sha256(os.fsencode(place)).hexdigest()[:24]
        record = self._folder / f"{name}{_RECORD}"
        if record.exists():
            return
        entry = _entry(place)
        if entry.kind == "file":
            shutil.copyfile(place, self._folder / name)
        made = self._folder / f"{name}.{os.getpid()}"
        made.write_bytes(msgspec.json.encode(entry))
        made.rename(record)

    def _entries(self) -> Iterator[Entry]:
        for record in self._folder.glob(f"*{_RECORD}"):
            yield msgspec.json.decode(record.read_bytes(), type=Entry)

    def _restore_file(self, entry: Entry) -> None:
        name = sha256(os.fsencode(entry.path)).hexdigest()[:24]
        saved, path = self._folder / name, entry.path
        if _is_untouched(entry):
            return
        if os.path.islink(path) or os.path.isdir(path):
            _remove(path)
        # Into the same file, where it is still there: others may have it open, or linked.
        shutil.copyfile(saved, path)
        _restore_status(entry)


def _place(path: str) -> str:
    """The folder without links, and the name as it is."""
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(os.path.realpath(folder), name) if name else os.path.realpath(folder)


def _entry(place: str) -> Entry:
    try:
        status = os.lstat(place)
    except OSError:
        return Entry(place, "nothing")
    kind: Literal["file", "folder", "link", "other"] = "other"
    if stat.S_ISLNK(status.st_mode):
        kind = "link"
    elif stat.S_ISDIR(status.st_mode):
        kind = "folder"
    elif stat.S_ISREG(status.st_mode):
        kind = "file"
    return Entry(
        place,
        kind,
        stat.S_IMODE(status.st_mode),
        status.st_uid,
        status.st_gid,
        status.st_size,
        status.st_ctime_ns,
        (status.st_atime_ns, status.st_mtime_ns),
        os.readlink(place) if kind == "link" else "",
    )


def _is_untouched(entry: Entry) -> bool:
    now = _entry(entry.path)
    return (now.kind, now.size, now.changed_ns) == (entry.kind, entry.size, entry.changed_ns)


def _remove(path: str) -> None:
    if os.path.islink(path) or not os.path.isdir(path):
        with suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(path)
    else:
        shutil.rmtree(path)


def _restore_folder(entry: Entry) -> None:
    if os.path.islink(entry.path) or not os.path.isdir(entry.path):
        _remove(entry.path)
        os.mkdir(entry.path)
    now = _entry(entry.path)
    if (now.mode, now.owner, now.group) != (entry.mode, entry.owner, entry.group):
        _restore_status(entry)


def _restore_link(entry: Entry) -> None:
    if not os.path.islink(entry.path) or os.readlink(entry.path) != entry.target:
        _remove(entry.path)
        os.symlink(entry.target, entry.path)


def _restore_status(entry: Entry) -> None:
    with suppress(PermissionError):  # only root may give a file away
        os.chown(entry.path, entry.owner, entry.group)
    os.chmod(entry.path, entry.mode)
    os.utime(entry.path, ns=entry.times_ns)
