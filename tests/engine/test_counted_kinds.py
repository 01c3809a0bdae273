"""A bound on the kinds that are counted by name: those beyond it are counted in one row."""

from concurrent.futures import ThreadPoolExecutor

from oncely import Counter, NewJob, Oncely
from oncely.model.counter import KINDS_LIMIT, OTHER_KINDS
from oncely.store import counters, traffic
from oncely.store.traffic import Sample
from tests.engine.steps import sql
from tests.engine.test_counters import fold, totals

OVER = 50
BEYOND = [f"beyond.{n}" for n in range(OVER)]


def enqueue(app: Oncely, kinds: list[str]) -> None:
    app.enqueue_many([NewJob(kind) for kind in kinds])


def fill(app: Oncely) -> None:
    """All places are taken, by kinds whose names come after the others."""
    enqueue(app, [f"known.{n}" for n in range(KINDS_LIMIT)])
    while fold(app):
        pass


def kinds_in(app: Oncely, table: str) -> int:
    [(found,)] = sql(app, f"select count(distinct kind) from oncely.{table}")
    return int(found)


def test_kinds_beyond_the_bound_are_counted_in_one_row(app: Oncely) -> None:
    fill(app)
    enqueue(app, [*BEYOND, "known.7"])
    for _ in range(2):  # as deltas, then folded
        found = totals(app)
        assert len(found) == KINDS_LIMIT + 1
        assert found["enqueued", OTHER_KINDS] == OVER
        assert (found["enqueued", "known.7"], found["enqueued", "known.8"]) == (2, 1)
        shown = app.traffic("day")
        assert len(shown.kinds) == KINDS_LIMIT + 1
        assert sum(shown.values("enqueued", kind=OTHER_KINDS)) == OVER
        assert sum(shown.values("enqueued")) == KINDS_LIMIT + OVER + 1
        fold(app)
    assert kinds_in(app, "counter") == kinds_in(app, "traffic") == KINDS_LIMIT + 1
    assert len(app.key_health()) == KINDS_LIMIT + 1
    assert len(app.jobs(kind=BEYOND[0])) == 1, "a job keeps its own kind"


def test_without_a_worker_that_folds_the_bound_holds_too(app: Oncely) -> None:
    enqueue(app, [f"known.{n}" for n in range(KINDS_LIMIT)])
    before = totals(app)
    enqueue(app, BEYOND)
    found = totals(app)
    assert {kind: n for kind, n in found.items() if kind in before} == before
    assert found["enqueued", OTHER_KINDS] == OVER
    assert len(app.traffic().kinds) == KINDS_LIMIT + 1


def test_however_many_fold_at_once_no_kind_too_many_is_kept(app: Oncely) -> None:
    enqueue(app, [f"known.{n}" for n in range(KINDS_LIMIT - 10)] + BEYOND)
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(lambda _: fold(app, limit=300), range(4))) == KINDS_LIMIT - 10 + OVER
    assert kinds_in(app, "counter") == KINDS_LIMIT + 1
    found = totals(app)
    assert found["enqueued", OTHER_KINDS] == OVER - 10
    assert sum(found.values()) == KINDS_LIMIT - 10 + OVER


def test_times_of_kinds_beyond_the_bound_are_added_up(app: Oncely) -> None:
    fill(app)
    samples = [Sample("ran", "q", kind, {3: 2}) for kind in [*BEYOND, "known.7"]]
    for _ in range(2):
        app._engine.run(lambda _: traffic.add(samples), "transaction")
    assert kinds_in(app, "latency") == 2
    shown = app.traffic()
    for kind, n in ((OTHER_KINDS, OVER), ("known.7", 1)):
        took = shown.latency("ran", kind=kind)
        assert took is not None
        assert took.count == 4 * n


def test_a_kind_that_only_workers_report_takes_a_place_too(app: Oncely) -> None:
    samples = [Sample("ran", "q", f"k.{n}", {3: 1}) for n in range(KINDS_LIMIT + OVER)]
    app._engine.run(lambda _: traffic.add(samples), "transaction")
    assert kinds_in(app, "latency") == KINDS_LIMIT + 1


def test_a_store_that_has_counted_more_kinds_shows_them_in_one_row(app: Oncely) -> None:
    """As left by a version without the bound."""
    numbers = ", ".join(f"('enqueued', 'k.{n}', '', {n + 1})" for n in range(KINDS_LIMIT + OVER))
    sql(app, f"insert into oncely.counter (name, kind, label, total) values {numbers}")
    sql(app, "drop table oncely.counted_kind")
    sql(app, "drop table oncely.sign_in_guess")
    sql(app, "drop table if exists oncely.locked_lease")
    sql(app, "delete from oncely.migration where number >= 19")
    app.migrate()
    found: list[Counter] = app._engine.run(lambda _: counters.counters(), "read")
    assert len(found) == KINDS_LIMIT + 1
    assert sum(each.value for each in found) == sum(range(KINDS_LIMIT + OVER + 1))
    [other] = [each.value for each in found if each.labels["kind"] == OTHER_KINDS]
    assert other == sum(range(OVER + 1)), "those that were counted least"
