"""What groups and limits cost: exchanges as a worker makes them, with and without blocked jobs.

    .venv/bin/python -m bench.flow_probe postgres --jobs 20000 --blocked 100000

Each case drains as many jobs, settled with the next claim, in the same store; the ratio is to the
first case. The figures of docs/adr/0008 come from here.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from typing import Any

from bench.storage_probe import store
from oncely import NewJob, Oncely
from oncely.store import deliver
from oncely.store.lanes import Outlook, survey


def drain(app: Oncely, jobs: int, claim: int) -> float:
    """Jobs a second, until so many are settled."""
    outlook = Outlook()
    done: list[deliver.Settlement] = []
    settled, looked = 0, 0.0
    started = time.perf_counter()
    while settled < jobs:
        if time.perf_counter() - looked > 1:
            app._engine.run(lambda _: survey(outlook, ["default"]), "read")
            looked = time.perf_counter()
        exchanged = app._engine.run(
            lambda again, done=done: deliver.exchange(
                done,
                outlook=outlook,
                worker="probe",
                nonce=random.getrandbits(60),
                lease_seconds=60,
                limit=claim,
                again=again,
            ),
            "transaction",
        )
        settled += len(done)
        done = [
            deliver.Settlement(job.job_id, job.attempt, state="completed", result="null").under(
                job.fence
            )
            for job in exchanged.claimed
        ]
        if not done:
            looked = 0.0
    return settled / (time.perf_counter() - started)


def fill(app: Oncely, count: int, options: Callable[[int], dict[str, Any]]) -> None:
    for first in range(0, count, 5_000):
        size = min(5_000, count - first)
        app.enqueue_many(NewJob("probe", n, **options(n)) for n in range(first, first + size))


def plain(_: int) -> dict[str, Any]:
    """A job with neither a group nor anything else."""
    return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine", choices=["sqlite", "postgres"])
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--blocked", type=int, default=100_000)
    parser.add_argument("--claim", type=int, default=100)
    args = parser.parse_args()
    with store(args.engine) as (app, side):
        first: float | None = None

        def case(name: str, options: Callable[[int], dict[str, Any]]) -> None:
            nonlocal first
            fill(app, args.jobs, options)
            if side is not None:
                side.execute("vacuum analyze")
            rate = drain(app, args.jobs, args.claim)
            first = first or rate
            print(f"{name:<55} {rate:>8,.0f}/s {rate / first:>6.2f}", flush=True)

        case("no groups, no limits", plain)
        case("1 group", lambda _: {"group_key": "one"})
        case("100 groups", lambda n: {"group_key": f"g{n % 100}"})
        app.set_queue("default", concurrency=100_000)
        case("queue with a limit, no groups", plain)
        app.set_queue("default", concurrency=None)
        app.set_group("one", concurrency=100_000, rate=(1_000_000, 1))
        case("1 group with limit and rate", lambda _: {"group_key": "one"})
        fill(app, args.blocked, lambda _: {"group_key": "blocked"})
        app.pause(group="blocked")
        title = f"{args.blocked:,} blocked in front"
        case(f"no groups, {title}", plain)
        case(f"100 groups, {title}", lambda n: {"group_key": f"g{n % 100}"})


if __name__ == "__main__":
    main()
