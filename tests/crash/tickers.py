"""Worker processes with a schedule, for the crash tests: killed from outside, or at a set point."""

import logging
import os
import signal
from itertools import count

from oncely import Context, Oncely


def make_app(url: str, cron: str) -> Oncely:
    app = Oncely(url)
    app.schedule("tick", cron=cron, catch_up="all")

    @app.job("tick")
    async def tick(ctx: Context) -> None: ...

    return app


def run_worker(url: str, cron: str) -> None:
    logging.disable(logging.CRITICAL)
    with make_app(url, cron) as app:
        app.worker(concurrency=4, lease_seconds=1, poll_seconds=0.2, grace_seconds=5).run()


def look_and_die(url: str, cron: str, boundary: int) -> None:
    """One pass that is killed before its statement of that number; 0 is the first one."""
    app = make_app(url, cron)
    engine = app._engine
    app.jobs(limit=1)
    numbers = count()
    ask = engine._ask  # type: ignore[attr-defined]

    def dying(*args: object) -> object:
        if next(numbers) == boundary:
            os.kill(os.getpid(), signal.SIGKILL)
        return ask(*args)

    engine._ask = dying  # type: ignore[attr-defined]
    engine.run(lambda _: app._schedules.look(), "transaction")


def commit_and_die(url: str, cron: str) -> None:
    """One pass that is killed right after its commit, before anybody hears of it."""
    app = make_app(url, cron)
    app._engine.run(lambda _: app._schedules.look(), "transaction")
    os.kill(os.getpid(), signal.SIGKILL)
