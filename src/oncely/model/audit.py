"""The audit trail: who changed what, when, and why."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal, get_args

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown

About = Literal["job", "dlq", "queue", "group", "schedule", "token", "request", "user", "drills"]
"""What was changed. `dlq` is the dead-letter queue, of which many were changed at once; `drills` is
the switch that all workers obey."""


class AuditEntry(msgspec.Struct, frozen=True):
    """One change by an operator. `act` is the verb that made it, `name` the job's id or the name of
    what was changed. `count` is how many jobs, of an act on many."""

    id: str
    at: datetime
    by: str
    act: str
    about: About
    name: str
    note: str | None = None
    count: int | None = None
    details: Any = None


def check_about(value: Any) -> About | None:
    if value is not None and value not in get_args(About):
        raise InvalidInput(
            f"about is {shown(value)}; expected one of {', '.join(get_args(About))}, or None"
        )
    return value  # type: ignore[no-any-return]
