"""Tokens: the keys of the HTTP API. A key is shown once, on the page that answers its making."""

from __future__ import annotations

from typing import Any, Final

from oncely.model.errors import RaceError, UsageError
from oncely.model.token import SCOPES, NewToken
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields

_LIVES: Final = {"": "never", "86400": "in a day", "2592000": "in 30 days", "31536000": "in a year"}
_OVERLAPS: Final = {"0": "at once", "3600": "in an hour", "86400": "in a day"}


async def show(ask: Ask) -> View:
    return await _page(ask)


async def create(ask: Ask) -> View:
    scopes: list[Any] = ask.form_list("scope")
    try:
        made = await ask.app.acreate_token(
            scopes,
            queues=(fields.text(ask.form, "queues") or "").replace(",", " ").split(),
            name=fields.text(ask.form, "name"),
            expires_in=fields.amount(ask.form, "expires_in", "The life"),
        )
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error))
    return await _page(ask, made=made)


async def rotate(ask: Ask) -> View:
    overlap = fields.amount(ask.form, "overlap", "The overlap")
    return await _page(
        ask, made=await ask.app.arotate_token(ask.path["id"], overlap=overlap or 0.0)
    )


async def revoke(ask: Ask) -> Go:
    await ask.app.arevoke_token(ask.path["id"])
    return Go("/tokens", f"Token {ask.path['id']} is revoked.")


async def _page(ask: Ask, *, made: NewToken | None = None, wrong: str | None = None) -> View:
    found = await ask.app.atokens()
    data = {
        "tokens": sorted(found, key=lambda token: (token.valid, token.created_at), reverse=True),
        "made": made,
        "wrong": wrong,
        "scopes": SCOPES,
        "ticked": ask.form_list("scope") if wrong else ["read"],
        "filled": ask.form if wrong else {},
        "lives": _LIVES,
        "overlaps": _OVERLAPS,
    }
    return View("tokens.html", data, 422 if wrong else 200)


PAGES: Final = (
    Page("GET", "/tokens", show, "Tokens", nav="Tokens"),
    Page("POST", "/tokens", create, "Tokens"),
    Page("POST", "/tokens/{id}/rotate", rotate, "Tokens"),
    Page("POST", "/tokens/{id}/revoke", revoke),
)
