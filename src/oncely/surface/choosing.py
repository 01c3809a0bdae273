"""Which jobs somebody wants to see: the filters, checked."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown
from oncely.model.transition import STATES, State
from oncely.store.listing import Wanted
from oncely.store.look import FIRST, LAST
from oncely.store.upkeep import ids_made_by

_LATEST: Final = 2.0**47 / 1000
"""Seconds: the end of the times that an id can have."""


def chosen(
    *,
    state: State | None = None,
    kind: str | None = None,
    queue: str | None = None,
    group_key: str | None = None,
    tag: str | None = None,
    key: str | None = None,
    created_from: datetime | None = None,
    created_until: datetime | None = None,
) -> Wanted:
    if state is not None and state not in STATES:
        raise InvalidInput(f"state is {shown(state)}; expected one of {', '.join(STATES)}")
    for option, name in (("kind", kind), ("queue", queue)):
        if name is not None:
            check_name(name, option)
    for option, text in (("group_key", group_key), ("tag", tag), ("key", key)):
        if text is not None:
            check_key(text, option)
    return Wanted(
        state=state,
        kind=kind,
        queue=queue,
        group_key=group_key,
        tag=tag,
        key=key,
        since=_id_at(created_from, "created_from") or FIRST,
        until=_id_at(created_until, "created_until") or LAST,
    )


def _id_at(at: Any, option: str) -> str | None:
    """Ids are in the order of time, by the clocks of those who enqueue."""
    if at is None:
        return None
    if not isinstance(at, datetime) or at.tzinfo is None:
        raise InvalidInput(f"{option} is {shown(at)}; expected a datetime with a time zone")
    return ids_made_by(min(at.timestamp(), _LATEST))
