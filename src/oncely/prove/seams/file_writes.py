"""Writes to files, each right before the system does it: by a file object, or by descriptor."""

from __future__ import annotations

import io
import os
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final
from weakref import ref

from oncely.prove.callers import is_of_handler
from oncely.prove.seams.paths import plain_file
from oncely.prove.watch import Watch, known

if TYPE_CHECKING:
    from oncely.prove.copies import Copies

BY_DESCRIPTOR: Final = {
    "write": 0,
    "pwrite": 0,
    "writev": 0,
    "pwritev": 0,
    "sendfile": 0,
    "copy_file_range": 1,
    "posix_fallocate": 0,
}
"""Functions of `os`, and which argument is the file that they write to."""


class FileWrites:
    def __init__(self, watch: Watch, copies: Copies) -> None:
        self._watch = watch
        self._opened: dict[str, tuple[int, int]] = {}
        self._seen: set[str] = set()
        watch.before_end.append(self._tell_unseen)
        for name, at in BY_DESCRIPTOR.items():
            real = getattr(os, name, None)
            if real is not None:
                copies.everywhere.replace(real, self._by_descriptor(name, real, at))

    def follow_descriptor(self, number: int, path: str) -> None:
        """What is opened by `os.open` may be written to by C code that nothing here sees."""
        status = os.fstat(number)
        self._opened[path] = status.st_size, status.st_mtime_ns

    def follow_file(self, opened: Any, path: str) -> None:
        """A buffer is written when it is full, and when it is flushed. Of those that were full only
        the first is a boundary: more of a large file is nothing new to who finds half of it."""
        raw, layers = opened, []
        while (inner := getattr(raw, "buffer", None) or getattr(raw, "raw", None)) is not None:
            layers.append(raw)
            raw = inner
        if not isinstance(raw, io.FileIO):
            return
        # A file that refers to itself would not be closed when it is let go.
        place, is_buffered, is_first, flushing = ref(raw), bool(layers), True, 0

        def write(data: Any) -> Any:
            nonlocal is_first
            if (not is_buffered or is_first or flushing) and self.pass_by(path):
                io.FileIO.write(place(), _half(data))  # type: ignore[arg-type]
                self._watch.crash()
            is_first = False
            return io.FileIO.write(place(), data)  # type: ignore[arg-type]

        def truncate(*size: Any) -> Any:
            self._watch.pass_by("file", f"truncate {path}")
            return io.FileIO.truncate(place(), *size)  # type: ignore[arg-type]

        def flushes(layer: ref[Any], flush: Any) -> Any:
            def flush_layer() -> Any:
                nonlocal flushing
                flushing += 1
                try:
                    return flush(layer())
                finally:
                    flushing -= 1

            return flush_layer

        vars(raw).update(write=write, truncate=truncate)
        for each in layers:
            vars(each)["flush"] = flushes(ref(each), type(each).flush)

    def pass_by(self, path: str) -> bool:
        """Whether the file is to be torn: the process ends when a half was written."""
        self._seen.add(path)
        return self._watch.pass_by("file", f"write {path}") == "tear"

    def _by_descriptor(self, name: str, real: Any, at: int) -> Any:
        def write(*args: Any, **options: Any) -> Any:
            number = args[at] if len(args) > at else None
            if isinstance(number, int) and not known.get():
                path = plain_file(number)
                if path is not None and is_of_handler(sys._getframe(1)) and self.pass_by(path):
                    if name == "write":
                        real(number, _half(args[1]))
                    self._watch.crash()
            return real(*args, **options)

        return write

    def _tell_unseen(self) -> None:
        for path, before in self._opened.items():
            with suppress(OSError):  # it is gone, and that was seen
                now = os.stat(path)
                if path not in self._seen and before != (now.st_size, now.st_mtime_ns):
                    self._watch.note(
                        "unobserved",
                        f"the file {path}, opened by os.open: it has changed, and no write to it "
                        "was seen",
                    )


def _half(data: Any) -> memoryview:
    view = memoryview(data).cast("B")
    return view[: len(view) // 2]
