"""Known violations in a file: they do not fail a run, new ones do, and gone ones are named.

A violation is known by what went wrong and before what, not by the number of its boundary or a line
of code, so that it stays known when the code around it changes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.report import Report, Violation
from oncely.prove.schedule import Schedule
from oncely.prove.watch import Boundary

_VERSION: Final = 1
_VALUES: Final = re.compile(r"'(?:[^']|'')*'|(?<=:)\d+|\b\d+\b")


class KnownViolation(msgspec.Struct, frozen=True, order=True):
    kind: str
    verdict: str
    faults: tuple[str, ...]
    """Each with the boundary that it strikes: `crash before COMMIT`."""
    differs: tuple[str, ...]

    def __str__(self) -> str:
        parts = ", ".join(self.differs)
        return f"{self.kind} {self.verdict}, {', then '.join(self.faults)}" + (
            f" ({parts})" if parts else ""
        )


class BaselineFile(msgspec.Struct):
    version: int
    violations: list[KnownViolation]


def read_baseline(path: Path) -> list[KnownViolation]:
    try:
        file = msgspec.json.decode(path.read_bytes(), type=BaselineFile)
    except FileNotFoundError:
        raise InvalidInput(
            f"there is no baseline {str(path)!r}; expected a file that --write-baseline has written"
        ) from None
    except msgspec.DecodeError as error:
        raise InvalidInput(f"the baseline {str(path)!r} cannot be read: {error}") from None
    if file.version != _VERSION:
        raise InvalidInput(
            f"the baseline {str(path)!r} has version {file.version}; expected {_VERSION}: write it "
            "anew with --write-baseline"
        )
    return file.violations


def write_baseline(path: Path, reports: Sequence[Report]) -> None:
    """Entries of kinds that were not proved in this run are kept."""
    proved = {report.kind for report in reports}
    before = read_baseline(path) if path.exists() else []
    kept = {each for each in before if each.kind not in proved}
    found = {known_by(report, each) for report in reports for each in report.violations}
    data = msgspec.json.encode(BaselineFile(_VERSION, sorted(kept | found)))
    path.write_bytes(msgspec.json.format(data, indent=2) + b"\n")


def compare(report: Report, baseline: Sequence[KnownViolation]) -> None:
    """Mark the violations of a report that are known, and name the known ones that are gone."""
    known = {each for each in baseline if each.kind == report.kind}
    found = [known_by(report, each) for each in report.violations]
    report.violations = [
        msgspec.structs.replace(violation, is_known=identity in known)
        for violation, identity in zip(report.violations, found, strict=True)
    ]
    gone = sorted(known - set(found))
    report.gone = [str(each) for each in gone if _was_looked_for(each, report)]


def _was_looked_for(known: KnownViolation, report: Report) -> bool:
    """Schedules with two faults are played only where none with one broke it."""
    if report.is_partial or report.unequal:
        return False
    pairs_played = any(len(schedule.moves) > 1 for schedule in report.played)
    return len(known.faults) == 1 or (pairs_played and not report.left_out)


def known_by(report: Report, violation: Violation) -> KnownViolation:
    return KnownViolation(
        report.kind,
        violation.verdict,
        _faults(violation.schedule, report.boundaries, violation),
        tuple(_without_values(each.label) for each in violation.differences),
    )


def _faults(
    schedule: Schedule, boundaries: Sequence[Boundary], violation: Violation
) -> tuple[str, ...]:
    first, *others = schedule.moves
    names = [_without_values(each.name) for each in boundaries]
    name = names[first.at] if first.at < len(names) else ""
    if earlier := names[: first.at].count(name):
        name = f"{name} #{earlier + 1}"
    struck = [step.text for lane in violation.lanes for step in lane.steps if step.is_fault]
    return (
        f"{first.fault} before {name}",
        *(
            f"{move.fault}: {_without_values(text)}"
            for move, text in zip(others, struck[1:], strict=False)
        ),
    )


def _without_values(text: str) -> str:
    """A port, an id or a time may differ in the next run."""
    return _VALUES.sub("?", text)
