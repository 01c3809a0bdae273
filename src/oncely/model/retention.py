"""How long what is over is kept."""

from __future__ import annotations

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.model.transition import State


class Retention(msgspec.Struct, frozen=True):
    """Days after the end of a job, by how it ended; and how long its idempotency key is remembered
    after that: after the end of the job or, if it failed, after it left the dead-letter queue."""

    completed_days: float = 7
    cancelled_days: float = 7
    failed_days: float = 90
    key_days: float = 30
    audit_days: float = 365
    """Of the audit trail: after the change."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            usable = isinstance(value, int | float) and not isinstance(value, bool)
            if not usable or not 0 <= value <= 36_600:
                raise InvalidInput(f"{name} is {shown(value)}; expected days from 0 to 36,600")

    @property
    def by_state(self) -> dict[State, float]:
        return {
            "completed": self.completed_days,
            "cancelled": self.cancelled_days,
            "failed": self.failed_days,
        }
