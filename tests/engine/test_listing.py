"""Lists of jobs by filter: whole where they are followed to the end, and bounded page by page."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from oncely import Context, InvalidInput, Nack, NewJob, Oncely
from oncely.flow.replay import replay_step
from oncely.model.failure import Reason, WillDo, grouped, shape
from oncely.model.transition import STATES, State
from oncely.store import dead, listing
from oncely.store.listing import BriefLeaf, Wanted
from oncely.surface.acting import trail
from tests.engine.steps import bring, sql

FIVE = range(5)


@pytest.fixture(scope="module")
def crowd(shared_app: Oncely) -> dict[State, list[str]]:
    """Five jobs in every state, mixed, each with a group, a tag, and keys."""
    made: dict[State, list[str]] = {state: [] for state in STATES}
    for n in FIVE:
        for state in STATES:
            receipt = shared_app.enqueue(
                f"kind.{n % 2}",
                {"n": n},
                queue=f"{state}.{n}",
                tags=[f"tag.{n}", state],
                idempotency_key=f"call:{n}",
                unique_key=f"work:{state}:{n}",
            )
            bring(shared_app, receipt.job_id, state)
            made[state].insert(0, receipt.job_id)
            # As if it had come with it, which would have put it into a lane of its own.
            sql(
                shared_app,
                "update oncely.job set group_key = :group where queue = :queue",
                group=f"group.{n}",
                queue=f"{state}.{n}",
            )
    return made


def all_pages(app: Oncely, wanted: Wanted, limit: int) -> tuple[list[BriefLeaf], list[str]]:
    leaves: list[BriefLeaf] = []
    before: str | None = None
    while not leaves or before is not None:
        leaf = app._engine.run(
            lambda _, before=before: listing.brief_page(wanted, limit, before),  # type: ignore[misc]
            "read",
        )
        leaves.append(leaf)
        before = leaf.last
        assert len(leaves) < 200
    return leaves, [job.job_id for leaf in leaves for job in leaf.jobs]


@pytest.mark.parametrize("much", [False, True], ids=["few wait", "many wait"])
@pytest.mark.parametrize("state", [None, *STATES])
def test_pages_of_a_filter_have_each_job_once_and_look_at_so_many(
    shared_app: Oncely,
    crowd: dict[State, list[str]],
    state: State | None,
    much: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The limits are set so low that each of them is reached."""
    monkeypatch.setattr(listing, "LOOKED", 3)
    monkeypatch.setattr(listing, "LOOKED_JOINED", 3)
    monkeypatch.setattr(listing, "FEW", 0 if much else 1_000)
    known = sorted((id for one in STATES for id in crowd[one]), reverse=True)
    ids = known if state is None else crowd[state]
    jobs = {job.job_id: job for job in shared_app.jobs(limit=1_000)}
    for limit in (2, 100):
        assert all_pages(shared_app, Wanted(state=state), limit)[1] == ids
        for filters, keep in (
            ({"kind": "kind.1"}, lambda job: job.kind == "kind.1"),
            ({"queue": f"{state}.3"}, lambda job: job.queue == f"{state}.3"),
            ({"group_key": "group.2"}, lambda job: job.group_key == "group.2"),
            ({"tag": "tag.4"}, lambda job: "tag.4" in job.tags),
            ({"tag": "tag"}, lambda job: False),
            ({"kind": "kind.0", "tag": "tag.2"}, lambda job: "tag.2" in job.tags),
        ):
            wanted = Wanted(state=state, **filters)
            leaves, found = all_pages(shared_app, wanted, limit)
            assert found == [id for id in ids if keep(jobs[id])], filters
            assert all(len(leaf.jobs) <= min(limit, 3) or not much for leaf in leaves[:-1])
            assert [job.job_id for job in shared_app.jobs(state=state, **filters)] == found  # type: ignore[arg-type]


def test_a_rare_filter_says_how_far_it_looked(
    shared_app: Oncely, crowd: dict[State, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED", 10)
    everything = sorted((id for ids in crowd.values() for id in ids), reverse=True)
    leaf = shared_app._engine.run(lambda _: listing.page(Wanted(kind="none"), 5), "read")
    assert (leaf.jobs, leaf.last) == ([], everything[9])


def test_by_time(shared_app: Oncely, crowd: dict[State, list[str]]) -> None:
    everything = sorted((id for ids in crowd.values() for id in ids), reverse=True)
    middle = shared_app.get(everything[10])
    assert middle is not None
    at = middle.created_at
    before = shared_app.jobs(created_until=at, limit=1_000)
    after = shared_app.jobs(created_from=at, limit=1_000)
    assert [job.job_id for job in (*after, *before)] == everything
    # Ids have the publisher's clock, the jobs the store's: they may be some milliseconds apart.
    slack = timedelta(seconds=1)
    assert all(job.created_at < at + slack for job in before)
    assert all(job.created_at > at - slack for job in after)
    assert shared_app.jobs(created_from=datetime.now(UTC) + timedelta(days=1)) == []


def test_by_key(shared_app: Oncely, crowd: dict[State, list[str]]) -> None:
    """An idempotency key in any queue, also of jobs that ended; a unique key, held or once held."""

    def ids(key: str, **filters: Any) -> list[str]:
        return [job.job_id for job in shared_app.jobs(key=key, **filters)]

    assert ids("call:2") == sorted((crowd[state][-3] for state in STATES), reverse=True)
    assert ids("call:2", state="failed") == [crowd["failed"][-3]]
    assert ids("call:2", queue="pending.2") == [crowd["pending"][-3]]
    assert ids("call:2", kind="kind.1") == []
    for state in STATES:
        assert ids(f"work:{state}:1") == [crowd[state][-2]]
    assert ids("call") == []


def test_an_old_job_is_found_by_its_key_at_once(
    shared_app: Oncely, crowd: dict[State, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "LOOKED", 1)
    leaf = shared_app._engine.run(lambda _: listing.page(Wanted(key="call:0"), 50), "read")
    assert len(leaf.jobs) == len(STATES)
    _, found = all_pages(shared_app, Wanted(key="call:0"), 2)
    assert len(found) == len(set(found)) == len(STATES)


@pytest.mark.parametrize(
    "options",
    [{"state": "x"}, {"group_key": ""}, {"tag": "\0"}, {"key": 5}, {"created_from": "today"},
     {"created_until": datetime(2026, 1, 1)}],  # noqa: DTZ001
    ids=str,
)  # fmt: skip
def test_bad_filters_are_refused(shared_app: Oncely, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(options))):
        shared_app.jobs(**options)


def test_failed_jobs_are_grouped_by_kind_and_reason(app: Oncely) -> None:
    @app.job("charge")
    def charge(ctx: Context, n: int) -> None:
        ctx.step("look", str)
        raise Nack(
            f"card {n} of 'acme {n}' was declined" if n % 2 else "no answer", retryable=False
        )

    app.enqueue_many(NewJob("charge", n, queue="pay") for n in range(7))
    app.drain()
    failed = app._engine.run(lambda _: dead.newest_failed(), "read")
    no_answer, declined = grouped(failed)
    assert (no_answer.count, declined.count) == (4, 3)
    assert declined.reason.shape == "card … of … was declined"
    assert declined.queues == ["pay"]
    assert declined.oldest_at <= declined.newest_at
    assert no_answer.reason.id != declined.reason.id
    assert app._engine.run(lambda _: dead.will_do(no_answer.ids), "read") == [
        WillDo("look", "step", skipped=4)
    ]
    assert len(app._engine.run(lambda _: dead.newest_failed(2), "read")) == 2


def test_a_group_is_replayed_in_steps_and_counted_in_one_entry(app: Oncely) -> None:
    @app.job("charge")
    def charge(ctx: Context, n: int) -> None:
        raise Nack(f"declined {n}" if n % 2 else "no answer", retryable=False)

    jobs = app.enqueue_many(NewJob("charge", n) for n in range(9)).receipts
    app.drain()
    [no_answer, declined] = grouped(app._engine.run(lambda _: dead.newest_failed(), "read"))
    who, after, replayed, steps = trail(), None, 0, 0
    while steps == 0 or after is not None:
        step = replay_step(app._engine, declined.reason.id, after, trail=who, looked=2)
        after, replayed, steps = step.after, replayed + step.replayed, steps + 1
        app.drain()  # they fail again, and lie behind
    assert (replayed, steps) == (4, 5)
    for n, receipt in enumerate(jobs):
        job = app.get(receipt.job_id)
        assert job is not None
        assert len(job.executions) == (2 if n % 2 else 1)
    [entry] = app.audit()
    assert (entry.count, entry.details["kind"]) == (4, "charge")
    assert no_answer.reason == Reason("charge", "Nack", "no answer")


def test_what_differs_from_job_to_job_is_left_out_of_the_shape() -> None:
    assert shape("order 12 of 3.5 at 10:30") == "order … of … at …"
    assert shape("job 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42 at 0x7f and deadbeef12") == (
        "job … at … and …"
    )
    assert shape("\"a b\" is not 'c' or `d`\nmore") == "… is not … or …"
    assert shape("connection refused") == "connection refused"
    assert shape(None) == ""
