"""In doubt: what nobody knows the end of, and the two answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from oncely.model.errors import InvalidInput, RaceError, UsageError
from oncely.store import listing
from oncely.store.listing import Wanted
from oncely.surface.acting import acting
from oncely.surface.base import is_job_id
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields

_LIMIT: Final = 20
_ANSWERS_LIMIT: Final = 200
_ANSWERS_SHOWN: Final = 20
_ACTS: Final = ("resolve", "resolve_request")


async def show(ask: Ask) -> View:
    return await _page(ask)


async def resolve(ask: Ask) -> View | Go:
    form = ask.form
    job_id, effect = form.get("job", ""), form.get("effect", "")
    try:
        happened = _happened(form)
        result = _json(form, "result", "The result")
        with acting(ask.viewer.name, note=fields.text(form, "note")):
            await ask.app.aresolve(job_id, effect, happened=happened, result=result)
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error), typed=form)
    return Go("/doubt", f"Effect {effect} {_told(happened)} {_next(happened)}")


async def resolve_request(ask: Ask) -> View | Go:
    form = ask.form
    key = form.get("key", "")
    try:
        happened = _happened(form)
        status = fields.whole(form, "status", "The status")
        body = _json(form, "body", "The body")
        with acting(ask.viewer.name, note=fields.text(form, "note")):
            await ask.app.aresolve_request(
                key, happened=happened, status=status, body=body, caller=form.get("caller", "")
            )
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error), typed=form)
    said = "repeats get that response." if happened else "the next repeat runs."
    return Go("/doubt", f"Request {key} {_told(happened)} From now on {said}")


async def _page(
    ask: Ask, *, wrong: str | None = None, typed: Mapping[str, str] | None = None
) -> View:
    before = ask.query.get("before")
    if before is not None and not is_job_id(before):
        before = None
    leaf = await ask.run(lambda _: listing.page(Wanted(state="in_doubt"), _LIMIT, before))
    entries = await ask.app.aaudit(limit=_ANSWERS_LIMIT)
    data = {
        "held": [
            (job, effect)
            for job in leaf.jobs
            for effect in job.effects
            if effect.state == "in_doubt"
        ],
        "requests": await ask.app.arequests_in_doubt(),
        "answers": [entry for entry in entries if entry.act in _ACTS][:_ANSWERS_SHOWN],
        "older": None if leaf.last is None else f"/doubt?before={quote(leaf.last)}",
        "wrong": wrong,
        "typed": typed or {},
    }
    return View("doubt.html", data, 200 if wrong is None else 422)


def _happened(form: Mapping[str, str]) -> bool:
    match form.get("happened"):
        case "yes":
            return True
        case "no":
            return False
        case _:
            raise InvalidInput("no answer was given; expected one of the two buttons")


def _told(happened: bool) -> str:
    return (
        "is on record as having happened." if happened else "is on record as not having happened."
    )


def _next(happened: bool) -> str:
    return "It is not done again." if happened else "It is done again when the job runs."


def _json(form: Mapping[str, str], name: str, label: str) -> Any:
    text = fields.text(form, name)
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f'{label} is not JSON ({error}): expected a value such as {{"id": 7}} or "text"'
        ) from None


PAGES: Final = (
    Page("GET", "/doubt", show, "In doubt", nav="In doubt"),
    Page("POST", "/doubt", resolve, "In doubt"),
    Page("POST", "/doubt/request", resolve_request, "In doubt"),
)
