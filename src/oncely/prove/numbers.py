"""Numbers in the world: one that moved further than one run moves it was moved again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, Literal

ONLY: Final = "value"
"""The name of a number that is all that a snapshot gave."""
_NUMBER: Final = re.compile(r"(.*): (-?\d+(?:\.\d+)?)", re.DOTALL)
Change = Literal["lost", "doubled", "diverged"]


def numbers(lines: Iterable[str]) -> dict[str, float] | None:
    """Name and number of each line, such as `mails: 2`; None if a line is something else, or if a
    name occurs twice."""
    found: dict[str, float] = {}
    for line in lines:
        match = _NUMBER.fullmatch(line)
        if match is None or match[1] in found:
            return None
        found[match[1]] = float(match[2])
    return found


def compare(before: Counter[str], missing: Counter[str], extra: Counter[str]) -> Change | None:
    """How the numbers differ; None if the parts that differ are not the same numbers."""
    wanted, found = numbers(missing.elements()), numbers(extra.elements())
    if wanted is None or found is None or wanted.keys() != found.keys():
        return None
    start: dict[str, float] = {}
    for line in before:
        start |= numbers([line]) or {}
    kinds = {_kind(start.get(name, 0.0), wanted[name], found[name]) for name in wanted}
    return kinds.pop() if len(kinds) == 1 else "diverged"


def _kind(start: float, wanted: float, found: float) -> Change:
    further, expected = found - wanted, wanted - start
    if expected == 0:
        return "doubled" if further > 0 else "lost"
    if (further > 0) == (expected > 0):
        return "doubled"
    return "lost" if (found - start) * expected >= 0 else "diverged"


def describe(missing: list[str], extra: list[str]) -> list[str] | None:
    """`mails: 1 expected, 2 found`, if these are the same numbers."""
    wanted, found = numbers(missing), numbers(extra)
    if not wanted or found is None or wanted.keys() != found.keys():
        return None
    return [
        f"{name}: {wanted[name]:g} expected, {found[name]:g} found".removeprefix(f"{ONLY}: ")
        for name in wanted
    ]
