"""The dashboard over a million jobs: what each page takes of the server.

    python -m bench.dashboard              # both engines
    python -m bench.dashboard --jobs 100000 --engine sqlite

The jobs are written by a few statements of SQL, as their life would have left them: most are
completed, 100,000 wait, some failed, a few are held. Then each page is asked for again and again,
within one process and without a network, so that the time is the server's own: the store, the page
and its template. `cpu` is what this process worked for it, which tells on a busy machine.

Exit 1 if the median of a page is above 100 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from oncely import Oncely
from oncely.dashboard import Dashboard
from oncely.model.traffic import STEPS
from oncely.surface.dashboard.pages import PAGES
from tests.cluster import Cluster
from tests.engine.steps import Backdoor, engine_of

LIMIT_MS: Final = 100.0
_DAYS: Final = 7
_KINDS: Final = ("order.charge", "mail.send", "page.scrape", "report.build", "image.resize")
_WAITING: Final = 0.1
_ERRORS: Final = ("TimeoutError", "SMTPError", "ValueError", "HTTPStatusError")


def fill(app: Oncely, count: int) -> dict[str, str]:
    """The ids of some jobs, by their state."""
    postgres = engine_of(app) == "postgres"
    waiting = round(count * _WAITING)
    ended = count - waiting
    now_ms = round(time.time() * 1000)
    step_ms = _DAYS * 86_400_000 / count
    first_ms = now_ms - _DAYS * 86_400_000
    if postgres:
        ms = f"({first_ms} + cast(n * {step_ms} as bigint))"
        hexes = f"lpad(to_hex({ms}), 12, '0')"
        id = f"cast({hexes} || '7000' || '8000' || lpad(to_hex(n), 12, '0') as uuid)"
        at = f"to_timestamp({ms} / 1000.0)"
        later = f"{at} + interval '250 milliseconds'"
        numbers = "generate_series({}, {}) n"
    else:
        ms = f"({first_ms} + cast(n * {step_ms} as integer))"
        hexes = f"printf('%012x', {ms})"
        id = (
            f"substr({hexes}, 1, 8) || '-' || substr({hexes}, 9) || '-7000-8000-' "
            "|| printf('%012x', n)"
        )
        at = f"{ms} * 1000"
        later = f"{at} + 250000"
        numbers = (
            "(with recursive s(n) as (select {} union all select n + 1 from s where n < {})"
            " select n from s)"
        )
    kind = "case n % 5 " + " ".join(f"when {n} then '{k}'" for n, k in enumerate(_KINDS)) + " end"
    queue = "case n % 5 when 0 then 'payments' when 1 then 'mail' else 'default' end"
    error = "case n % 4 " + " ".join(f"when {n} then '{e}'" for n, e in enumerate(_ERRORS)) + " end"
    told = f'\'{{"type":"\' || {error} || \'","message":"order \' || n || \' did not go"}}\''
    json = "cast({} as json)" if postgres else "{}"
    payload = '\'{"order":\' || n || \',"to":"somebody@example.com"}\''
    vip, null = json.format("'[\"vip\"]'"), json.format("'null'")
    over, all_of = numbers.format(1, ended), numbers.format(1, count)
    state = (
        "case when n % 997 = 0 then 'in_doubt' when n % 50 = 0 then 'failed'"
        " when n % 211 = 0 then 'cancelled' else 'completed' end"
    )
    with closing(Backdoor(app)) as door:

        def run(text: str) -> list[Any]:
            return door.sql(text.replace("%", "%%") if postgres else text)

        run("begin")
        run(
            "insert into oncely.job (id, kind, queue, payload, priority, created_at, due_at,"
            f" idempotency_key, group_key, tags) select {id}, {kind}, {queue},"
            f" {json.format(payload)}, 0, {at}, {at}, case when n % 3 = 0 then 'order:' || n end,"
            f" case when n % 7 = 0 then 'tenant:' || n % 100 end,"
            f" case when n % 100 = 0 then {vip} end"
            f" from {all_of}"
        )
        run(
            "insert into oncely.outcome (job_id, state, epoch, attempt, worker, started_at,"
            f" ended_at, result, error) select {id}, {state}, n, 1, 'host-1', {at}, {later},"
            f" case when {state} = 'completed' then {null} end,"
            f" case when {state} = 'failed' then {json.format(told)} end from {over}"
        )
        run(
            "insert into oncely.ready (queue, priority, lane, due_at, id, attempts)"
            f" select {queue}, 0,"
            " case when n % 7 = 0 then 'g:' || 'tenant:' || n % 100 else '' end,"
            f" {at}, {id}, 0 from {numbers.format(ended + 1, count)}"
        )
        run(
            "insert into oncely.idempotency_key (queue, key, job_id, fingerprint, created_at, lent)"
            f" select {queue}, 'order:' || n, {id}, '1:0', {at}, 1 = 0 from {all_of}"
            " where n % 3 = 0"
        )
        run(
            "insert into oncely.repeat (job_id, boundary, id, at, key)"
            f" select {id}, 'enqueue', 'r', {at}, 'idempotency' from {over} where n % 30 = 0"
        )
        run(
            "insert into oncely.effect (job_id, name, verb, state, fingerprint, epoch, begun_at)"
            f" select {id}, 'charge', 'fence', case when {state} = 'in_doubt' then 'in_doubt'"
            f" else 'done' end, '1', n, {at} from {over} where n % 10 = 0 or {state} = 'in_doubt'"
        )
        _traffic(door)
        run("commit")
        run("vacuum analyze" if postgres else "analyze")
        rows = run("select state, max(cast(job_id as text)) from oncely.outcome group by state")
    app.set_group("tenant:7", concurrency=3)
    return dict(rows)


def _traffic(door: Backdoor) -> None:
    """What workers have counted: every kind in every step of the charts."""
    now = int(time.time())
    names = [
        ("enqueued", ""),
        ("executions", "completed"),
        ("executions", "retried"),
        ("executions", "failed"),
        ("deduplicated", "enqueue"),
        ("deduplicated", "delivery"),
        ("deduplicated", "effect"),
    ]
    kinds = ", ".join(f"('{kind}')" for kind in _KINDS)
    door.sql(f"insert into oncely.counted_kind values {kinds}")
    buckets = "{" + ",".join(f'"{number}":{number}' for number in range(20, 70)) + "}"
    for seconds, steps in STEPS.values():
        for back in range(steps):
            step = (now // seconds - back) * seconds
            for kind in _KINDS:
                values = ", ".join(
                    f"({seconds}, {step}, '{name}', '{kind}', '{label}', 50)"
                    for name, label in names
                )
                door.sql(f"insert into oncely.traffic values {values}")
                values = ", ".join(
                    f"({seconds}, {step}, '{measure}', 'default', '{kind}', '{buckets}')"
                    for measure in ("waited", "ran")
                )
                door.sql(f"insert into oncely.latency values {values}")


def addresses(ids: dict[str, str]) -> Iterator[str]:
    """Every page of the site, and the lists with each kind of filter."""
    for page in PAGES:
        if page.method == "GET" and not page.public and page.path != "/jobs/{id}":
            yield page.path.replace("{queue}", "payments").replace("{id}", ids["failed"])
    for state in ("completed", "failed", "in_doubt"):
        yield f"/jobs/{ids[state]}"
    yield f"/dead/replay?job={ids['failed']}"
    for state in ("pending", "running", "scheduled", "completed", "failed", "cancelled"):
        yield f"/jobs?state={state}"
    yield from (
        "/?last=day",
        "/doors?last=day",
        "/jobs?kind=mail.send",
        "/jobs?kind=no.such",
        "/jobs?queue=payments&state=failed",
        "/jobs?group=tenant%3A7",
        "/jobs?tag=vip",
        "/jobs?tag=none",
        "/jobs?key=order%3A999",
        "/jobs?search=order%3A300000",
        f"/jobs?before={ids['completed']}",
    )


async def ask(dashboard: Dashboard, address: str) -> tuple[int, int]:
    """The status and the size of the answer."""
    path, _, query = address.partition("?")
    got: dict[str, Any] = {"status": 0, "bytes": 0}

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Any) -> None:
        got["status"] = message.get("status", got["status"])
        got["bytes"] += len(message.get("body", b""))

    scope = {
        "type": "http",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "query_string": query.encode(),
        "headers": [(b"host", b"127.0.0.1")],
        "client": ("127.0.0.1", 1),
    }
    await dashboard(scope, receive, send)
    return got["status"], got["bytes"]


async def measure(app: Oncely, ids: dict[str, str], rounds: int) -> bool:
    dashboard = Dashboard(app)
    print(f"{'page':58} {'median':>8} {'p95':>8} {'worst':>8} {'cpu':>8} {'kB':>6}   (ms)")
    good = True
    for address in addresses(ids):
        times, work = [], []
        for _ in range(rounds + 1):
            # What is shared by all viewers for two seconds is to be read anew each time.
            dashboard.site.live._read.clear()
            begun, worked = time.perf_counter(), time.process_time()
            status, size = await ask(dashboard, address)
            times.append((time.perf_counter() - begun) * 1000)
            work.append((time.process_time() - worked) * 1000)
        first, times = times[0], sorted(times[1:])
        median, p95 = statistics.median(times), times[round((len(times) - 1) * 0.95)]
        wrong = status not in (200, 303) or median > LIMIT_MS
        good = good and not wrong
        shown = address.replace(ids["failed"], "ID").replace(ids["completed"], "ID")
        shown = shown.replace(ids["in_doubt"], "ID")
        mark = f"  <- status {status}" if status not in (200, 303) else "  <- slow" if wrong else ""
        print(
            f"{shown:58} {median:8.1f} {p95:8.1f} {max(first, times[-1]):8.1f} "
            f"{statistics.median(work):8.1f} {size / 1000:6.0f}{mark}",
            flush=True,
        )
    return good


@contextmanager
def store(engine: str) -> Iterator[str]:
    with ExitStack() as stack:
        if engine == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield f"sqlite:///{Path(folder) / 'jobs.db'}"
        else:
            yield stack.enter_context(Cluster()).create_database("dashboard")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--engine", choices=("sqlite", "postgres", "both"), default="both")
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    engines = ("sqlite", "postgres") if options.engine == "both" else (options.engine,)
    good = True
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores, {platform.machine()}")
    for engine in engines:
        with store(engine) as url, Oncely(url) as app:
            app.migrate()
            begun = time.perf_counter()
            ids = fill(app, options.jobs)
            print(f"\n{engine}: {options.jobs:,} jobs, in {time.perf_counter() - begun:.0f} s")
            good = asyncio.run(measure(app, ids, options.rounds)) and good
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
