"""The dead-letter queue in groups: jobs of one kind that failed for one reason."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from functools import lru_cache
from hashlib import sha256
from typing import Final

import msgspec

from oncely.model.effect import Verb

SHAPE_LIMIT: Final = 160
_VARIABLE: Final = re.compile(
    r"""
    "[^"]*" | '[^']*' | `[^`]*`
    | \b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b
    | \b0x[0-9a-fA-F]+\b
    | \b(?=[0-9a-fA-F]*\d)[0-9a-fA-F]{8,}\b
    | \d+(?:[.,:]\d+)*
    """,
    re.VERBOSE,
)


class Failed(msgspec.Struct, frozen=True):
    """One failed job, as far as a group needs it."""

    job_id: str
    kind: str
    queue: str
    error_type: str | None
    message: str | None
    ended_at: datetime

    @property
    def reason(self) -> Reason:
        return Reason(self.kind, self.error_type, shape(self.message))


class Reason(msgspec.Struct, frozen=True):
    """What the jobs of a group have in common. In `shape` stands … for what differs in the message
    from job to job: numbers, ids, and what is in quotes."""

    kind: str
    error_type: str | None
    shape: str

    @property
    def id(self) -> str:
        """Short, for an address."""
        text = "\0".join((self.kind, self.error_type or "", self.shape))
        return sha256(text.encode(errors="backslashreplace")).hexdigest()[:16]


class FailureGroup(msgspec.Struct, frozen=True):
    reason: Reason
    ids: list[str]
    """The newest first."""
    queues: list[str]
    oldest_at: datetime
    newest_at: datetime

    @property
    def count(self) -> int:
        return len(self.ids)


class WillDo(msgspec.Struct, frozen=True):
    """What a replay will do with the effects of one name: `skipped` of them are done and are not
    done again, `repeated` were begun and are repeated, `asked` were begun and may not be: they are
    verified, or come in doubt."""

    name: str
    verb: Verb
    skipped: int = 0
    repeated: int = 0
    asked: int = 0


@lru_cache(4_096)
def shape(message: str | None) -> str:
    """Equal for messages that differ in figures and names only."""
    first = (message or "").strip().partition("\n")[0]
    return _VARIABLE.sub("…", first[: 2 * SHAPE_LIMIT])[:SHAPE_LIMIT]


def grouped(failed: Iterable[Failed]) -> list[FailureGroup]:
    """The largest first."""
    groups: dict[Reason, list[Failed]] = {}
    for job in failed:
        groups.setdefault(job.reason, []).append(job)
    made = [
        FailureGroup(
            reason,
            [job.job_id for job in jobs],
            sorted({job.queue for job in jobs}),
            min(job.ended_at for job in jobs),
            max(job.ended_at for job in jobs),
        )
        for reason, jobs in groups.items()
    ]
    return sorted(made, key=lambda group: (-group.count, group.reason.kind, group.reason.shape))
