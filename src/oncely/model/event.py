"""One thing that happened to a job: told as it happens, and again in the job's story."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from oncely.model.drill import DrillOutcome
from oncely.model.effect import Source

What = Literal[
    "enqueued",
    "deduplicated",
    "claimed",
    "completed",
    "failed",
    "cancelled",
    "in_doubt",
    "retried",
    "deferred",
    "released",
    "crashed",
    "replayed",
    "effect_begun",
    "effect_done",
    "effect_renamed",
    "resolved",
    "forgotten",
    "drilled",
]
Boundary = Literal["enqueue", "delivery", "effect"]
Key = Literal["idempotency", "unique"]
WHATS: Final[tuple[What, ...]] = What.__args__  # type: ignore[attr-defined]
ROUTINE: Final[frozenset[What]] = frozenset({"enqueued", "claimed", "completed"})
"""What happens to every job, if all goes well."""
_REASON_LIMIT: Final = 200


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What happened to a job. Of the other fields those are set that fit it.

    - `at` is the moment by the store's clock; an event that is told as it happens has none.
    - `boundary` says where a repeat was recognised, `key` by which of its keys. At `delivery` it
      is the end of an execution that came too late: `refused` is what it wanted to say. At
      `effect` it is an effect that was found done, and was not done again.
    - `effect` is the name of an effect, `source` how it is known to be done. `happened`, `by` and
      `note` are a person's word on it. `begun` are the effects that an execution began although
      it did not ask for this one.
    - `due_at`: not before that. `waited_seconds` is how long a claimed job was due by then,
      `ran_seconds` the time from its claim to its end.
    - `drill` is how a drill ended: the job was completed before, and was delivered once more.
      `recognised` and `repeated` are what it met.
    - `uncommitted`: enqueued in the caller's own transaction (`tx=`), so it counts only if that
      commits.
    """

    what: What
    job_id: str
    kind: str
    queue: str
    at: datetime | None = None
    boundary: Boundary | None = None
    key: Key | None = None
    idempotency_key: str | None = None
    unique_key: str | None = None
    epoch: int | None = None
    attempt: int | None = None
    worker: str | None = None
    refused: What | None = None
    effect: str | None = None
    source: Source | None = None
    happened: bool | None = None
    by: str | None = None
    note: str | None = None
    begun: list[str] = []
    due_at: datetime | None = None
    error: Any = None
    waited_seconds: float | None = None
    ran_seconds: float | None = None
    uncommitted: bool = False
    drill: DrillOutcome | None = None
    recognised: list[str] = []
    repeated: list[str] = []

    @property
    def reason(self) -> str | None:
        """The error in one line, without its traceback."""
        if self.error is None:
            return None
        error = self.error
        if isinstance(error, dict):
            error = f"{error.get('type')}: {error.get('message')}"
        return one_line(str(error))


def one_line(text: str) -> str:
    text = " ".join(text.split())
    text = text if len(text) <= _REASON_LIMIT else f"{text[:_REASON_LIMIT]}…"
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)
