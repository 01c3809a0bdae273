"""What a worker is given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypedDict

from oncely.flow.context import Tools
from oncely.flow.enqueue import Enqueuer
from oncely.flow.events import Events
from oncely.flow.execute import Middleware
from oncely.flow.handler import Registry
from oncely.flow.schedule import Schedules
from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.model.retention import Retention
from oncely.model.retry import Retry

MAX_RESULT_BYTES: Final = 1024 * 1024
DEFAULT_RETRY: Final = Retry()


class WorkerOptions(TypedDict, total=False):
    """The options of `Oncely.worker`, explained there."""

    queues: Sequence[str] | None
    concurrency: int
    lease_seconds: float
    poll_seconds: float
    grace_seconds: float
    drill: float


class Gear(Tools, frozen=True, kw_only=True):
    """What a worker shares with its app."""

    enqueuer: Enqueuer
    registry: Registry
    middleware: Sequence[Middleware]
    retention: Retention
    schedules: Schedules
    events: Events


def check_above_zero(**options: float) -> None:
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
            raise InvalidInput(f"{name} is {value!r}; expected a number above 0")


def check_queues(queues: Sequence[str]) -> list[str]:
    if isinstance(queues, str):
        raise InvalidInput(f"queues is {shown(queues)}; expected a list of names")
    return [check_name(name, "queue") for name in queues]
