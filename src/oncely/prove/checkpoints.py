"""What a process leaves that ends at a boundary: saved while a delivery stands still there.

A schedule in which the process ends there begins with that, and need not run it once more. It is
the same as if the process had ended: what only the process knows is lost, open transactions are
undone by their databases, and files of SQLite are as another process finds them.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, Final

import msgspec

from oncely.prove.child import Child, Delivery
from oncely.prove.delivery import Ground
from oncely.prove.rows import Rows
from oncely.prove.schedule import Move
from oncely.prove.watch import Boundary, Channel, Message, Note

_MOST_BYTES: Final = 128 * 1024 * 1024
"""Of all checkpoints of a proof. Where there is more, processes are ended after all."""
_SAVED: Final[tuple[Channel, ...]] = ("store", "sqlite", "postgres", "http", "mail", "line")
"""What is written through other channels is not saved."""
_SAYS_MORE: Final = ("unobserved", "process", "concurrent")
"""The notes of a delivery that did something which may not be saved."""


class Checkpoint(msgspec.Struct, frozen=True):
    """`messages` is what the process had told by then."""

    messages: list[Message]
    began: float
    files: Path
    rows: list[Rows]
    memories: list[Any]
    clock: bytes

    @property
    def last(self) -> Boundary:
        """The boundary that it stands at."""
        return next(each for each in reversed(self.messages) if isinstance(each, Boundary))


class Checkpoints:
    """Of the deliveries of a proof that came after the same faults."""

    def __init__(self, ground: Ground, folder: Path) -> None:
        self._ground = ground
        self._folder = folder
        self._found: dict[tuple[Move, ...], dict[int, Checkpoint]] = {}
        self._numbers = count()
        self._bytes = 0
        self._is_possible = ground.can_be_saved

    @property
    def are_taken(self) -> bool:
        return self._is_possible and self._bytes < _MOST_BYTES

    def find(self, moves: Sequence[Move], at: int) -> Checkpoint | None:
        """Of a delivery that came after the faults `moves`, before its boundary `at`."""
        return self._found.get(tuple(moves), {}).get(at)

    def take(self, moves: Sequence[Move], child: Child) -> None:
        """While the delivery stands still, before its last boundary."""
        saved = self.save([child])
        if saved is not None:
            number = child.boundaries[-1].number
            self._found.setdefault(tuple(moves), {})[number] = saved

    def save(self, deliveries: Sequence[Delivery]) -> Checkpoint | None:
        """What is left by now, if that can be told. `deliveries`: those since the last one."""
        copies = self._ground.copies
        if not self.are_taken or not all(_is_saved_whole(each.messages) for each in deliveries):
            return None
        rows = None if copies.has_saved_files else copies.databases.save_rows()
        if rows is None:
            return None
        files = self._folder / str(next(self._numbers))
        self._bytes += copies.save_files(files) + sum(each.size for each in rows)
        last = deliveries[-1]
        return Checkpoint(
            [*last.messages],
            last.began,
            files,
            rows,
            self._ground.save_memories(),
            self._ground.clock.saved,
        )

    def end(self, child: Child) -> None:
        """A delivery that did what is not saved may have done it at any time."""
        if not _is_saved_whole(child.messages) or self._ground.copies.has_saved_files:
            self._is_possible = False
            self._found.clear()
            shutil.rmtree(self._folder, ignore_errors=True)


def _is_saved_whole(messages: list[Message]) -> bool:
    return not any(
        (isinstance(each, Note) and each.what in _SAYS_MORE)
        or (isinstance(each, Boundary) and (each.channel not in _SAVED or not each.judged))
        for each in messages
    )
