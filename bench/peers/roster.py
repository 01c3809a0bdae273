"""Who takes part: what each system is made of, how it is set up, and how much it is given to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Store = Literal["postgres", "redis", "sqlite"]
Runtime = Literal["python", "node", "ours"]

OURS: Final = "oncely"
OURS_SQLITE: Final = "oncely-sqlite"
HTTP: Final = "oncely-http"
LIMIT: Final = "limit"
NODE: Final = "node@24.21.0"
PEER_MEASURES: Final = ("enqueue", "bulk", "keyed", "bulk_keyed", "drain", "drain2", "latency")
QUICK: Final = 20
"""A quick run has so many times less to do."""


@dataclass(frozen=True)
class System:
    name: str
    label: str
    driver: str
    store: Store
    runtime: Runtime
    settings: str
    jobs: Mapping[str, int]
    """What it is measured by, and with how many jobs: a second or two of work."""
    packages: tuple[str, ...] = ()
    environment: str = ""
    python: tuple[int, int] = (3, 11)

    @property
    def home(self) -> str:
        """The environment it runs in; two systems may share one."""
        return self.environment or self.name

    def jobs_for(self, measure: str, *, quick: bool) -> int:
        jobs = self.jobs[measure]
        if not quick:
            return jobs
        return max(jobs // QUICK, min(jobs, 10 if measure == "latency" else 100))


def _jobs(
    enqueue: int,
    drain: int,
    drain2: int,
    *,
    bulk: int = 0,
    keyed: int = 0,
    bulk_keyed: int = 0,
    latency: int = 150,
) -> dict[str, int]:
    counts = zip(
        PEER_MEASURES, (enqueue, bulk, keyed, bulk_keyed, drain, drain2, latency), strict=True
    )
    return {measure: count for measure, count in counts if count}


PEERS: Final = (
    System(
        "graphile-worker",
        "graphile-worker, tuned",
        "graphile_driver.mjs",
        "postgres",
        "node",
        "local queue 2,000, 200 at once, completions batched; for the latency its defaults",
        _jobs(1_000, 50_000, 100_000, bulk=30_000, keyed=1_000, bulk_keyed=30_000),
        ("graphile-worker@0.18.0",),
    ),
    System(
        "pgqueuer",
        "PgQueuer",
        "pgqueuer_driver.py",
        "postgres",
        "python",
        "asyncpg, uvloop, batches of 500 per process, of 10 for the latency",
        _jobs(1_500, 20_000, 40_000, bulk=30_000, keyed=1_500, bulk_keyed=30_000),
        ("pgqueuer[asyncpg]==1.6.0", "uvloop==0.23.0"),
    ),
    System(
        "pg-boss",
        "pg-boss",
        "pgboss_driver.mjs",
        "postgres",
        "node",
        "batches of 1,000 in bursts, woken by NOTIFY",
        _jobs(1_000, 20_000, 20_000, bulk=30_000, keyed=1_000, bulk_keyed=30_000),
        ("pg-boss@12.35.0", "pg@8.23.1"),
    ),
    System(
        "awa-pg",
        "awa-pg",
        "awa_driver.py",
        "postgres",
        "python",
        "Rust core, Python handlers, queue storage, 1,000 at once, bulk by COPY",
        _jobs(700, 6_000, 6_000, bulk=20_000, keyed=500),
        ("awa-pg==0.6.9",),
    ),
    System(
        "chancy",
        "Chancy",
        "chancy_driver.py",
        "postgres",
        "python",
        "async executor, 1,000 at once, eager polling",
        _jobs(700, 5_000, 5_000, bulk=4_000, keyed=700, bulk_keyed=4_000),
        ("chancy==0.26.0", "psycopg[binary]==3.3.8"),
    ),
    System(
        "oban-py",
        "oban-py",
        "oban_driver.py",
        "postgres",
        "python",
        "uvloop, 100 at once per process, a pool of 20; on Python 3.12, which it needs",
        _jobs(700, 2_500, 4_000, bulk=5_000),
        ("oban==0.7.0",),
        python=(3, 12),
    ),
    System(
        "procrastinate",
        "Procrastinate",
        "procrastinate_driver.py",
        "postgres",
        "python",
        "async workers, 50 at once, a pool of 20",
        _jobs(700, 800, 800, bulk=10_000, keyed=700, bulk_keyed=10_000),
        ("procrastinate==3.10.0", "psycopg[binary]==3.3.8"),
    ),
    System(
        "dbos",
        "DBOS",
        "dbos_driver.py",
        "postgres",
        "python",
        "polling every 10 ms, 20 at once per process, a pool of 20",
        _jobs(400, 600, 800, keyed=400),
        ("dbos==3.3.0",),
    ),
    System(
        "bullmq",
        "BullMQ",
        "bullmq_driver.mjs",
        "redis",
        "node",
        "200 at once, completed jobs removed",
        _jobs(4_000, 15_000, 15_000, bulk=20_000, keyed=4_000, bulk_keyed=20_000),
        ("bullmq@6.7.0", "ioredis@6.0.0"),
    ),
    System(
        "huey-redis",
        "Huey on Redis",
        "huey_driver.py",
        "redis",
        "python",
        "one thread per process, no results; at most once: a job that is taken is gone",
        _jobs(6_000, 3_000, 5_000),
        ("huey==3.5.4", "redis==8.1.0"),
        environment="huey",
    ),
    System(
        "dramatiq",
        "Dramatiq",
        "dramatiq_driver.py",
        "redis",
        "python",
        "8 threads per process, prefetching 1,000",
        _jobs(4_000, 3_000, 5_000),
        ("dramatiq[redis]==2.2.1",),
    ),
    System(
        "celery",
        "Celery",
        "celery_driver.py",
        "redis",
        "python",
        "prefork, one child per process, prefetching 1,000, results and events off, early acks",
        _jobs(1_200, 1_000, 1_500, bulk=1_200),
        ("celery[redis]==5.7.0",),
    ),
    System(
        "rq",
        "RQ",
        "rq_driver.py",
        "redis",
        "python",
        "SimpleWorker (no fork per job), results not kept",
        _jobs(2_000, 400, 700, bulk=8_000, keyed=2_000),
        ("rq==2.12.0",),
    ),
    System(
        "huey-sqlite",
        "Huey on SQLite",
        "huey_driver.py",
        "sqlite",
        "python",
        "as it comes: WAL and no fsync, so not crash safe",
        _jobs(10_000, 8_000, 8_000, latency=80),
        ("huey==3.5.4", "redis==8.1.0"),
        environment="huey",
    ),
    System(
        "fastapi",
        "FastAPI, one insert per request",
        "fastapi_driver.py",
        "postgres",
        "python",
        "uvicorn[standard], asyncpg with a pool of 20, one process, 64 connections",
        {"publish": 3_000},
        ("fastapi==0.162.4", "uvicorn[standard]==0.54.0", "asyncpg==0.32.0"),
    ),
)

ON_POSTGRES: Final = System(
    OURS,
    "Oncely",
    "oncely_driver.py",
    "postgres",
    "ours",
    "",
    {
        **_jobs(2_000, 50_000, 100_000, bulk=30_000, keyed=2_000, bulk_keyed=30_000),
        "callers": 12_800,
        "steps": 10_000,
        "transactions": 4_000,
        "fleet": 16_000,
        "idle_memory": 1,
        "prefetched_memory": 1,
    },
)
ON_SQLITE: Final = System(
    OURS_SQLITE,
    "Oncely on SQLite, FULL",
    "oncely_driver.py",
    "sqlite",
    "ours",
    "",
    _jobs(3_000, 50_000, 50_000, bulk=30_000, keyed=3_000, bulk_keyed=30_000, latency=80),
)
OVER_HTTP: Final = System(
    HTTP,
    "Oncely over HTTP",
    "http_driver.py",
    "postgres",
    "ours",
    "`oncely serve`, one process, 64 connections",
    {"publish": 10_000, "bare": 15_000, "push": 6_000},
)
LIMITS: Final = System(
    LIMIT,
    "the limit",
    "limit_driver.py",
    "postgres",
    "ours",
    "",
    {"commit": 2_000, "commit16": 8_000, "statements": 50_000},
)
# Minutes, not seconds: only when asked for.
LONG: Final[Mapping[str, int]] = {"lasting": 1_000_000, "held": 600}

SYSTEMS: Final = (ON_POSTGRES, ON_SQLITE, OVER_HTTP, LIMITS, *PEERS)
BY_NAME: Final = {system.name: system for system in SYSTEMS}
# Right beside ours, for a goal is a ratio with them.
BESIDE_OURS: Final = frozenset({"graphile-worker", "pgqueuer", "huey-sqlite"})
