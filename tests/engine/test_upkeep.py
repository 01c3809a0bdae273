"""Forgetting: in small steps, only what has ended, only what is old enough."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from oncely import InvalidInput, NewJob, Oncely
from oncely.model.transition import ACTIVE, ENDED, STATES, State
from oncely.store import upkeep
from oncely.store.deliver import Settlement
from oncely.store.upkeep import Pruned
from tests.engine.steps import bring, claim, counts, found, let_days_pass, prune, settle


def step(app: Oncely, after: str, limit: int, **retention: float) -> Pruned:
    return app._engine.run(
        lambda _: upkeep.prune_jobs(
            retention,  # type: ignore[arg-type]
            key_retention_days=30,
            after=after,
            limit=limit,
        ),
        "transaction",
    )


def complete(app: Oncely, count: int) -> list[str]:
    app.enqueue_many(NewJob("k", n) for n in range(count))
    claimed = claim(app, limit=count)
    ids = [item.job_id for item in claimed]
    settle(app, claimed[0].fence, [Settlement(id, 1, state="completed") for id in ids])
    return ids


def test_a_step_looks_at_no_more_than_asked_and_says_where_to_go_on(app: Oncely) -> None:
    ids = complete(app, 5)
    first = step(app, upkeep.BEGINNING, 2, completed=0)
    assert first == Pruned(2, ids[1])
    second = step(app, ids[1], 2, completed=0)
    assert second == Pruned(2, ids[3])
    assert step(app, ids[3], 2, completed=0) == Pruned(1, None)
    assert step(app, upkeep.BEGINNING, 2, completed=0) == Pruned(0, None)
    assert sum(counts(app).values()) == 0


def test_a_step_that_ends_exactly_at_the_last_one_comes_to_an_end(app: Oncely) -> None:
    ids = complete(app, 4)
    assert step(app, upkeep.BEGINNING, 4, completed=0) == Pruned(4, ids[3])
    assert step(app, ids[3], 4, completed=0) == Pruned(0, None)


def test_steps_go_past_what_is_kept(app: Oncely) -> None:
    kept = complete(app, 150)
    let_days_pass(app, 2)
    for job_id in kept[:3]:
        assert found(app, job_id).state == "completed"
    app.enqueue("k", "fails", queue="other")
    bring(app, app.jobs(queue="other")[0].job_id, "failed")
    assert prune(app, ["failed"]) == 1
    assert counts(app)["job"] == 150
    assert prune(app, ["completed"], days=3) == 0
    assert prune(app, ["completed"], days=1) == 150


@pytest.mark.parametrize("state", STATES)
def test_a_state_that_is_not_named_is_kept_for_ever(app: Oncely, state: State) -> None:
    job_id = app.enqueue("k", idempotency_key="i", unique_key="u").job_id
    bring(app, job_id, state)
    before = counts(app)
    let_days_pass(app, 4000)
    others = [other for other in ENDED if other != state]
    assert prune(app, others) == 0
    assert counts(app) == before


@pytest.mark.parametrize("state", ACTIVE)
def test_an_active_job_is_never_pruned(app: Oncely, state: State) -> None:
    """Least of all one in doubt: it would leave its unique key behind, held by nobody."""
    job_id = app.enqueue("k", idempotency_key="i", unique_key="u").job_id
    bring(app, job_id, state)
    let_days_pass(app, 1)
    before = counts(app)
    with pytest.raises(InvalidInput, match=f"{state}.*only jobs that have ended"):
        prune(app, [state])
    assert counts(app) == before
    assert app.enqueue("k", unique_key="u").job_id == job_id


def test_what_a_pruned_job_leaves_behind_is_its_key(app: Oncely) -> None:
    job_id = app.enqueue("k", idempotency_key="i", unique_key="u").job_id
    bring(app, job_id, "scheduled")
    let_days_pass(app, 1)
    bring(app, job_id, "failed")
    app.replay(job_id)
    bring(app, job_id, "completed")
    assert counts(app)["execution"] == 2
    assert prune(app) == 1
    left = {table: count for table, count in counts(app).items() if count}
    assert left == {"idempotency_key": 1}


def test_many_workers_of_one_process_tidy_without_getting_in_each_other_s_way(
    postgres_url: str,
) -> None:
    with Oncely(postgres_url) as first, Oncely(postgres_url) as app:
        first.migrate()
        first._engine.tidy()  # so that the others are not in the lead, and give up
        with ThreadPoolExecutor(8) as threads:
            found = list(threads.map(lambda _: app._engine.tidy(), range(200)))
        assert None not in found
