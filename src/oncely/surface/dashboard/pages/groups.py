"""Groups: the limits of jobs that share a group key."""

from __future__ import annotations

from typing import Any, Final

from oncely.model.errors import InvalidInput, RaceError, UsageError
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields


async def show(ask: Ask) -> View:
    return await _page(ask)


async def set_limits(ask: Ask) -> View | Go:
    try:
        concurrency = fields.whole(ask.form, "concurrency", "Concurrency")
        rate = fields.rate(ask.form)
        await ask.app.aset_group(_key(ask), concurrency=concurrency, rate=rate)
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error))
    lifted = concurrency is None and rate is None
    return Go("/groups", f"Group {_key(ask)} has {'no' if lifted else 'new'} limits.")


async def pause(ask: Ask) -> Go:
    await ask.app.apause(group=_key(ask))
    return Go("/groups", f"Group {_key(ask)} is paused: no more of its jobs begin.")


async def resume(ask: Ask) -> Go:
    await ask.app.aresume(group=_key(ask))
    return Go("/groups", f"Group {_key(ask)} is resumed.")


def _key(ask: Ask) -> str:
    key = ask.form.get("key", "")
    if not key:
        raise InvalidInput("the group key is missing")
    return key


async def _page(ask: Ask, wrong: str | None = None) -> View:
    groups = await ask.app.agroups()
    filled: dict[str, Any] = {
        "key": ask.query.get("key", ""),
        "concurrency": "",
        "rate_count": "",
        "rate_seconds": "",
    }
    for group in groups:
        if group.key == filled["key"]:
            count, seconds = group.rate or ("", None)
            filled |= {
                "concurrency": group.concurrency or "",
                "rate_count": count,
                "rate_seconds": "" if seconds is None else fields.short(seconds),
            }
    if wrong:
        filled |= ask.form
    data = {"groups": groups, "filled": filled, "wrong": wrong}
    return View("groups.html", data, 422 if wrong else 200)


PAGES: Final = (
    Page("GET", "/groups", show, "Groups", nav="Groups"),
    Page("POST", "/groups", set_limits, "Groups"),
    Page("POST", "/groups/pause", pause),
    Page("POST", "/groups/resume", resume),
)
