"""The plans of the statements cannot go wrong: no statement reads a table that grows with time.

A million finished jobs must not be read in order to look at one, to claim one or to enqueue one.
Here is every statement, by what EXPLAIN says of it; how much the hot ones really do in a full store
is counted in test_plans_at_size.py.
"""

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from oncely import NewJob, Oncely
from oncely.store import claim as claims
from oncely.store import deliver
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sql import Library
from tests.cluster import Cluster

JOBS = 20_000
ID = "00000000-0000-7000-8000-000000000000"
DOC = json.dumps(
    [
        {
            "id": f"00000000-0000-7000-8000-{n:012}",
            "kind": "plan",
            "queue": "default",
            "payload": "{}",
            "priority": 0,
            "delay_us": 0,
            "idempotency_key": f"key:{n}",
            "fingerprint": "1:0",
            "unique_key": f"unique:{n}",
            "holder_id": ID,
            "name": f"schedule:{n}",
            "cron": "* * * * *",
            "timezone": "UTC",
            "catch_up": "all",
            "job": "{}",
            "definition": "x",
            "due_us": 0,
            "paused": False,
            "state": "completed",
            "attempt": 1,
            "attempts": 1,
            "job_id": f"00000000-0000-7000-8000-{n:012}",
            "boundary": "effect",
            "label": "",
            "n": 1,
        }
        for n in range(50)
    ]
)
PARAMS: dict[str, Any] = {
    "doc": DOC, "error": "x", "gone_us": 1,
    "id": ID, "queue": "default", "kind": None, "state": "failed", "limit": 10,
    "worker": "w", "started": 1, "pushes": False, "beyond": 2, "crash_limit": 3, "crash": "{}",
    "poison": "{}", "held": "{}", "nonce": 1, "epoch": 1, "lease_us": 1, "after": ID, "before": ID,
    "key_us": 1,
    "retention_us": '{"completed": 0}', "priority": 0, "quota": 5, "group_key": "acme",
    "until": "h", "scope": "queue", "name": "default", "paused": None, "concurrency": 1,
    "set_concurrency": True, "rate_count": 1, "rate_seconds": 1.0, "set_rate": True,
    "retry": None, "set_retry": True, "timeout_seconds": 1.0, "set_timeout": True,
    "count_limit": 10_001, "verb": "step", "fingerprint": "1:0", "arguments": "[]",
    "source": "returned", "result": "null", "happened": True, "by_whom": "ann", "note": None,
    "key": "k", "owner": 1, "hold_us": 1, "keep_us": 1, "run_unknown": True,
    "status": 200, "headers": "[]", "body": b"", "bounds": "{}", "ids": f'["{ID}"]',
    "require_key": None, "url": "https://example.com", "secrets": "[]", "mode": "sync",
    "not_sent": "x", "ack_us": 1, "beyond_us": 1, "digest": "x", "scopes": "read",
    "queues": None, "life_us": 1, "overlap_us": 1, "lowest": ID, "tag": None, "looked": 20_000,
    "few": 10_000, "act": "cancel", "about": None, "count": None, "details": "{}",
    "host": "h", "pid": 1, "version": "1", "running": 0, "seconds": 60, "steps": 60, "since": 0,
    "keep_seconds": 60, "lane_limit": 2_000,
    "apart": False, "attempt": 1, "payloads": "[1]", "keys": '["k"]',
    "fingerprints": "{1:0}", "traceparent": None, "payload": "1",
    "role": "reader", "password": "x", "stamp": "x", "who": "ann", "idle_us": 1,
    "outcome": "same", "recognised": 1, "repeated": 1, "execution_id": "x", "found": "{}",
    "stopped": False, "first": "g:", "second": "g:", "plain": True, "rest": "", "most": 2,
    "is_checked": False, "store": None, "kinds_limit": 1_000, "other": "(other)",
    "place": "x", "window_us": 1, "payload_limit": None,
}  # fmt: skip
SMALL = {
    "lease",
    "lease_pkey",
    "lease_by_ack",
    "locked_lease",
    "locked_lease_pkey",
    "migration",
    "level",
    "lane",
    "first",
    "second",
    "before",
    "tally",
    "counter",
    "counter_pkey",
    "counted_kind",
    "counted_kind_pkey",
    "clock",
    "waiting",
    "flow_limit_pkey",
    "queue",
    "queue_pkey",
    "token",
    "token_pkey",
    "schedule",
    "schedule_pkey",
    "worker",
    "worker_pkey",
    "user",
    "user_pkey",
    "session",
    "session_pkey",
    "sign_in_guess",
    "sign_in_guess_pkey",
    "drill_switch",
    "drill_switch_pkey",
    "store",
    "store_pkey",
}
"""What is read whole on purpose: it does not grow with the number of jobs."""
READ_IN_ORDER = {
    "survey": {"ready_pkey"},  # its first entry, then the first beyond it
    "kinds_without_handler": {"ready_pkey"},
    "queues_list": {"ready_pkey"},
    "ages": {"ready_pkey"},
    "keys_sample": {"job_pkey"},
    "find_key": {"idempotency_key_pkey", "unique_key_pkey"},  # as of survey
    "drills_list": {"drill_to_look_at"},  # the newest of it
}
LEDGER = """
    insert into oncely.effect (job_id, name, verb, state, fingerprint, epoch, begun_at)
    select id, 'charge', 'step', 'begun', '1', 1, created_at from oncely.job;
    insert into oncely.resolution (job_id, name, at, happened, by_whom)
    select id, 'charge', created_at, true, 'ann' from oncely.job
"""
WHOLE_INDEX = re.compile(r"Index (?:Only )?Scan(?: Backward)? using (\w+) .*\n(?! *Index Cond)")
READS_ALL_THAT_WAITS = {"list_waiting", "waiting_is_much"}
HOT = [
    "admit", "find_keys", "find_holders", "find_jobs", "lend_keys", "drop_expired_keys", "look",
    "find_queues",
    "look_executions", "list_any", "list_completed", "list_standing", "list_running",
    "list_resting", "cancel", "replay_hold",
    "replay_holder", "replay", "claim", "settle", "prune_look", "prune_drop", "prune_keys",
    "cancel_running", "claimed", "survey", "kinds_without_handler", "claim_lanes", "file", "ring",
    "limits_hold",
    "limits_running", "limits_spend", "limits_set", "limits_drop", "queue_set", "queues_list",
    "groups_list", "reclaim", "next_expiry", "renew", "settle_late", "settled",
    "keep_repeats", "keep_recognised", "story", "story_job",
    "effect_begin", "effect_retake", "effect_done", "effect_look", "effect_clear", "effect_resolve",
    "effects_hold", "effects_doubt", "effects_forget", "effects_renamed", "go_on", "cancel_held",
    "look_effects",
    "look_resolutions", "prune_effects", "count", "counters", "counters_fold", "keys_sample",
    "counted_kinds", "guess_prune", "guess_reserve", "guess_release",
    "list_failed", "schedule_read", "schedule_define", "schedule_hold", "schedule_advance",
    "schedule_list", "schedule_pause", "schedule_resume", "schedule_remove",
    "request_begin", "request_look", "request_renew", "request_done", "request_let_go",
    "request_clear", "request_doubts", "request_happened", "request_did_not", "prune_requests",
    "traffic", "traffic_since", "latency", "latency_add", "prune_traffic", "worker_seen",
    "worker_left", "workers_list", "workers_forget",
    "settle_whole", "resting", "revive", "ages", "delivery", "end_of", "heartbeat",
    "queue_requires_key", "push_accept", "push_accepted", "push_keep_fence", "push_look",
    "push_overdue", "push_previous", "push_secrets_set", "push_set", "push_targets", "token_any",
    "token_end",
    "token_make", "token_revoke", "tokens_list", "look_brief", "look_sizes", "reach_any",
    "payloads", "reach_resting",
    "find_key", "audit_write", "audit_list", "audit_of", "audit_prune", "dead_newest", "dead_after",
    "dead_effects", "session_end", "session_look", "session_make", "session_prune", "session_see",
    "user_make", "user_remove", "user_set", "users_list", "drill_keep", "drill_may", "drill_set",
    "drill_switch", "drills_list", "reserve_keys", "store_id",
]  # fmt: skip


ONLY_ON_POSTGRES = [
    "admit_alike", "admit_alike_keyed", "admit_new", "admit_new_keyed", "admit_one",
    "admit_one_keyed", "effect_done_whole", "effect_held", "settle_last",
]  # fmt: skip
AS_ARRAYS = {"ids": f"{{{ID}}}", "keys": "{k}"}
"""Where the others take JSON."""


def test_every_statement_is_looked_at() -> None:
    folder = Path(str(Library("postgres")._folder))
    names = {file.stem for file in folder.glob("*.sql")}
    never_hot = ("schema_", "savepoint", "listen_", "measure", "vacuum_", "tidy_")
    plain = {name for name in names if name.startswith(never_hot)} | {"assert_writable", "dead"}
    assert names - plain - READS_ALL_THAT_WAITS == {*HOT, *ONLY_ON_POSTGRES}


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlite3.Connection]:
    path = tmp_path_factory.mktemp("plans") / "jobs.db"
    with Oncely(f"sqlite:///{path}") as app:
        app.migrate()
    connection = sqlite3.connect(path)
    yield connection
    connection.close()


@pytest.mark.parametrize("name", HOT)
def test_sqlite_seeks_in_every_table_that_grows(name: str, empty: sqlite3.Connection) -> None:
    scanned = set()
    for prepared in Library("sqlite").get(name, ":{name}"):
        params = {param: PARAMS[param] for param in prepared.names}
        for *_, detail in empty.execute(f"explain query plan {prepared.text}", params):
            if re.match(r"SCAN (?!CONSTANT|.*VIRTUAL TABLE|.*USING INDEX)", detail):
                scanned.add(detail.split()[1].removeprefix("oncely_"))
    # Aliases of the small ones, and of subqueries that are bounded by a limit.
    bounded = {"l", "c", "t", "x", "n", "q", "f", "w", "s", "3", "one", "ring"}
    assert scanned - SMALL - bounded == set()


@pytest.fixture(scope="module")
def filled(cluster: Cluster) -> Iterator[tuple[Oncely, psycopg.Connection[Any]]]:
    """A store with many jobs that are over, and PostgreSQL's statistics of them."""
    url = cluster.create_database("plans")
    with Oncely(url) as app, PostgresEngine(url, "oncely")._connect() as connection:
        app.migrate()
        jobs = [
            NewJob("plan", n, idempotency_key=f"key:{n}", unique_key=f"unique:{n}")
            for n in range(JOBS)
        ]
        app.enqueue_many(jobs)
        app.enqueue_many(jobs)  # each is a repeat, which is kept
        for number in range(JOBS // 1_000 - 2):
            _end(app, number)
        connection.execute(LEDGER)
        connection.execute("analyze")
        yield app, connection
    cluster.drop_database("plans")


def _end(app: Oncely, number: int) -> None:
    claimed = app._engine.run(
        lambda _: claims.claim("default", worker="w", nonce=number, lease_seconds=9, limit=1_000),
        "write",
    )
    settlements = [
        deliver.Settlement(job.job_id, 1, state="failed" if n % 7 == 0 else "completed")
        if n % 5
        else deliver.Settlement(job.job_id, 1, outcome="retried", delay_us=10**12, attempts=1)
        for n, job in enumerate(claimed)
    ]
    done = [settlement.under(claimed[0].fence) for settlement in settlements]
    assert app._engine.run(lambda _: deliver.settle(done), "write") == []


@pytest.mark.parametrize("name", [*HOT, *ONLY_ON_POSTGRES])
def test_postgres_seeks_in_every_table_that_grows(
    name: str, filled: tuple[Oncely, psycopg.Connection[Any]]
) -> None:
    app, connection = filled
    for prepared in app._engine.library.get(name, "%({name})s"):
        text = f"explain (costs off) {prepared.text}".encode()
        params = {**PARAMS, **AS_ARRAYS} if name.startswith("admit_new") else PARAMS
        plan = "\n".join(row[0] for row in connection.execute(text, params))
        scanned = set(re.findall(r"Seq Scan on (\w+)", plan))
        assert scanned - SMALL == set(), plan
        assert set(WHOLE_INDEX.findall(plan)) - SMALL - READ_IN_ORDER.get(name, set()) == set(), (
            plan
        )


HOT_FROM_THE_START = [
    "admit", "find_keys", "find_holders", "find_jobs", "keep_repeats", "survey", "claim",
    "claim_lanes", "claimed", "ring", "file", "limits_hold", "limits_running", "limits_spend",
    "settle", "settle_whole", "settle_late", "settled", "renew", "reclaim", "next_expiry", "look",
    "effect_begin", "effect_done", "effect_look", "prune_look", "prune_keys", "prune_drop",
    "prune_effects", "keep_recognised", "lend_keys", "drop_expired_keys", "find_queues",
    "reserve_keys", *ONLY_ON_POSTGRES,
]  # fmt: skip


@pytest.fixture(scope="module", params=["new", "vacuumed"])
def fresh(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[psycopg.Connection[Any]]:
    """A store that is empty: PostgreSQL knows nothing of it yet, or knows that it was empty when
    it was vacuumed last."""
    url = cluster.create_database("fresh_plans")
    with Oncely(url) as app, PostgresEngine(url, "oncely")._connect() as connection:
        app.migrate()
        if request.param == "vacuumed":
            connection.execute("vacuum analyze")
        yield connection
    cluster.drop_database("fresh_plans")


@pytest.mark.parametrize("name", HOT_FROM_THE_START)
def test_a_plan_that_was_made_for_an_empty_store_seeks_too(
    name: str, fresh: psycopg.Connection[Any]
) -> None:
    """A worker keeps the plans of its first statements until there are statistics, and by then a
    million jobs may have come in."""
    for number, prepared in enumerate(Library("postgres").get(name, "${n}")):
        fresh.execute("deallocate all", prepare=False)
        fresh.execute(f"prepare {name}_{number} as {prepared.text}".encode(), prepare=False)
        nulls = ", ".join(["null"] * len(prepared.names))
        given = f"({nulls})" if nulls else ""
        text = f"explain (costs off) execute {name}_{number} {given}"
        plan = "\n".join(row[0] for row in fresh.execute(text.encode(), prepare=False))
        assert set(re.findall(r"Seq Scan on (\w+)", plan)) - SMALL == set(), plan
        assert set(WHOLE_INDEX.findall(plan)) - SMALL - READ_IN_ORDER.get(name, set()) == set(), (
            plan
        )
        # The index of what waits begins with the queue: without it, it is read whole.
        for condition in re.findall(r"using ready_pkey .*\n *Index Cond: (.*)", plan):
            assert "queue" in condition, plan
