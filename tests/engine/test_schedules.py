"""Schedules: each tick is one job, whoever looks, however often, and whatever was forgotten."""

import asyncio
import warnings
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncely import (
    Context,
    InvalidInput,
    Job,
    KeyConflict,
    KeyWarning,
    Oncely,
    ScheduleDeclared,
    ScheduleNotFound,
    SchemaError,
)
from oncely.flow.schedule import Look
from oncely.model.schedule import Cron
from oncely.store import schedules as store
from tests.engine.racers import look_at_schedules, race
from tests.engine.steps import counts, let_days_pass, prune, prune_keys, sql

FAR, OTHER = (
    f"{minute} {(datetime.now(UTC) + timedelta(hours=12)).hour} * * *" for minute in (30, 45)
)
"""Once a day, hours away from now, whenever the tests run."""
GONE_DAYS = 31 / 86_400


def look(app: Oncely) -> Look:
    return app._engine.run(lambda _: app._schedules.look(), "transaction")


def looks(app: Oncely) -> int:
    """Look until nothing is left to do; how many ticks were fired."""
    fired = 0
    for _ in range(3):
        fired += sum(tick.inserted for tick in look(app).fired)
    return fired


def declare(app: Oncely, **options: Any) -> Oncely:
    """The app with one schedule of which the store knows, and nothing due."""
    app.schedule("digest", **{"cron": FAR, **options})
    assert looks(app) == 0
    return app


def another(app: Oncely, **options: Any) -> Oncely:
    """Another deployment with the same store."""
    other = Oncely(app.url)
    other.schedule("digest", **{"cron": FAR, **options})
    return other


def keys(app: Oncely) -> list[str | None]:
    return [job.idempotency_key for job in reversed(app.jobs(limit=10_000))]


def last_ticks(cron: str, count: int, timezone: str = "UTC") -> list[str]:
    """The keys of the ticks of the last `count` days."""
    found = Cron(cron, timezone)
    now = datetime.now(UTC)
    ticks = []
    tick = found.after(now - timedelta(days=count))
    while tick <= now:
        ticks.append(f"digest@{tick.isoformat()}")
        tick = found.after(tick)
    return ticks


def test_a_new_schedule_has_no_tick_from_before_it(app: Oncely) -> None:
    declare(app, catch_up="all", timezone="Europe/Berlin")
    [schedule] = app.schedules()
    assert schedule.next_at == Cron(FAR, "Europe/Berlin").after(datetime.now(UTC))
    assert (schedule.last_at, schedule.paused, schedule.declared) == (None, False, True)
    assert (schedule.kind, schedule.queue, schedule.timezone) == (
        "digest",
        "default",
        "Europe/Berlin",
    )


def test_a_tick_is_one_job_with_what_was_declared(app: Oncely) -> None:
    app.schedule(
        "digest",
        cron=FAR,
        kind="mail.digest",
        payload={"to": "all"},
        priority=7,
        group_key="mail",
        max_attempts=3,
        timeout=9,
        tags=["daily"],
    )

    @app.job("mail.digest", queue="mail")  # its queue counts, though it is declared later
    async def digest(ctx: Context) -> None: ...

    assert looks(app) == 0
    let_days_pass(app, 1)
    assert looks(app) == 1
    [job] = app.jobs()
    assert (job.kind, job.queue, job.payload, job.priority) == (
        "mail.digest",
        "mail",
        {"to": "all"},
        7,
    )
    assert (job.group_key, job.max_attempts, job.timeout, job.tags) == ("mail", 3, 9, ["daily"])
    assert keys(app) == last_ticks(FAR, 1)
    [schedule] = app.schedules()
    assert schedule.last_at is not None
    assert schedule.next_at == schedule.last_at + timedelta(days=1)
    assert looks(app) == 0


@pytest.mark.parametrize(("catch_up", "expected"), [("latest", 1), ("all", 3), ("skip", 0)])
def test_what_becomes_of_missed_ticks(app: Oncely, catch_up: str, expected: int) -> None:
    declare(app, catch_up=catch_up)
    let_days_pass(app, 3)
    assert looks(app) == expected
    assert keys(app) == last_ticks(FAR, 3)[3 - expected :]
    assert looks(app) == 0


def test_a_tick_that_was_fired_does_not_come_again_when_its_key_is_forgotten(app: Oncely) -> None:
    declare(app)
    let_days_pass(app, 1)
    assert looks(app) == 1
    app.cancel(app.jobs()[0].job_id)
    assert prune(app, days=0, key_days=0) == 1
    prune_keys(app)
    assert counts(app)["idempotency_key"] == 0
    assert looks(app) == 0


def test_a_tick_that_was_recorded_as_open_is_recognised_by_its_key(app: Oncely) -> None:
    """As if the store had been restored, or somebody had turned its clock back."""
    declare(app)
    let_days_pass(app, 1)
    assert looks(app) == 1
    step = "86400000000" if app.url.startswith("sqlite") else "interval '1 day'"
    sql(app, f"update oncely.schedule set due_at = due_at - {step}")
    [tick] = look(app).fired
    assert not tick.inserted
    assert tick.job_id == app.jobs()[0].job_id
    assert len(app.jobs()) == 1


def test_a_key_that_somebody_else_used_does_not_stop_the_others(app: Oncely) -> None:
    declare(app, catch_up="all")
    let_days_pass(app, 3)
    taken = last_ticks(FAR, 3)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KeyWarning)  # a tick of yesterday reads like a clock
        app.enqueue("other", idempotency_key=taken)
    assert looks(app) == 2
    assert len(app.jobs(kind="digest")) == 2
    assert looks(app) == 0


def test_ticks_of_a_pause_are_not_made_up_for(app: Oncely) -> None:
    declare(app, catch_up="all")
    app.pause_schedule("digest")
    app.pause_schedule("digest")
    assert [(s.paused, s.next_at) for s in app.schedules()] == [(True, None)]
    let_days_pass(app, 3)
    assert looks(app) == 0
    app.resume_schedule("digest")
    app.resume_schedule("digest")
    assert looks(app) == 0
    [schedule] = app.schedules()
    assert schedule.next_at is not None
    assert schedule.next_at > datetime.now(UTC)
    let_days_pass(app, 1)
    assert looks(app) == 1


def test_resume_of_what_is_not_paused_loses_nothing(app: Oncely) -> None:
    declare(app)
    let_days_pass(app, 1)
    app.resume_schedule("digest")
    assert looks(app) == 1


def test_a_pause_outlives_a_deployment(app: Oncely) -> None:
    declare(app)
    app.pause_schedule("digest")
    let_days_pass(app, 1)
    with another(app, payload="new") as deployed:
        assert looks(deployed) == 0
        [schedule] = deployed.schedules()
        assert (schedule.payload, schedule.paused) == ("new", True)


def test_a_tick_is_left_out_while_its_predecessor_is_active(app: Oncely) -> None:
    declare(app, unique_key="digest", catch_up="all")
    let_days_pass(app, 3)
    assert looks(app) == 1
    assert keys(app) == last_ticks(FAR, 3)[:1]
    app.cancel(app.jobs()[0].job_id)
    let_days_pass(app, 5)
    assert looks(app) == 1  # three of the five ticks are known
    assert len(app.jobs()) == 2


def test_two_deployments_do_not_flap_and_the_one_that_stays_wins(app: Oncely) -> None:
    declare(app)
    with another(app, cron=OTHER, catch_up="all") as new:
        for _ in range(3):
            assert look(new).elsewhere == ["digest"]
            assert look(app).elsewhere == []
            assert app.schedules()[0].cron == FAR
        let_days_pass(new, 1)  # the old one is gone; what came due meanwhile is not the new one's
        assert looks(new) == 0
        assert new.schedules()[0].cron == OTHER
        for _ in range(3):
            assert look(app).elsewhere == ["digest"]  # an old worker that starts again late
            assert app.schedules()[0].cron == OTHER
        let_days_pass(new, GONE_DAYS)
        assert looks(app) == 0  # a rollback
        assert app.schedules()[0].cron == FAR
    assert app.jobs() == []


def test_a_tick_of_the_new_definition_that_comes_while_it_waits_is_not_lost(app: Oncely) -> None:
    declare(app)
    with another(app, cron="* * * * * *", catch_up="all") as new:
        [elsewhere] = look(new).elsewhere
        first = new._schedules._asked[elsewhere]
        let_days_pass(new, GONE_DAYS)
        new._schedules._asked[elsewhere] = first - timedelta(seconds=31)
        assert looks(new) >= 31


def test_a_new_payload_does_not_lose_the_tick_that_was_missed_in_between(app: Oncely) -> None:
    declare(app, payload="old")
    let_days_pass(app, 1)
    with another(app, payload="new") as new:
        assert looks(new) == 1
        assert [job.payload for job in new.jobs()] == ["new"]


def test_only_a_worker_that_declares_it_fires_it(app: Oncely) -> None:
    declare(app)
    let_days_pass(app, 1)
    with Oncely(app.url) as without:
        without.schedule("other", cron=FAR)
        assert looks(without) == 0
        assert {s.name: s.declared for s in without.schedules()} == {"digest": False, "other": True}
        without.remove_schedule("digest")
        assert [s.name for s in without.schedules()] == ["other"]
        with pytest.raises(ScheduleNotFound):
            without.remove_schedule("digest")
        without._engine.run(lambda _: store.remove("digest", again=True), "transaction")
    assert app.jobs() == []


def test_one_that_is_declared_by_a_running_worker_is_not_removed(app: Oncely) -> None:
    declare(app)
    with pytest.raises(ScheduleDeclared, match="take it out of the code first"):
        app.remove_schedule("digest")
    assert len(app.schedules()) == 1
    let_days_pass(app, GONE_DAYS)
    looks(app)  # it runs on, and says so
    with pytest.raises(ScheduleDeclared):
        app.remove_schedule("digest")


def test_each_fire_is_a_job_beside_the_ticks(app: Oncely) -> None:
    declare(app, payload=1, queue="lane")
    app.pause_schedule("digest")
    jobs = {app.fire_schedule("digest").job_id for _ in range(3)}
    assert len(jobs) == 3
    assert {(job.payload, job.queue) for job in app.jobs()} == {(1, "lane")}
    assert app.schedules()[0].last_at is None


def test_fires_with_one_key_are_one_job(app: Oncely) -> None:
    declare(app)
    first = app.fire_schedule("digest", idempotency_key="deploy:7")
    again = app.fire_schedule("digest", idempotency_key="deploy:7")
    assert (first.inserted, again.inserted, again.job_id) == (True, False, first.job_id)
    app.enqueue("other", idempotency_key="deploy:8")
    with pytest.raises(KeyConflict):
        app.fire_schedule("digest", idempotency_key="deploy:8")


def test_a_fire_that_is_sent_again_after_a_lost_answer_is_one_job(app: Oncely) -> None:
    declare(app)
    job_id = "01900000-0000-7000-8000-000000000001"
    first, again = (
        app._engine.run(
            lambda _, again=again: app._schedules.fire(  # type: ignore[misc]
                "digest", job_id, None, again=again
            ),
            "transaction",
        )
        for again in (False, True)
    )
    assert first == again
    assert first.inserted
    assert len(app.jobs()) == 1


def test_a_schedule_can_be_fired_before_any_worker_ran(app: Oncely) -> None:
    app.schedule("digest", cron=FAR)
    assert app.fire_schedule("digest").inserted


@pytest.mark.parametrize(
    "verb",
    [Oncely.pause_schedule, Oncely.resume_schedule, Oncely.fire_schedule, Oncely.remove_schedule],
)
def test_a_schedule_that_is_not_there(app: Oncely, verb: Callable[..., object]) -> None:
    with pytest.raises(ScheduleNotFound, match="'nope'"):
        verb(app, "nope")
    with pytest.raises(InvalidInput, match="the schedule's name"):
        verb(app, "no@pe")


def test_a_declaration_needs_no_store_with_tables(postgres_url: str) -> None:
    with Oncely(postgres_url) as app:
        app.schedule("digest", cron=FAR)
        with pytest.raises(SchemaError, match="oncely migrate"):
            app.schedules()
        app.migrate()
        assert [s.name for s in app.schedules()] == ["digest"]


BAD: list[tuple[dict[str, Any], str]] = [
    ({"name": "no@pe"}, "the schedule's name is"),
    ({"name": ""}, "the schedule's name is"),
    ({"cron": "0 25 * * *"}, "cron is '0 25"),
    ({"timezone": "Mars"}, "timezone is 'Mars'"),
    ({"catch_up": "some"}, "catch_up is 'some'"),
    ({"kind": "no kind"}, "kind is"),
    ({"payload": object()}, "payload"),
    ({"payload": "x" * 2_000_000}, "payload is 2,000,002 bytes"),
    ({"queue": "no queue"}, "queue is"),
    ({"priority": "high"}, "priority is"),
    ({"max_attempts": 21}, "max_attempts is"),
    ({"timeout": -1}, "timeout is"),
    ({"tags": "one"}, "tags is"),
]


@pytest.mark.parametrize(
    ("options", "message"), BAD, ids=[f"{n} {message}" for n, (_, message) in enumerate(BAD)]
)
def test_bad_input_is_refused_when_it_is_declared(
    shared_app: Oncely, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInput, match=message):
        shared_app.schedule(**{"name": "bad", "cron": FAR, **options})
    assert not shared_app._schedules


def test_the_same_again_is_nothing_new_and_another_form_is_refused(app: Oncely) -> None:
    values = {"a": [1]}
    for _ in range(2):
        app.schedule("digest", cron=f" {FAR}  ", payload={"a": [1]}, tags=iter(["x"]))  # type: ignore[arg-type]
    app.schedule("other", cron=FAR, payload=values)
    values["a"].append(2)
    assert [s.payload for s in app.schedules()] == [{"a": [1]}, {"a": [1]}]
    with pytest.raises(InvalidInput, match="declared already"):
        app.schedule("digest", cron="0 10 * * *")


def test_eight_processes_that_look_at_once_fire_each_tick_once(app: Oncely, url: str) -> None:
    declare(app, catch_up="all")
    let_days_pass(app, 20)
    fired = race(look_at_schedules, [(url, FAR)] * 8)
    assert sum(fired) == 20
    assert keys(app) == last_ticks(FAR, 20)


def test_a_drain_fires_no_ticks_and_declares_nothing(app: Oncely) -> None:
    ran = []

    @app.job("digest")
    async def digest(ctx: Context) -> None:
        ran.append(ctx.job_id)

    app.schedule("digest", cron="* * * * * *")
    assert app.drain() == 0
    assert sql(app, "select count(*) from oncely.schedule") == [(0,)]
    fired = app.fire_schedule("digest")
    assert app.drain() == 1
    assert ran == [fired.job_id]


@pytest.mark.anyio
async def test_a_worker_fires_and_runs_what_is_due(app: Oncely) -> None:
    done: list[str] = []
    enough = asyncio.Event()

    @app.job("digest")
    async def digest(ctx: Context) -> None:
        done.append(ctx.job_id)
        if len(done) == 2:
            enough.set()

    worker = app.worker(poll_seconds=60)
    running = asyncio.create_task(worker.arun())
    await asyncio.sleep(0)
    app.schedule("digest", cron="* * * * * *", catch_up="all")  # also one that comes late
    await enough.wait()
    worker.stop()
    await running
    ticks = [job.idempotency_key for job in _of_ids(app, done)]
    assert len(set(ticks)) == len(ticks) >= 2
    [schedule] = await app.aschedules()
    assert schedule.last_at is not None


def _of_ids(app: Oncely, ids: list[str]) -> list[Job]:
    jobs = [app.get(job_id) for job_id in ids]
    return [job for job in jobs if job is not None]


@pytest.mark.anyio
async def test_the_async_twins(app: Oncely) -> None:
    declare(app)
    await app.apause_schedule("digest")
    await app.aresume_schedule("digest")
    assert (await app.afire_schedule("digest")).inserted
    let_days_pass(app, GONE_DAYS)
    await app.aremove_schedule("digest")
    assert sql(app, "select count(*) from oncely.schedule") == [(0,)]
