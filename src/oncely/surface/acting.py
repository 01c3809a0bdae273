"""Who acts: the name that the audit trail and the ledger keep of a change."""

from __future__ import annotations

import getpass
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

import msgspec

from oncely.flow.identity import new_job_ids
from oncely.model.effect import check_note
from oncely.model.keys import check_key
from oncely.store.trail import Trail


class Actor(msgspec.Struct, frozen=True):
    by: str
    note: str | None


_actor: Final[ContextVar[Actor | None]] = ContextVar("oncely_actor", default=None)


@contextmanager
def acting(by: str, *, note: str | None = None) -> Iterator[None]:
    """Within the block it is `by` who changes things, with this `note`, and the audit trail says
    so. Without it, it is the user of this process."""
    actor = Actor(check_key(by, "by"), check_note(note))
    before = _actor.set(actor)
    try:
        yield
    finally:
        _actor.reset(before)


def trail(*, by: str | None = None, note: str | None = None) -> Trail:
    """For one change that is about to be made."""
    actor = _actor.get()
    if by is None:
        by = user() if actor is None else actor.by
    if note is None and actor is not None:
        note = actor.note
    return Trail(new_job_ids(1)[0], by, note)


def user() -> str:
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # a container without a name for its user
        return socket.gethostname()
