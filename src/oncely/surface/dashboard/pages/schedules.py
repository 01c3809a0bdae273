"""Schedules: when their jobs come, and fire now."""

from __future__ import annotations

import secrets
from typing import Final

from oncely.surface.dashboard.ask import Ask, Go, Page, View


async def show(ask: Ask) -> View:
    data = {"schedules": await ask.app.aschedules(), "nonce": secrets.token_hex(8)}
    return View("schedules.html", data)


async def pause(ask: Ask) -> Go:
    await ask.app.apause_schedule(ask.form.get("name", ""))
    return Go("/schedules", f"Schedule {ask.form['name']} is paused.")


async def resume(ask: Ask) -> Go:
    await ask.app.aresume_schedule(ask.form.get("name", ""))
    return Go("/schedules", f"Schedule {ask.form['name']} is resumed, from its next tick on.")


async def fire(ask: Ask) -> Go:
    """The page carries a number of its own, so that a form that is sent twice fires once."""
    name, nonce = ask.form.get("name", ""), ask.form.get("nonce")
    key = f"{name}@dashboard:{nonce}" if nonce else None
    receipt = await ask.app.afire_schedule(name, idempotency_key=key)
    return Go(f"/jobs/{receipt.job_id}", f"Schedule {ask.form['name']} fired this job.")


async def remove(ask: Ask) -> Go:
    await ask.app.aremove_schedule(ask.form.get("name", ""))
    return Go("/schedules", f"Schedule {ask.form['name']} is removed.")


PAGES: Final = (
    Page("GET", "/schedules", show, "Schedules", nav="Schedules"),
    Page("POST", "/schedules/pause", pause),
    Page("POST", "/schedules/resume", resume),
    Page("POST", "/schedules/fire", fire),
    Page("POST", "/schedules/remove", remove),
)
