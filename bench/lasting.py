"""Does it stay fast: jobs that flow by the million, beside what slows a queue down.

    .venv/bin/python -m bench.lasting                      # all scenes, 1,000,000 jobs each
    .venv/bin/python -m bench.lasting --jobs 100000 --only held --only groups
    .venv/bin/python -m bench.lasting --engine sqlite --json lasting.json

Each scene enqueues a tenth of the jobs and runs a worker until they are settled, ten times over.
What counts is the ratio of the last rounds to the first, or to the same scene without the burden,
measured in turns in the same run; the rates themselves depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import psycopg

from oncely import Context, NewJob, Oncely
from tests.cluster import Cluster
from tests.engine import many
from tests.engine.steps import Backdoor, engine_of

ROUNDS: Final = 10
BULK: Final = 1_000
GROUPS: Final = 50
KIND: Final = "lasting"
Options = Callable[[int], dict[str, Any]]


class Bench:
    """A store of its own, a worker that is run on it in rounds."""

    def __init__(self, url: str, concurrency: int, held_seconds: float) -> None:
        self.held_seconds = held_seconds
        self.app = Oncely(url)
        self.app.migrate()
        self._concurrency = concurrency
        self._stop: Callable[[], None] = lambda: None
        self._left = 0
        self.app.job(KIND)(self._handle)

    # Every handler is given its context.
    async def _handle(self, ctx: Context) -> None:  # noqa: ARG002
        self._left -= 1
        if self._left == 0:
            self._stop()

    def round(self, jobs: int, options: Options = lambda _: {}) -> float:
        """Jobs a second, from the start of a worker until all are settled."""
        for first in range(0, jobs, BULK):
            size = min(BULK, jobs - first)
            self.app.enqueue_many(NewJob(KIND, n, **options(n)) for n in range(first, first + size))
        worker = self.app.worker(concurrency=self._concurrency)
        self._left, self._stop = jobs, worker.stop
        started = time.perf_counter()
        worker.run()
        seconds = time.perf_counter() - started
        if worker.executions != jobs:
            raise SystemExit(f"{worker.executions} executions of {jobs} jobs: no figure is true")
        return jobs / seconds


def flow(bench: Bench, jobs: int, _: Bench) -> Iterator[float]:
    """All jobs through one store, one tenth after the other; all are kept."""
    for _n in range(ROUNDS):
        yield bench.round(jobs // ROUNDS)


def kept(bench: Bench, jobs: int, fresh: Bench) -> Iterator[float]:
    """As many jobs that are over, in the store before the first round."""
    many.finish(bench.app, jobs)
    many.tidy(bench.app)
    yield from in_turns(bench, fresh, jobs)


def held(bench: Bench, jobs: int, _: Bench) -> Iterator[float]:
    """Somebody else's transaction stays open all the while: nothing that died can be removed."""
    with foreign_transaction(bench.app):
        until = time.monotonic() + bench.held_seconds
        rounds = count()
        while next(rounds) < ROUNDS or time.monotonic() < until:
            yield bench.round(jobs // ROUNDS)


def groups(bench: Bench, jobs: int, fresh: Bench) -> Iterator[float]:
    """Every job has a group, every group a limit; one more is paused, with jobs at the head."""
    for n in range(GROUPS):
        bench.app.set_group(f"group-{n}", concurrency=1_000)
    bench.app.pause(group="blocked")
    many.block(bench.app, jobs // 10, group="blocked")
    many.tidy(bench.app)
    yield from in_turns(bench, fresh, jobs, lambda n: {"group_key": f"group-{n % GROUPS}"})


def limited(bench: Bench, jobs: int, fresh: Bench) -> Iterator[float]:
    """The queue has a limit that is never reached."""
    bench.app.set_queue("default", concurrency=100_000)
    yield from in_turns(bench, fresh, jobs)


SCENES: Final[dict[str, Callable[[Bench, int, Bench], Iterator[float]]]] = {
    scene.__name__: scene for scene in (flow, kept, held, groups, limited)
}
AGAINST_FRESH: Final = {"kept", "groups", "limited"}


def in_turns(
    bench: Bench, fresh: Bench, jobs: int, options: Options = lambda _: {}
) -> Iterator[float]:
    """A plain round in a store without the burden, then one with it."""
    for _ in range(ROUNDS // 2):
        yield fresh.round(jobs // ROUNDS)
        yield bench.round(jobs // ROUNDS, options)


@contextmanager
def foreign_transaction(app: Oncely) -> Iterator[None]:
    if engine_of(app) == "sqlite":
        with closing(Backdoor(app)) as door:
            door.sql("begin")
            door.sql("select count(*) from oncely.job")
            yield
        return
    with psycopg.connect(app.url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        connection.execute("select txid_current(), count(*) from oncely.ready")
        yield


def sizes(app: Oncely) -> dict[str, int]:
    """Bytes on disk, of the tables with their indexes; on SQLite, of the files."""
    if engine_of(app) == "sqlite":
        path = Path(app.url.removeprefix("sqlite:///"))
        return {file.name: file.stat().st_size for file in path.parent.glob(f"{path.name}*")}
    with closing(Backdoor(app)) as door:
        rows = door.sql(
            "select c.relname, pg_total_relation_size(c.oid) from pg_class c"
            " where c.relnamespace = cast('oncely' as regnamespace) and c.relkind in ('r', 'p')"
            " and pg_total_relation_size(c.oid) > 100000 order by 2 desc"
        )
    return dict(rows)


def show(name: str, rates: list[float]) -> dict[str, Any]:
    if name in AGAINST_FRESH:
        plain, burdened = rates[::2], rates[1::2]
        ratio = statistics.median(b / p for b, p in zip(burdened, plain, strict=True))
        told = "with the burden / without, median of the pairs"
    else:
        third = max(1, len(rates) // 3)
        ratio = statistics.median(rates[-third:]) / statistics.median(rates[:third])
        told = "last third / first third, medians"
    print(f"  ratio {ratio:.2f}  ({told})")
    return {"rates": [round(rate) for rate in rates], "ratio": round(ratio, 3)}


@contextmanager
def stores(engine: str) -> Iterator[Callable[[], str]]:
    """Makes empty stores. `$TEST_DATABASE_URL` names another PostgreSQL than the tests' own."""
    numbers = count(1)
    with ExitStack() as stack:
        if engine == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="oncely-lasting-"))
            yield lambda: f"sqlite:///{folder}/{next(numbers)}.db"
            return
        cluster = stack.enter_context(Cluster())

        def make() -> str:
            name = f"lasting_{uuid4().hex}"
            address = cluster.create_database(name)
            stack.callback(cluster.drop_database, name)
            return address

        yield make


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=["postgres", "sqlite"], default="postgres")
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--concurrency", type=int, default=500)
    parser.add_argument("--held-seconds", type=float, default=0, help="at least so long, in `held`")
    parser.add_argument("--only", action="append", choices=list(SCENES))
    parser.add_argument("--json", type=Path, metavar="FILE", help="the figures, for bench.plots")
    chosen = parser.parse_args()
    if chosen.jobs < ROUNDS or chosen.concurrency < 1:
        parser.error(f"--jobs must be {ROUNDS} or more, --concurrency 1 or more")
    results: dict[str, Any] = {}
    with stores(chosen.engine) as make:
        for name in chosen.only or SCENES:
            scene = SCENES[name]
            print(f"{name}: {(scene.__doc__ or '').strip()}", flush=True)
            bench, fresh = (
                Bench(make(), chosen.concurrency, chosen.held_seconds) for _ in range(2)
            )
            rates = []
            with bench.app, fresh.app:
                for rate in scene(bench, chosen.jobs, fresh):
                    rates.append(rate)
                    print(f"  {rate:>9,.0f} jobs/s", flush=True)
                results[name] = show(name, rates) | {"bytes": sizes(bench.app)}
            for table, size in results[name]["bytes"].items():
                print(f"  {size / 1e6:>9,.1f} MB  {table}")
    if chosen.json:
        told = {"engine": chosen.engine, "jobs": chosen.jobs, "scenes": results}
        chosen.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
