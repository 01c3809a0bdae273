"""An event in words, and a moment."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from oncely.model.event import Event, one_line


def line(event: Event) -> str:
    """One line, whatever is in the error."""
    moment = "" if event.at is None else f"{shown(event.at)}  "
    return f"{moment}{event.what:<12}  {details(event)}".rstrip()


def details(event: Event) -> str:
    return ", ".join(_details(event))


def _details(event: Event) -> Iterator[str]:
    if event.boundary == "enqueue":
        yield f"at enqueue, by its {event.key} key"
    elif event.boundary == "delivery":
        yield f"at delivery: too late to be settled as {event.refused}"
    elif event.boundary == "effect":
        yield "found done, not done again"
    if event.drill is not None:
        found = ", ".join(map(one_line, event.recognised))
        yield f"recognised: {found}" if event.drill == "recognised" else event.drill
        if found and event.drill != "recognised":
            yield f"recognised: {found}"
        if event.repeated:
            yield f"would repeat: {', '.join(map(one_line, event.repeated))}"
    if event.effect is not None:
        yield f"effect {event.effect!r}"
    if event.begun:
        yield f"on record and not asked for, began {', '.join(map(repr, event.begun))}"
    if event.source is not None:
        yield event.source
    if event.happened is not None:
        yield "it happened" if event.happened else "it did not happen"
    if event.by is not None:
        yield f"by {event.by}"
    for name in ("idempotency", "unique"):
        key = getattr(event, f"{name}_key")
        if key is not None:
            yield f"{name} key {key}"
    if event.epoch is not None:
        yield f"epoch {event.epoch}"
    if event.attempt is not None and event.epoch is not None:
        yield f"attempt {event.attempt}"
    if event.worker is not None:
        yield f"by {event.worker}"
    if event.ran_seconds is not None:
        yield f"after {event.ran_seconds:.3f} s"
    if event.due_at is not None and event.at is not None:
        yield f"due in {(event.due_at - event.at).total_seconds():g} s"
    if event.reason is not None:
        yield event.reason
    if event.note is not None:
        yield one_line(event.note)


def shown(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03} UTC"
