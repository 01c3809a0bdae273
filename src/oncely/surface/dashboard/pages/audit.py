"""The audit trail."""

from __future__ import annotations

from typing import Final, get_args
from urllib.parse import urlencode

from oncely.model.audit import About
from oncely.model.errors import InvalidInput
from oncely.surface.dashboard.ask import Ask, Page, View

_LIMIT: Final = 50
_FILTERS: Final = ("about", "name", "by")


async def show(ask: Ask) -> View:
    asked = {name: ask.query.get(name, "").strip() for name in _FILTERS}
    wanted = {name: value for name, value in asked.items() if value}
    wrong = None
    try:
        entries = await ask.app.aaudit(
            limit=_LIMIT,
            before=ask.query.get("before"),
            about=wanted.get("about"),  # type: ignore[arg-type]
            name=wanted.get("name"),
            by=wanted.get("by"),
        )
    except InvalidInput as error:
        entries, wrong = [], str(error)
    older = None
    if len(entries) == _LIMIT:
        older = "/audit?" + urlencode({**wanted, "before": entries[-1].id})
    data = {
        "entries": entries,
        "asked": asked,
        "filtered": bool(wanted),
        "abouts": get_args(About),
        "older": older,
        "wrong": wrong,
    }
    return View("audit.html", data, 200 if wrong is None else 422)


PAGES: Final = (Page("GET", "/audit", show, "Audit", nav="Audit"),)
