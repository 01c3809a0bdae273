"""Signing in and out."""

from __future__ import annotations

import re
from typing import Final

from oncely.model.keys import KEY_LIMIT
from oncely.surface.dashboard.ask import NOBODY, Ask, Go, Page, View
from oncely.surface.dashboard.session import (
    NotSignedIn,
    device_of,
    set_cookie,
    set_device_cookie,
)

_PLACE: Final = re.compile(r"/(?!/)[!-~]{0,2000}")


async def show(ask: Ask) -> View | Go:
    if ask.viewer is not NOBODY:
        return Go("/")
    return _form(ask, ask.query.get("next", "/"))


async def sign_in(ask: Ask) -> View | Go:
    place = ask.form.get("next", "/")
    headers = []
    try:
        if "key" in ask.form:
            session = await ask.site.sessions.sign_in_with_key(ask.form["key"].strip())
        else:
            session, device = await ask.site.sessions.sign_in_with_password(
                ask.form.get("name", "").strip(),
                ask.form.get("password", ""),
                address=ask.address,
                device=device_of(ask.headers, secure=ask.secure),
            )
            headers.append(set_device_cookie(device, secure=ask.secure, root=ask.root))
    except NotSignedIn as error:
        return _form(ask, place, wrong=error)
    headers.append(set_cookie(session, secure=ask.secure, root=ask.root))
    return Go(_place(place), headers=headers)


async def sign_out(ask: Ask) -> Go:
    await ask.site.sessions.sign_out(ask.headers, secure=ask.secure)
    gone = set_cookie("", secure=ask.secure, root=ask.root)
    return Go("/sign-in", said="Signed out.", headers=[gone])


def _form(ask: Ask, place: str, wrong: NotSignedIn | None = None) -> View:
    data = {
        "next": _place(place),
        "name": ask.form.get("name", "")[:KEY_LIMIT],
        "by_key": "key" in ask.form,
        "wrong": None if wrong is None else wrong.said,
    }
    return View("sign_in.html", data, 200 if wrong is None else wrong.status)


def _place(asked: str) -> str:
    """A page of the dashboard, and of nothing else."""
    return asked if _PLACE.fullmatch(asked) and "\\" not in asked else "/"


PAGES: Final = (
    Page("GET", "/sign-in", show, "Sign in", public=True),
    Page("POST", "/sign-in", sign_in, "Sign in", public=True),
    Page("POST", "/sign-out", sign_out, role="reader"),
)
