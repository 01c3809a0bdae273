"""Limits over a whole fleet, measured by the handlers themselves: never one too many."""

import asyncio
import time
from collections import defaultdict
from pathlib import Path

from oncely import Context, NewJob, Oncely
from tests.crash.checker import check
from tests.crash.ends import wait_until_all_ended
from tests.crash.fleet import start
from tests.crash.load import times
from tests.waiting import PATIENCE_SECONDS, wait_until

WORKERS = 4
EACH = times(120, usually=40)
LIMITS = {"one": 1, "two": 2, "narrow": 3}


def make_app(url: str, notes: Path) -> Oncely:
    app = Oncely(url)

    def note(ctx: Context, what: str) -> None:
        """One line in one write, so that the lines of all processes stay whole and in order."""
        with notes.open("a", buffering=1) as file:
            file.write(f"{what} {ctx.job_id} {ctx.payload} {time.monotonic_ns()}\n")

    reached: set[str] = set()

    def is_full(group: str) -> bool:
        """Whether the limit was reached: until then those that are begun wait for the next one, so
        that it is reached on the slowest machine."""
        if group not in reached and overlaps(notes.read_text())[group] >= LIMITS.get(group, 0):
            reached.add(group)
        return group in reached

    @app.job("work")
    async def work(ctx: Context) -> None:
        note(ctx, "begin")
        await asyncio.sleep(0.002)
        await asyncio.to_thread(wait_until, lambda: is_full(ctx.payload), "the limit is reached")
        note(ctx, "end")

    @app.job("threaded")
    def threaded(ctx: Context) -> None:
        note(ctx, "begin")
        time.sleep(0.002)
        wait_until(lambda: is_full(ctx.payload), "the limit is reached")
        note(ctx, "end")

    return app


def run_worker(url: str, notes: Path) -> None:
    with make_app(url, notes) as app:
        app.worker(concurrency=8, poll_seconds=0.05).run()


def overlaps(notes: str) -> dict[str, int]:
    """The most that ever ran at the same time, by group, and under '' in all."""
    events = []
    for line in notes.splitlines():
        what, _, group, moment = line.split()
        # An end and a beginning in the same nanosecond do not overlap.
        events.append((int(moment), what == "begin", group))
    now: dict[str, int] = defaultdict(int)
    most: dict[str, int] = defaultdict(int)
    for _, begins, group in sorted(events):
        for name in ("", group):
            now[name] += 1 if begins else -1
            most[name] = max(most[name], now[name])
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
            for n in range(EACH)
            for queue, group in (
                ("wide", "two"), ("other", "two"), ("wide", "one"), ("other", "free"),
                ("narrow", "narrow"),
            )
        )  # fmt: skip
        workers = [start(run_worker, url, notes) for _ in range(WORKERS)]
        try:
            wait_until_all_ended(app)
        finally:
            for worker in workers:
                worker.terminate()
            for worker in workers:
                worker.join(PATIENCE_SECONDS)
                worker.kill()
        said = notes.read_text()
        assert said.count("begin ") == said.count("end ") == 5 * EACH
        most = overlaps(said)
        assert {group: most[group] for group in LIMITS} == LIMITS
        check(url)
