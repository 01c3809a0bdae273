"""The audit trail: each change by an operator has an entry, with who, what, when and why."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncely import (
    AuditEntry,
    Context,
    InvalidInput,
    JobNotFound,
    NewJob,
    Oncely,
    WrongState,
    acting,
)
from oncely.model.push import Push
from oncely.store import audit, steer
from oncely.store.plan import Plan
from oncely.store.requests import Mark, begin
from oncely.store.trail import Trail
from oncely.store.upkeep import ids_made_by
from oncely.surface.acting import trail, user
from tests.engine.steps import bring, claim_one, end, engine_of, sql
from tests.waiting import PATIENCE_SECONDS

SECRET = "whsec_" + "c2VjcmV0" * 4


def newest(app: Oncely) -> AuditEntry:
    return app.audit(limit=1)[0]


def _request_in_doubt(app: Oncely) -> None:
    mark = Mark("acme", "order-1", 7, 0, 10**12)
    app._engine.run(lambda _: begin(mark, "1:0", run_unknown=False, again=False), "transaction")


def _a_token(app: Oncely) -> str:
    return app.create_token(["read"]).token.token_id


CHANGES: dict[str, Callable[[Oncely], tuple[str, str, dict[str, Any] | None]]] = {}


def change(make: Callable[[Oncely], tuple[str, str, dict[str, Any] | None]]) -> None:
    CHANGES[make.__name__.removeprefix("by_")] = make


@change
def by_cancel(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    job_id = app.enqueue("k", queue="cancel").job_id
    app.cancel(job_id)
    return "job", job_id, None


@change
def by_replay(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    job_id = app.enqueue("k", queue="replay").job_id
    bring(app, job_id, "failed")
    app.replay(job_id)
    return "job", job_id, None


@change
def by_resolve(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    job_id = app.enqueue("k", queue="resolve").job_id
    bring(app, job_id, "in_doubt")
    sql(
        app,
        "insert into oncely.effect (job_id, name, verb, state, fingerprint, epoch, begun_at) "
        "select id, 'charge', 'fence', 'in_doubt', '1', 1, created_at from oncely.job "
        "where queue = 'resolve'",
    )
    app.resolve(job_id, "charge", happened=True, result={"password": "x"})
    return "job", job_id, {"effect": "charge", "happened": True}


@change
def by_resolve_request(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    _request_in_doubt(app)
    app.resolve_request("order-1", happened=True, status=201, body={"password": "x"})
    return "request", "order-1", {"caller": "acme", "happened": True, "status": 201}


@change
def by_pause(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.pause("payments")
    return "queue", "payments", None


@change
def by_resume(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.resume(group="acme")
    return "group", "acme", None


@change
def by_set_queue(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.set_queue(
        "payments", concurrency=3, rate=None, push=Push("https://93.184.216.34/jobs", SECRET)
    )
    told = {"url": "https://93.184.216.34/jobs", "mode": "sync", "secret": "set"}
    return "queue", "payments", {"concurrency": 3, "rate": None, "push": told}


@change
def by_set_group(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.set_group("acme", rate=(5, 60))
    return "group", "acme", {"rate": [5, 60.0]}


def _scheduled(app: Oncely, verb: str) -> tuple[str, str, dict[str, Any] | None]:
    app.schedule("digest", cron="0 9 * * *")
    done = getattr(app, verb)("digest")
    return "schedule", "digest", None if done is None else {"job_id": done.job_id}


@change
def by_pause_schedule(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    return _scheduled(app, "pause_schedule")


@change
def by_resume_schedule(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    return _scheduled(app, "resume_schedule")


@change
def by_fire_schedule(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    return _scheduled(app, "fire_schedule")


@change
def by_remove_schedule(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.schedule("digest", cron="0 9 * * *")
    assert app.schedules()
    past = "to_timestamp(0)" if engine_of(app) == "postgres" else "0"
    sql(app, f"update oncely.schedule set seen_at = {past}")
    app.remove_schedule("digest")
    return "schedule", "digest", None


@change
def by_stop_drills(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.stop_drills()
    return "drills", "drills", None


@change
def by_start_drills(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    app.stop_drills()
    app.start_drills()
    return "drills", "drills", None


@change
def by_create_token(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    token = app.create_token(["read"], queues=["payments"], name="ops").token
    return "token", token.token_id, {"name": "ops", "scopes": ["read"], "queues": ["payments"]}


@change
def by_rotate_token(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    old = _a_token(app)
    return "token", old, {"name": None, "new": app.rotate_token(old).token.token_id}


@change
def by_revoke_token(app: Oncely) -> tuple[str, str, dict[str, Any] | None]:
    token_id = _a_token(app)
    app.revoke_token(token_id)
    return "token", token_id, None


@pytest.mark.parametrize("act", CHANGES)
def test_a_change_is_told_with_who_and_why(shared_app: Oncely, act: str) -> None:
    with acting("ann@example.com", note="ticket 7"):
        about, name, details = CHANGES[act](shared_app)
    entry = newest(shared_app)
    assert (entry.act, entry.about, entry.name, entry.details) == (act, about, name, details)
    assert (entry.by, entry.note, entry.count) == ("ann@example.com", "ticket 7", None)
    assert abs(datetime.now(UTC) - entry.at) < timedelta(days=1)
    assert shared_app.audit(about=entry.about, name=name, by="ann@example.com") == [
        each for each in shared_app.audit() if each.name == name
    ]
    # Neither a secret nor what an effect returned is in it.
    kept = str(sql(shared_app, "select * from oncely.audit"))
    assert SECRET not in kept
    assert "password" not in kept


def test_a_change_that_is_refused_or_changes_nothing_is_not_told(app: Oncely) -> None:
    job_id = app.enqueue("k").job_id
    for verb, wrong in (("replay", WrongState), ("cancel", JobNotFound)):
        with pytest.raises(wrong):
            getattr(app, verb)(job_id if verb == "replay" else job_id.replace("7", "8"))
    assert app.audit() == []
    app.cancel(job_id)
    app.cancel(job_id)
    assert [entry.act for entry in app.audit()] == ["cancel"]
    assert newest(app).by == user()


def test_what_is_undone_is_not_told(app: Oncely) -> None:
    """The entry is in the transaction of the change, and not beside it."""
    job_id = app.enqueue("k").job_id

    def plan(_: bool) -> Plan[None]:
        yield from steer.cancel(job_id, trail=trail())
        raise RuntimeError

    with pytest.raises(RuntimeError):
        app._engine.run(plan, "transaction")
    assert app.audit() == []
    job = app.get(job_id)
    assert job is not None
    assert job.state == "pending"


def test_many_replayed_are_one_entry_that_counts_them(app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(7))
    for _ in range(7):
        assert end(app, claim_one(app), "failed")
    assert app.replay_all(dry_run=True) == 7
    assert app.audit() == []
    assert app.replay_all(kind="k", limit=5) == 5
    [entry] = app.audit()
    assert (entry.act, entry.about, entry.count) == ("replay_all", "dlq", 5)
    assert entry.details == {"kind": "k", "limit": 5}
    assert app.replay_all(kind="other") == 0
    assert len(app.audit()) == 1


def test_the_async_twins_know_who_acts(app: Oncely) -> None:
    async def one(name: str) -> None:
        with acting(name):
            await app.apause(name)

    async def both() -> None:
        await asyncio.gather(one("ann"), one("bob"))

    asyncio.run(both())
    assert sorted((entry.by, entry.name) for entry in app.audit()) == [
        ("ann", "ann"),
        ("bob", "bob"),
    ]


def test_pages_are_by_cursor_and_old_entries_go(app: Oncely) -> None:
    for n in range(5):
        app.pause(f"queue-{n}")
    first = app.audit(limit=2)
    rest = app.audit(limit=10, before=first[-1].id)
    assert [entry.name for entry in (*first, *rest)] == [f"queue-{n}" for n in (4, 3, 2, 1, 0)]
    assert app.audit(about="token") == []

    def prune(before: str, limit: int) -> int:
        return app._engine.run(lambda _: audit.prune(before, limit), "transaction")

    assert prune(ids_made_by(0), 10) == 0
    assert prune(rest[0].id, 1) == 1
    assert prune(rest[0].id, 10) == 1
    assert [entry.name for entry in app.audit()] == ["queue-4", "queue-3", "queue-2"]


def test_workers_and_handlers_write_none(app: Oncely) -> None:
    @app.job("k")
    def handle(ctx: Context) -> None: ...

    app.enqueue("k")
    assert app.drain() == 1
    assert app.audit() == []


@pytest.mark.parametrize(
    "options",
    [{"limit": 0}, {"limit": True}, {"before": "x"}, {"about": "jobs"}, {"name": "\0"}, {"by": ""}],
    ids=str,
)
def test_bad_input_is_refused(shared_app: Oncely, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        shared_app.audit(**options)
    with pytest.raises(InvalidInput), acting("ann", note=5):  # type: ignore[arg-type]
        pass


def test_nobody_adds_to_somebody_else_s_entry(app: Oncely) -> None:
    first, second = (app.enqueue("k", queue=name).job_id for name in ("a", "b"))
    for job_id in (first, second):
        bring(app, job_id, "failed")
    with acting("ann"):
        hers = trail()
    for job_id, who in ((first, hers), (second, Trail(hers.id, "bob"))):
        app._engine.run(
            lambda _, job_id=job_id, who=who: steer.replay(job_id, trail=who, one_of={}),  # type: ignore[misc]
            "transaction",
        )
    assert [(entry.by, entry.count) for entry in app.audit()] == [("ann", 1)]


@pytest.mark.anyio
async def test_workers_forget_entries_of_last_year(
    app: Oncely, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oncely.worker.upkeep._FORGET_FIRST_SECONDS", 0.1)
    app.pause("old")
    old = ids_made_by(time.time() - 366 * 86_400)
    await asyncio.to_thread(_age, app, old)
    app.pause("new")
    worker = asyncio.create_task(app.worker(queues=["none"]).arun())
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(await app.aaudit()) > 1:  # noqa: ASYNC110 - the worker tells nobody
            await asyncio.sleep(0.02)
    worker.cancel()
    await asyncio.wait([worker])
    assert [entry.name for entry in app.audit()] == ["new"]


def _age(app: Oncely, id: str) -> None:
    cast = f"cast('{id}' as uuid)" if engine_of(app) == "postgres" else f"'{id}'"
    sql(app, f"update oncely.audit set id = {cast}")
