"""Workers with a schedule, killed anywhere: each tick is one job, none is lost, none doubled."""

import signal
import time
from collections import Counter
from datetime import UTC, datetime, timedelta

from oncely import Oncely
from tests.crash.checker import check
from tests.crash.ends import end
from tests.crash.fleet import start
from tests.crash.load import TORTURE
from tests.crash.stopping import end_sessions
from tests.crash.tickers import commit_and_die, look_and_die, make_app, run_worker
from tests.engine.steps import let_days_pass
from tests.seed import dice
from tests.waiting import PATIENCE_SECONDS, wait_until

WORKERS = 4
TICKS, KILLS = (8, 30) if TORTURE > 1 else (3, 12)
EVERY_SECOND = "* * * * * *"
FAR = f"30 {(datetime.now(UTC) + timedelta(hours=12)).hour} * * *"


def ticks_of(app: Oncely) -> list[datetime]:
    return sorted(
        datetime.fromisoformat(str(job.idempotency_key).partition("@")[2])
        for job in app.jobs(kind="tick", limit=10_000)
    )


def test_four_workers_killed_at_random_fire_every_second_once(url: str) -> None:
    chance = dice("killed with a schedule")
    kills = 0
    with make_app(url, EVERY_SECOND) as app:
        app.migrate()
        workers = [start(run_worker, url, EVERY_SECOND) for _ in range(WORKERS)]

        def kill_one() -> bool:
            nonlocal kills
            time.sleep(chance.uniform(0.05, 0.3))
            place = chance.randrange(WORKERS)
            end([workers[place]])
            kills += 1
            fired = ticks_of(app)
            workers[place] = start(run_worker, url, EVERY_SECOND)
            return len(fired) >= TICKS and kills >= KILLS

        try:
            wait_until(kill_one, f"{TICKS} ticks are fired and {KILLS} workers killed")
        finally:
            end(workers)
        end_sessions(app)
        fired = ticks_of(app)
        doubled = [tick for tick, count in Counter(fired).items() if count > 1]
        assert doubled == []
        seconds = int((fired[-1] - fired[0]).total_seconds())
        assert fired == [fired[0] + timedelta(seconds=n) for n in range(seconds + 1)]
        [schedule] = app.schedules()
        assert schedule.last_at == fired[-1]
        assert schedule.next_at is not None
        assert schedule.next_at > fired[-1]
        check(url)


def test_a_pass_killed_before_each_of_its_statements_fires_once_all_the_same(url: str) -> None:
    with make_app(url, FAR) as app:
        app.migrate()
        app.schedules()
        looked = [app._engine.run(lambda _: app._schedules.look(), "transaction") for _ in "12"]
        assert [tick for look in looked for tick in look.fired] == []
        let_days_pass(app, 3)
        statements = 0
        while True:
            process = start(look_and_die, url, FAR, statements)
            process.join(PATIENCE_SECONDS)
            if process.exitcode == 0:
                break
            assert process.exitcode == -signal.SIGKILL
            assert ticks_of(app) == [], "a part of the pass was kept"
            statements += 1
        # Read, hold, admit, advance; PostgreSQL has a form of its own for admit.
        assert statements == (4 if url.startswith("sqlite") else 5)
        assert len(ticks_of(app)) == 3
        check(url)


def test_a_pass_killed_after_its_commit_is_not_made_again(url: str) -> None:
    with make_app(url, FAR) as app:
        app.migrate()
        app._engine.run(lambda _: app._schedules.look(), "transaction")
        let_days_pass(app, 3)
        for _ in range(2):
            process = start(commit_and_die, url, FAR)
            process.join(PATIENCE_SECONDS)
            assert process.exitcode == -signal.SIGKILL
            assert len(ticks_of(app)) == 3
        check(url)
