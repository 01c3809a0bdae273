"""Jobs: a list with filters, and the search."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlencode

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import shown
from oncely.model.transition import STATES
from oncely.store import listing
from oncely.store.listing import BriefLeaf, Wanted
from oncely.surface.base import is_job_id
from oncely.surface.choosing import chosen
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.http.publishing import made_at

_LIMIT: Final = 50
_PREFIX: Final = re.compile(r"[0-9a-f]{6,8}(-[0-9a-f-]*)?")
_FILTERS: Final = ("state", "kind", "queue", "group", "tag", "key", "from", "until")


async def show(ask: Ask) -> View | Go:
    query = {name: value.strip() for name, value in ask.query.items()}
    search = query.get("search")
    if search is not None and is_job_id(search.lower()):
        if await ask.app.aget(search.lower()) is not None:
            return Go(f"/jobs/{search.lower()}")
        return _view(query, BriefLeaf([], None), missing=search)
    try:
        leaf = await _found(ask, query)
    except InvalidInput as error:
        return _view(query, BriefLeaf([], None), wrong=str(error), status=422)
    if search is not None and len(leaf.jobs) == 1 and leaf.last is None:
        return Go(f"/jobs/{leaf.jobs[0].job_id}")
    return _view(query, leaf)


async def _found(ask: Ask, query: dict[str, str]) -> BriefLeaf:
    before = query.get("before")
    if before is not None and not is_job_id(before):
        raise InvalidInput("this page has no such place to go on from: begin at the newest jobs")
    search = query.get("search")
    if search is not None and _PREFIX.fullmatch(search.lower()):
        # The ids that begin so, which is a span of time; a key can look like that too.
        start = search.lower()
        span = Wanted(since=_filled(start, "0"), until=_filled(start, "f"))
        leaf = await ask.run(lambda _: listing.brief_page(span, _LIMIT, before))
        if leaf.jobs:
            return leaf
    wanted = chosen(
        state=query.get("state"),  # type: ignore[arg-type]
        kind=query.get("kind"),
        queue=query.get("queue"),
        group_key=query.get("group"),
        tag=query.get("tag"),
        key=query.get("key") or search,
        created_from=_moment(query.get("from"), "Created from"),
        created_until=_moment(query.get("until"), "Created until"),
    )
    return await ask.run(lambda _: listing.brief_page(wanted, _LIMIT, before))


def _view(query: dict[str, str], leaf: BriefLeaf, *, status: int = 200, **more: Any) -> View:
    kept = {name: value for name, value in query.items() if name != "before"}
    older = None
    if leaf.last is not None:
        older = "/jobs?" + urlencode({**kept, "before": leaf.last})
    data = {
        "jobs": leaf.jobs,
        "states": STATES,
        "asked": {name: kept.get(name, "") for name in (*_FILTERS, "search")},
        "filtered": bool(kept),
        "begins_later": "before" in query,
        "newest": "/jobs" + ("?" + urlencode(kept) if kept else ""),
        "older": older,
        # A page that is not full has come to the end of what it may look at, not of the jobs.
        "reached": made_at(leaf.last) if leaf.last and len(leaf.jobs) < _LIMIT else None,
        "missing": None,
        "wrong": None,
        **more,
    }
    return View("jobs.html", data, status)


def _filled(prefix: str, digit: str) -> str:
    """An id that begins so."""
    plain = prefix.replace("-", "")[:32].ljust(32, digit)
    return "-".join((plain[:8], plain[8:12], plain[12:16], plain[16:20], plain[20:]))


def _moment(text: str | None, label: str) -> datetime | None:
    """As a field of the browser has it, in UTC; or with a time zone of its own."""
    if text is None:
        return None
    try:
        at = msgspec.convert(f"{text}:00" if len(text) == 16 else text, datetime)
    except msgspec.ValidationError:
        raise InvalidInput(
            f"{label} is {shown(text)}; expected a date and a time, 2026-01-31T09:30"
        ) from None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


PAGES: Final = (Page("GET", "/jobs", show, "Jobs", nav="Jobs"),)
