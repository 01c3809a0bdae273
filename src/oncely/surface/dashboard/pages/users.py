"""Users: who signs in with a password."""

from __future__ import annotations

from typing import Any, Final

from oncely.model.errors import RaceError, UsageError
from oncely.model.user import ROLES
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields


async def show(ask: Ask) -> View:
    return await _page(ask)


async def create(ask: Ask) -> View | Go:
    name, role = ask.form.get("name", "").strip(), _role(ask)
    try:
        await ask.app.acreate_user(name, ask.form.get("password", ""), role=role)
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error))
    return Go("/users", f"User {name} can sign in now.")


async def change(ask: Ask) -> View | Go:
    name, password = ask.form.get("name", ""), fields.text(ask.form, "password")
    try:
        await ask.app.aset_user(name, role=_role(ask), password=password)
    except (UsageError, RaceError) as error:
        return await _page(ask, wrong=str(error))
    ended = "" if password is None else " Its sessions are over."
    return Go("/users", f"User {name} is changed.{ended}")


async def remove(ask: Ask) -> Go:
    await ask.app.aremove_user(ask.form.get("name", ""))
    return Go("/users", f"User {ask.form['name']} is removed, and its sessions are over.")


def _role(ask: Ask) -> Any:
    return ask.form.get("role", "reader")


async def _page(ask: Ask, *, wrong: str | None = None) -> View:
    filled = {"name": ask.form.get("name", ""), "role": _role(ask)}
    data = {"users": await ask.app.ausers(), "roles": ROLES, "wrong": wrong, "filled": filled}
    return View("users.html", data, 422 if wrong else 200)


PAGES: Final = (
    Page("GET", "/users", show, "Users", nav="Users"),
    Page("POST", "/users", create, "Users"),
    Page("POST", "/users/set", change, "Users"),
    Page("POST", "/users/remove", remove),
)
