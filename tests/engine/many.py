"""Many jobs in a store at once, as their enqueue, run and end would have left them.

Written by a few statements of SQL: a million of them through the front door would take minutes.
"""

from contextlib import closing

from oncely import Oncely
from tests.engine.steps import Backdoor, engine_of

FIRST_MILLISECOND = 1_700_000_000_000
"""The jobs are this old, by their ids; they ended just now, so that no retention is over."""


def finish(app: Oncely, count: int) -> None:
    """Jobs of queue `past` that are over, each twentieth of them failed; every tenth with a key, a
    retry, a repeat and an effect."""
    id, now = _id(app), _now(app)
    tenth = f"{_numbers(app, count)} where n / 10 * 10 = n"
    with closing(Backdoor(app)) as door:
        door.sql("begin")
        door.sql(
            "insert into oncely.job (id, kind, queue, payload, priority, created_at, due_at,"
            f" idempotency_key, unique_key) select {id}, 'past', 'past', '{{\"n\": 1}}', 0, {now},"
            f" {now}, case when n / 10 * 10 = n then 'past:' || n end, 'past:' || n"
            f" from {_numbers(app, count)}"
        )
        door.sql(
            "insert into oncely.outcome (job_id, state, epoch, attempt, worker, started_at,"
            f" ended_at, result) select {id}, case when n / 20 * 20 = n then 'failed'"
            f" else 'completed' end, 2, 1, 'w', {now}, {now}, 'null' from {_numbers(app, count)}"
        )
        door.sql(
            "insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)"
            f" select 'past', 'past:' || n, {id}, '1:0', {now}, 1 = 0 from {tenth}"
        )
        door.sql(
            "insert into oncely.execution (job_id, epoch, outcome, attempt, worker, started_at,"
            f" ended_at, due_at, attempts) select {id}, 1, 'retried', 1, 'w', {now}, {now}, {now},"
            f" 1 from {tenth}"
        )
        door.sql(
            "insert into oncely.repeat (job_id, boundary, id, at, key)"
            f" select {id}, 'enqueue', 'r', {now}, 'idempotency' from {tenth}"
        )
        door.sql(
            "insert into oncely.effect (job_id, name, verb, state, fingerprint, epoch, begun_at)"
            f" select {id}, 'charge', 'step', 'done', '1', 1, {now} from {tenth}"
        )
        door.sql("commit")


def block(app: Oncely, count: int, *, group: str) -> None:
    """Jobs of a group that wait at the head of queue `default`, behind whatever limit it has."""
    id, now = _id(app, offset=-count), _now(app)
    with closing(Backdoor(app)) as door:
        door.sql("begin")
        door.sql(
            "insert into oncely.job (id, kind, queue, payload, priority, created_at, due_at,"
            f" group_key) select {id}, 'blocked', 'default', '1', 0, {now}, {now}, :group"
            f" from {_numbers(app, count)}",
            group=group,
        )
        door.sql(
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts)"
            f" select 'default', 0, :lane, {now}, {id}, 0 from {_numbers(app, count)}",
            lane=f"g:{group}",
        )
        door.sql("commit")


def tidy(app: Oncely) -> None:
    """What the database does by itself after such a change, later."""
    with closing(Backdoor(app)) as door:
        door.sql("vacuum analyze" if engine_of(app) == "postgres" else "analyze")


def _numbers(app: Oncely, count: int) -> str:
    if engine_of(app) == "postgres":
        return f"generate_series(1, {count}) n"
    return (
        f"(with recursive s(n) as (select 1 union all select n + 1 from s where n < {count})"
        " select n from s)"
    )


def _id(app: Oncely, offset: int = 0) -> str:
    number = f"{FIRST_MILLISECOND + offset} + n"
    if engine_of(app) == "postgres":
        digits = f"lpad(to_hex({number}), 12, '0')"
        return f"cast({digits} || '70008000000000000000' as uuid)"
    digits = f"printf('%012x', {number})"
    return f"substr({digits}, 1, 8) || '-' || substr({digits}, 9) || '-7000-8000-000000000000'"


def _now(app: Oncely) -> str:
    if engine_of(app) == "postgres":
        return "clock_timestamp()"
    return "(select now from oncely_clock)"
