"""Dead letters: why jobs failed, and their replay, with a look at what it will do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from oncely.flow.aside import aside
from oncely.flow.replay import Step, replay_step, replayed
from oncely.model.errors import InvalidInput
from oncely.model.failure import FailureGroup, grouped
from oncely.store import limits, listing
from oncely.store.dead import newest_failed, will_do
from oncely.store.trail import Trail
from oncely.surface.acting import acting, trail
from oncely.surface.base import is_job_id
from oncely.surface.dashboard.ask import Ask, Go, Page, View
from oncely.surface.dashboard.pages import fields

_SHOWN: Final = 50
_CHOSEN_LIMIT: Final = 100
_PREVIEW_LIMIT: Final = 1_000


async def show(ask: Ask) -> View:
    groups = await _groups(ask)
    looked = sum(group.count for group in groups)
    failed = (await ask.run(lambda _: limits.resting())).get("failed", 0)
    wanted = ask.query.get("group")
    chosen = next((group for group in groups if group.reason.id == wanted), None)
    ids = [] if chosen is None else chosen.ids[:_SHOWN]
    data = {
        "groups": groups,
        "looked": looked,
        "failed": failed,
        "chosen": chosen,
        "gone": wanted is not None and chosen is None,
        "jobs": await ask.run(lambda _: listing.briefs(ids)),
    }
    return View("dead.html", data)


async def preview(ask: Ask) -> View | Go:
    """What the ledger will skip and what will run again."""
    ids = [job_id for job_id in ask.query_list("job") if is_job_id(job_id)][:_CHOSEN_LIMIT]
    group: FailureGroup | None = None
    if not ids:
        wanted = ask.query.get("group")
        group = next((each for each in await _groups(ask) if each.reason.id == wanted), None)
        if group is None:
            return Go("/dead", "Choose a group, or jobs of one, to replay.", "bad")
    looked_at = ids or (group.ids[:_PREVIEW_LIMIT] if group else [])
    data = {
        "ids": ids,
        "group": group,
        "looked_at": len(looked_at),
        "effects": await ask.run(lambda _: will_do(looked_at)),
    }
    return View("dead_replay.html", data)


async def replay(ask: Ask) -> View | Go:
    note = fields.text(ask.form, "note")
    ids = ask.form_list("job")
    if ids:
        return await _replay_chosen(ask, ids, note)
    return await _replay_group(ask, note)


async def _replay_chosen(ask: Ask, ids: Sequence[str], note: str | None) -> Go:
    if len(ids) > _CHOSEN_LIMIT or not all(map(is_job_id, ids)):
        raise InvalidInput(f"expected the ids of at most {_CHOSEN_LIMIT} jobs")
    with acting(ask.viewer.name, note=note):
        who = trail()
    engine = ask.app._engine
    done = [
        await aside(ask.app._executor, replayed, engine, job_id, who, {"jobs": list(ids)})
        for job_id in ids
    ]
    return Go("/dead", _said(sum(done), len(done) - sum(done)))


async def _replay_group(ask: Ask, note: str | None) -> View:
    """A step of it. The page that comes back asks for the next one, until there is none."""
    form = ask.form
    group = form.get("group", "")
    after, entry = form.get("after") or None, form.get("entry") or None
    if not all(place is None or is_job_id(place) for place in (after, entry)):
        raise InvalidInput("this replay cannot go on from there: begin it again")
    with acting(ask.viewer.name, note=note):
        who = trail()
    if entry is not None:
        who = Trail(entry, who.by, who.note)
    step: Step = await aside(
        ask.app._executor, lambda: replay_step(ask.app._engine, group, after, trail=who)
    )
    count = (fields.whole(form, "replayed", "replayed") or 0) + step.replayed
    left = (fields.whole(form, "left", "left") or 0) + step.left
    data = {
        "group": group,
        "named": form.get("named", ""),
        "after": step.after,
        "entry": who.id,
        "replayed": count,
        "left": left,
        "total": fields.whole(form, "total", "total") or 0,
        "note": note or "",
        "done": _said(count, left) if step.after is None else None,
    }
    return View("dead_progress.html", data)


async def _groups(ask: Ask) -> list[FailureGroup]:
    return grouped(await ask.run(lambda _: newest_failed()))


def _said(count: int, left: int) -> str:
    jobs = "1 job is" if count == 1 else f"{count:,} jobs are"
    stay = "" if left == 0 else f" {left:,} stayed: no longer failed, or their unique key is taken."
    return f"{jobs} back in line.{stay}"


PAGES: Final = (
    Page("GET", "/dead", show, "Dead letters", nav="Dead letters"),
    Page("GET", "/dead/replay", preview, "Replay"),
    Page("POST", "/dead/replay", replay, "Replay"),
)
