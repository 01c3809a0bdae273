"""One job: its story, what it carries, and what an operator can do with it."""

from __future__ import annotations

from typing import Final

from oncely.model.errors import JobNotFound, RaceError, UsageError
from oncely.model.job import Job
from oncely.model.words import details
from oncely.store.dead import will_do
from oncely.store.steer import CANCELLABLE
from oncely.surface.acting import acting
from oncely.surface.dashboard.ask import Ask, Go, Page, Refusal, View
from oncely.surface.dashboard.pages import fields
from oncely.surface.dashboard.timeline import drawn

_AUDIT_LIMIT: Final = 50


async def show(ask: Ask) -> View:
    job = await _job(ask)
    story = await ask.app.aexplain(job.job_id)
    redact = ask.site.redact
    events = [(event, redact.text(details(event))) for event in story.events]
    return View(
        "job.html",
        {
            "title": f"{job.kind} {job.job_id}",
            "job": job,
            "now": redact.text(story.now),
            "events": events,
            "timeline": drawn(story, redact.text),
            "audit": await ask.app.aaudit(about="job", name=job.job_id, limit=_AUDIT_LIMIT),
            "can_cancel": job.state in CANCELLABLE,
        },
    )


async def cancel(ask: Ask) -> Go:
    with acting(ask.viewer.name, note=fields.text(ask.form, "note")):
        await ask.app.acancel(ask.path["id"])
    return Go(f"/jobs/{ask.path['id']}", "The job is cancelled.")


async def preview(ask: Ask) -> View:
    """What a replay will do, before it is done."""
    job = await _job(ask)
    data = {
        "title": f"Replay {job.kind}",
        "job": job,
        "effects": await ask.run(lambda _: will_do([job.job_id])),
        "wrong": None,
    }
    return View("job_replay.html", data)


async def replay(ask: Ask) -> View | Go:
    job_id, fresh = ask.path["id"], "fresh" in ask.form
    try:
        with acting(ask.viewer.name, note=fields.text(ask.form, "note")):
            forgotten = await ask.app.areplay(job_id, fresh_ledger=fresh)
    except JobNotFound:
        raise
    except (UsageError, RaceError) as error:
        shown = await preview(ask)
        return View(shown.template, {**shown.data, "wrong": str(error)}, 422)
    told = f" It will do {', '.join(map(repr, forgotten))} again." if forgotten else ""
    return Go(f"/jobs/{job_id}", f"The job is back in line, with its attempts renewed.{told}")


async def _job(ask: Ask) -> Job:
    job = await ask.app.aget(ask.path["id"])
    if job is None:
        raise Refusal(
            404,
            "There is no such job",
            "Check the id. Jobs that ended are pruned after a while: completed and cancelled ones "
            "after 7 days, failed ones after 90, unless the workers' retention says otherwise.",
        )
    return job


PAGES: Final = (
    Page("GET", "/jobs/{id}", show, "Job"),
    Page("POST", "/jobs/{id}/cancel", cancel),
    Page("GET", "/jobs/{id}/replay", preview, "Replay"),
    Page("POST", "/jobs/{id}/replay", replay, "Replay"),
)
