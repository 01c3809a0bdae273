"""A notification: a row keeps others out, holds the result, and is removed on any error."""

import sqlite3
from collections.abc import Callable

from places import Places, opened, post

from oncely import Context

TABLES = "create table fences (job text unique, result text)"


def handler(ctx: Context, who: str, places: Places) -> str | None:
    with opened(places.database) as db:
        return with_fence(db, ctx.job_id, lambda: post(places.service, f"notify {who}"))


def with_fence(db: sqlite3.Connection, job_id: str, work: Callable[[], str]) -> str | None:
    fresh = db.execute(
        "insert into fences values (?, null) on conflict do nothing", (job_id,)
    ).rowcount
    if not fresh:
        # The result, or None: somebody is at it, so skip.
        found = db.execute("select result from fences where job = ?", (job_id,)).fetchone()
        return found[0] if found else None
    try:
        result = work()
        db.execute("update fences set result = ? where job = ?", (result, job_id))
        return result
    except Exception:
        db.execute("delete from fences where job = ?", (job_id,))
        raise
