"""Values that differ from run to run and mean the same: generated ids, and random names.

Each is replaced by a word, so that two runs can be compared. What refers to what is kept, as a part
of the world of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import msgspec

from oncely.prove.generated_values import BEGIN_MARK, END_MARK

Snapshot = dict[str, Counter[str]]
REFERENCES: Final = "references"
"""What has the same generated or random value. It is judged only if all else is as it should be."""
_MARK: Final = re.compile(f"{BEGIN_MARK}[^{END_MARK}]*{END_MARK}")
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_NAME: Final = re.compile(r"[0-9A-Za-z_-]{8,}")
_TEMPORARY: Final = re.compile(r"tmp[a-z0-9_]{8}")
_TIME: Final = re.compile(r"[0-9TZ_-]*")
_FEWEST_CHANGES: Final = 4
"""A word has one or two changes between capitals and small letters."""


class _RandomNames(msgspec.Struct, frozen=True):
    """What is known of the names in a part of the world."""

    stable: set[str]
    """Those that are not random."""
    shapes: set[tuple[str, int]]
    """What random names begin with, and how long they are."""

    def has(self, name: str) -> bool:
        if name in self.stable:
            return False
        shaped = any(name.startswith(begin) and len(name) == long for begin, long in self.shapes)
        return shaped or _is_random(name)


class StandIns:
    def __init__(self) -> None:
        self.random: dict[str, _RandomNames] = {}
        """By the part of the world; a part without random names is not there."""

    def learn(self, before: Snapshot, one: Snapshot, other: Snapshot) -> None:
        """From two clean runs: where they differ in random names and in nothing else."""
        for label in one:
            if label == REFERENCES or self._masked(label, one) == self._masked(label, other):
                continue
            old = _names(before.get(label, Counter()))
            stable = (_names(one[label]) & _names(other[label])) | old
            shapes = set(_shapes(one[label] - other[label], other[label] - one[label]))
            self.random[label] = _RandomNames(stable, shapes)
            if self._masked(label, one) != self._masked(label, other):
                del self.random[label]

    def apply(self, raw: Snapshot) -> Snapshot:
        found: Snapshot = {label: Counter() for label in raw}
        places: dict[str, list[str]] = {}
        for label, lines in raw.items():
            for line, count in lines.items():
                masked, values = self._mask(label, line)
                found[label][masked] += count
                for value in values:
                    places.setdefault(value, []).extend([f"{label} {masked}"] * count)
        found[REFERENCES] = Counter(
            " = ".join(sorted(each)) for each in places.values() if len(each) > 1
        )
        return found

    def _masked(self, label: str, raw: Snapshot) -> Counter[str]:
        return self.apply({label: raw[label]})[label]

    def _mask(self, label: str, line: str) -> tuple[str, set[str]]:
        values: set[str] = set()
        names = self.random.get(label)

        def name(match: re.Match[str]) -> str:
            if names is None or not names.has(match[0]):
                return match[0]
            values.add(match[0])
            return "(random)"

        def mark(match: re.Match[str]) -> str:
            values.add(match[0])
            return "(generated)"

        line = _MARK.sub(mark, line)
        if names is not None:
            line = _NAME.sub(name, _UUID.sub(name, line))
        return line, values


def _names(lines: Counter[str]) -> set[str]:
    return {
        match[0] for line in lines for pattern in (_UUID, _NAME) for match in pattern.finditer(line)
    }


def _shapes(one: Counter[str], other: Counter[str]) -> Iterator[tuple[str, int]]:
    """Of names in lines that are the same but for them, if one of the two looks random: a name that
    is made of few letters may have no digit by chance."""
    by_skeleton: dict[str, str] = {_NAME.sub("", line): line for line in one}
    for line in other:
        twin = by_skeleton.get(_NAME.sub("", line), "")
        for a, b in zip(_NAME.findall(twin), _NAME.findall(line), strict=False):
            if a != b and len(a) == len(b) and (_is_random(a) or _is_random(b)):
                same = next(at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y)
                cut = max(a.rfind("_", 0, same), a.rfind("-", 0, same)) + 1
                yield a[:cut], len(a)


def _is_random(name: str) -> bool:
    """A name with letters and digits, or with letters as no word has them; not a moment."""
    if _TIME.fullmatch(name):
        return False
    if _TEMPORARY.fullmatch(name) or any(character.isdigit() for character in name):
        return True
    changes = sum(a.isupper() != b.isupper() for a, b in pairwise(name))
    return changes >= _FEWEST_CHANGES
