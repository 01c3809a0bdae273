"""A file of which a part was written when the process ended."""

from __future__ import annotations

import os
from typing import Any

from oncely.prove.watch import knowing


class TornFile:
    """An open file. What its user flushed has reached it; of the rest only a half does."""

    def __init__(self, opened: Any, path: str) -> None:
        self._path = path
        self._flush = opened.flush
        self._safe_bytes = os.path.getsize(path)
        vars(opened)["flush"] = self._flush_and_note

    def _flush_and_note(self) -> None:
        self._flush()
        self._safe_bytes = os.path.getsize(self._path)

    def write_half(self) -> None:
        self._flush()
        more = os.path.getsize(self._path) - self._safe_bytes
        if more > 0:
            with knowing():
                os.truncate(self._path, self._safe_bytes + more // 2)
