"""Limits over a whole fleet, measured by the handlers themselves: never one too many."""

import asyncio
import time
from collections import defaultdict
from pathlib import Path

from oncely import Context, NewJob, Oncely
from tests.crash.checker import check
from tests.crash.fleet import start
from tests.waiting import PATIENCE_SECONDS

WORKERS = 4


def make_app(url: str, notes: str) -> Oncely:
    app = Oncely(url)

    def note(ctx: Context, what: str) -> None:
        """One line in one write, so that the lines of all processes stay whole and in order."""
        with open(notes, "a", buffering=1) as file:
            file.write(f"{what} {ctx.job_id} {ctx.payload} {time.monotonic_ns()}\n")

    @app.job("work")
    async def work(ctx: Context) -> None:
        note(ctx, "begin")
        await asyncio.sleep(0.002)
        note(ctx, "end")

    @app.job("threaded")
    def threaded(ctx: Context) -> None:
        note(ctx, "begin")
        time.sleep(0.002)
        note(ctx, "end")

    return app


def run_worker(url: str, notes: str) -> None:
    with make_app(url, notes) as app:
        app.worker(concurrency=8, poll_seconds=0.05).run()


def overlaps(notes: Path) -> dict[str, int]:
    """The most that ever ran at the same time, by group, and under '' in all."""
    events = []
    for line in notes.read_text().splitlines():
        what, _, group, moment = line.split()
        # An end and a beginning in the same nanosecond do not overlap.
        events.append((int(moment), what == "begin", group))
    now: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for _, begins, group in sorted(events):
        for name in ("", group):
            now[name] += 1 if begins else -1
            most[name] = max(most[name], now[name])
    assert set(now.values()) == {0}
    return most


def test_concurrency_limits_are_never_exceeded_by_one(url: str, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.touch()
    with Oncely(url) as app:
        app.migrate()
        app.set_group("two", concurrency=2)
        app.set_group("one", concurrency=1)
        app.set_queue("narrow", concurrency=3)
        app.set_queue("wide", concurrency=7)
        app.enqueue_many(
            NewJob(
                "threaded" if n % 4 == 0 else "work",
                group,
                queue=queue,
                group_key=group if group in ("one", "two", "free") else None,
                priority=n % 3,
            )
            for n in range(120)
            for queue, group in (
                ("wide", "two"), ("other", "two"), ("wide", "one"), ("other", "free"),
                ("narrow", "narrow"),
            )
        )  # fmt: skip
        workers = [start(run_worker, url, str(notes)) for _ in range(WORKERS)]
        try:
            _until_done(app, 600)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(10)
                worker.kill()
        most = overlaps(notes)
        assert most["one"] == 1
        assert most["two"] == 2
        assert most["narrow"] == 3
        check(url)


def _until_done(app: Oncely, jobs: int) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(app.jobs(state="completed", limit=1_000)) < jobs:
        assert time.monotonic() < deadline, [app.queues(), app.groups()]
        time.sleep(0.1)
