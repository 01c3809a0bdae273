"""What a job's id should be: one UUID everywhere, or a number inside and a UUID outside.

    .venv/bin/python -m bench.id_probe

Both layouts of job and ready in one run: insert in batches of 1,000, then claim and delete in
batches of 500. The figures of docs/adr/0003 come from here.
"""

from __future__ import annotations

import time

import psycopg

from oncely.flow.identity import new_job_ids
from tests.cluster import Cluster

ROUNDS, JOBS, BATCH, CLAIM = 3, 100_000, 1_000, 500

LAYOUTS = {
    "uuid": (
        "create table {0}_job (id uuid primary key, payload json not null);"
        'create table {0}_ready (queue text collate "C", priority smallint, due_at timestamptz,'
        " id uuid, primary key (queue, priority, due_at, id))",
        "with i as (insert into {0}_job select u, '{{}}' from unnest(%s::uuid[]) u returning id)"
        " insert into {0}_ready select 'default', 0, clock_timestamp(), id from i",
    ),
    "number": (
        "create table {0}_job (id bigint generated always as identity primary key,"
        " public_id uuid not null unique, payload json not null);"
        'create table {0}_ready (queue text collate "C", priority smallint, due_at timestamptz,'
        " id bigint, primary key (queue, priority, due_at, id))",
        "with i as (insert into {0}_job (public_id, payload) select u, '{{}}'"
        " from unnest(%s::uuid[]) u returning id)"
        " insert into {0}_ready select 'default', 0, clock_timestamp(), id from i",
    ),
}
TAKE = (
    "with t as (delete from {0}_ready where ctid = any (array(select ctid from {0}_ready"
    " where queue = 'default' and priority = 0 order by due_at, id limit %s"
    " for update skip locked)) returning id)"
    " select j.id, j.payload from {0}_job j join t on t.id = j.id"
)


def wal(connection: psycopg.Connection) -> int:
    row = connection.execute(
        "select pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint"
    ).fetchone()
    assert row is not None
    return int(row[0])


def main() -> None:
    with Cluster() as cluster, psycopg.connect(cluster.url("postgres"), autocommit=True) as pg:
        for name, (tables, _) in LAYOUTS.items():
            pg.execute(tables.format(name))
        for number in range(ROUNDS):
            for name, (_, insert) in LAYOUTS.items():
                before, started = wal(pg), time.perf_counter()
                for _ in range(JOBS // BATCH):
                    pg.execute(insert.format(name), (new_job_ids(BATCH),))
                filled, between = time.perf_counter() - started, wal(pg)
                started = time.perf_counter()
                for _ in range(JOBS // CLAIM):
                    pg.execute(TAKE.format(name), (CLAIM,)).fetchall()
                taken = time.perf_counter() - started
                print(
                    f"round {number + 1}, {name:6}: insert {JOBS / filled:,.0f}/s, "
                    f"take {JOBS / taken:,.0f}/s, "
                    f"WAL {(between - before) / JOBS:.0f} + {(wal(pg) - between) / JOBS:.0f} B",
                    flush=True,
                )
                pg.execute(f"vacuum {name}_ready")


if __name__ == "__main__":
    main()
