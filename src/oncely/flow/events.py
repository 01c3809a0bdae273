"""What happens is told: as log records, and to the hooks of an app."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any, Final, Literal

import msgspec

from oncely.flow.redaction import redaction
from oncely.model.event import ROUTINE, Event, What

Hook = Callable[[Event], object]
Place = Literal["enqueue", "worker"]
_LOGGERS: Final = {
    "enqueue": logging.getLogger("oncely.enqueue"),
    "worker": logging.getLogger("oncely.worker"),
}
_FREE_TEXT: Final = {"error", "note"}
"""What others wrote: a secret can be in it."""
_STEPS: Final[dict[What, str]] = {
    "enqueued": "enqueue",
    "claimed": "claim",
    "drilled": "drill",
    "effect_renamed": "effect",
}


def log(event: str, *, level: int = logging.INFO, **fields: Any) -> None:
    """A line of words, and fields for machines."""
    _log("worker", level, event, fields)


def _log(place: Place, level: int, event: str, fields: dict[str, Any]) -> None:
    logger = _LOGGERS[place]
    if logger.isEnabledFor(level):
        for name in _FREE_TEXT & fields.keys():
            fields[name] = redaction().text(str(fields[name]))
        told = " ".join(f"{name}={value}" for name, value in fields.items())
        logger.log(level, "%s %s", event, told, extra={"oncely": {"event": event, **fields}})


class Events:
    """The ears of one app. While nobody listens, nothing is made up to be told."""

    def __init__(self) -> None:
        self._hooks: list[Hook] = []

    def add(self, hook: Hook) -> None:
        self._hooks = [*self._hooks, hook]

    def wanted(self, place: Place) -> Callable[[What], bool] | None:
        """Which events somebody listens to; None if nobody does. Asked once per batch."""
        if self._hooks or _LOGGERS[place].isEnabledFor(logging.DEBUG):
            return lambda _: True
        if _LOGGERS[place].isEnabledFor(logging.INFO):
            return lambda what: what not in ROUTINE
        return None

    def warn(self, events: Iterable[Event]) -> None:
        """Of a worker: what somebody should look at, whether or not anybody listens."""
        self.tell("worker", events, level=logging.WARNING)

    def tell(self, place: Place, events: Iterable[Event], level: int | None = None) -> None:
        for event in events:
            # What happens to every job would drown the rest, in a log that is kept at INFO.
            usual = logging.DEBUG if event.what in ROUTINE else logging.INFO
            at = usual if level is None else level
            if _LOGGERS[place].isEnabledFor(at):
                _log(place, at, _step(event), _fields(event))
            for hook in self._hooks:
                try:
                    hook(event)
                except Exception:
                    _LOGGERS[place].exception(
                        "the event hook %r raised on %s of job %s", hook, event.what, event.job_id
                    )


def _step(event: Event) -> str:
    if event.what == "deduplicated":
        return "settle" if event.boundary == "delivery" else str(event.boundary)
    return _STEPS.get(event.what, "settle")


def _fields(event: Event) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.structs.asdict(event)
    fields["error"] = event.reason
    told = {
        name: value
        for name, value in fields.items()
        if value is not None and value is not False and value != []
    }
    return {"outcome": told.pop("what"), **told}
