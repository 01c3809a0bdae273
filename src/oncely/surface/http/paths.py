"""What stands at a path: found segment by segment, not by trying one pattern after another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

T = TypeVar("T")


class Paths(Generic[T]):
    """`/v1/queues/{queue}/jobs` and the like. A segment is taken by its name before it is taken for
    anything in braces, and one in braces is never empty."""

    def __init__(self, table: Mapping[str, T]) -> None:
        self._root: _Place[T] = _Place()
        for path, value in table.items():
            place = self._root
            names = []
            for segment in path.split("/"):
                if segment.startswith("{"):
                    names.append(segment[1:-1])
                    place.anything = place = place.anything or _Place()
                else:
                    place = place.named.setdefault(segment, _Place())
            place.value, place.names = value, names

    def find(self, path: str) -> tuple[T, dict[str, str]] | None:
        place = self._root
        taken = []
        for segment in path.split("/"):
            following = place.named.get(segment)
            if following is None:
                following = place.anything
                if following is None or not segment:
                    return None
                taken.append(segment)
            place = following
        if place.value is None:
            return None
        return place.value, dict(zip(place.names, taken, strict=True))


class _Place(Generic[T]):
    __slots__ = ("anything", "named", "names", "value")

    def __init__(self) -> None:
        self.named: dict[str, _Place[T]] = {}
        self.anything: _Place[T] | None = None
        self.value: T | None = None
        self.names: list[str] = []
