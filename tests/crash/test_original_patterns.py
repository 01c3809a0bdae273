"""The well-known recipes against at-least-once delivery break as the guide says they do.

Each is run by a worker that ends at every boundary of the recipe, meets a service that refuses or
whose answer is lost, is redelivered two days later, or is paused past its lease.
"""

import json
import os
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from oncely import Oncely
from tests.crash.fleet import start
from tests.crash.load import TORTURE
from tests.crash.original_scenes import (
    AT_ONCE,
    COLUMNS,
    ENDED,
    ORIGINALS,
    RECIPES,
    Verdict,
    as_tuple,
    load,
    make_app,
    make_places,
    perform,
    receive_and_end,
)
from tests.crash.other_side import OtherSide
from tests.crash.stopping import let_leases_run_out
from tests.engine.steps import let_days_pass
from tests.waiting import PATIENCE_SECONDS, wait_until

pytest_plugins = ["tests.engine.ledger_fixtures"]
PAUSE_SECONDS = 600
TWO_DAYS_SECONDS = 2 * 86_400
WORST: tuple[Verdict, ...] = ("ok", "unrecorded", "lost", "doubled")

COUNT_CHANGES = """
create table changes (id text);
create trigger count_changes after update on trials
begin insert into changes values (new.id); end;
"""


@pytest.fixture(scope="module")
def service() -> Iterator[OtherSide]:
    with OtherSide() as service:
        yield service


@pytest.fixture(scope="module")
def redis(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A real one where it is installed, else rows that expire."""
    if shutil.which("redis-server") is None:
        return str(tmp_path_factory.mktemp("redis") / "rows.db")
    address: str = request.getfixturevalue("redis_url")
    return address


class Stage:
    """One recipe with its places, emptied for each performance."""

    def __init__(self, name: str, folder: Path, service: OtherSide, redis: str) -> None:
        self.name = name
        self.recipe = RECIPES[name]
        self.folder = folder
        self.service = service
        address = f"http://127.0.0.1:{service.port}/"
        self.places = make_places(str(folder / "shop.db"), address, redis)
        self.app = make_app(name, f"sqlite:///{folder / 'jobs.db'}", self.places)
        self.begin()
        self.names = self._perform() or []
        assert self.names
        self.wanted = self._rows()
        assert self._times() == 1
        effect = f"before {self.recipe.effect}"
        self.before_effect = len(self.names) - 1 - self.names[::-1].index(effect)

    def begin(self) -> None:
        for state in ("pending", "scheduled"):
            for job in self.app.jobs(state=state):
                self.app.cancel(job.job_id)
        self.service.done.clear()
        self.service.forget_keys()
        self.let_redis_wait(TWO_DAYS_SECONDS)
        (self.folder / "told").unlink(missing_ok=True)
        (self.folder / "shop.db").unlink(missing_ok=True)
        with closing(sqlite3.connect(self.places.database)) as db:
            db.executescript(load(self.name).TABLES)
            if self.name == "change_where_old":
                db.executescript(COUNT_CHANGES)
        self.job_id = self.app.enqueue("original", self.recipe.payload).job_id

    def _start(self, end_at: int | None = None, pause_at: int | None = None) -> Any:
        places = as_tuple(self.places)
        told = self.folder / "told"
        return start(perform, self.name, self.app.url, places, end_at, pause_at, told)

    def _perform(self, end_at: int | None = None) -> list[str] | None:
        process = self._start(end_at)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == (0 if end_at is None else ENDED)
        if end_at is not None:
            return None
        names: list[str] = json.loads((self.folder / "told").read_text())
        return names

    def let_redis_wait(self, seconds: int) -> None:
        """Its clock cannot be moved, but what ends by then can be removed."""
        if not self.places.redis.startswith("redis"):
            with closing(sqlite3.connect(self.places.redis, isolation_level=None)) as db:
                db.execute("create table if not exists entries (name primary key, value, ends)")
                db.execute("update entries set ends = ends - ?", (seconds,))
            return
        with closing(load("places").redis_at(self.places.redis)) as redis:
            for name in [*redis.keys("report:*"), *redis.keys("processed:*")]:
                left = redis.ttl(name)
                assert left > 0
                redis.expire(name, left - seconds)

    def ended_at(self, end_at: int, days: int = 0) -> Verdict:
        self.begin()
        self._perform(end_at)
        let_leases_run_out(self.app)
        if days:
            let_days_pass(self.app, days)
            self.let_redis_wait(days * 86_400)
            self.service.forget_keys()
        self.app.drain()
        return self.verdict()

    def met(self, *faults: Any) -> Verdict:
        self.begin()
        self.service.faults += faults
        self.app.drain()
        assert self.service.faults == []
        return self.verdict()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """A worker stops in the middle, loses its lease, and wakes up at the end of the block."""
        process = self._start(pause_at=self.names.index(self.recipe.pause))
        told = self.folder / "told"
        try:
            wait_until(told.exists)
            while self._file_is_locked():
                # Another thread of it was writing: it may go on until it is not.
                os.kill(process.pid, signal.SIGCONT)
            let_leases_run_out(self.app)
            yield
            told.unlink()
            os.kill(process.pid, signal.SIGCONT)
            process.join(PATIENCE_SECONDS)
            assert process.exitcode == 0
        finally:
            process.kill()

    def _file_is_locked(self) -> bool:
        time.sleep(0.05)
        path = self.folder / "jobs.db"
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as queue:
            try:
                queue.execute("begin immediate")
            except sqlite3.OperationalError:
                return True
            return False

    def woken_late(self) -> Verdict:
        self.begin()
        with self.paused():
            self.let_redis_wait(PAUSE_SECONDS)
            self.app.drain()
        return self.verdict()

    def verdict(self) -> Verdict:
        """By what is in the world; the queue was told that all is well, each time."""
        job = self.app.get(self.job_id)
        assert job is not None
        assert job.state == "completed"
        times = self._times()
        if self.name == "put_by_id" and times:
            return "ok" if self.service.last == "7: a red bicycle" else "lost"
        if times != 1:
            return "lost" if times == 0 else "doubled"
        return "ok" if self._rows() == self.wanted else "unrecorded"

    def _times(self) -> int:
        if self.recipe.effect == "call":
            return self.service.done.total()
        with closing(sqlite3.connect(self.places.database)) as db:
            query = {
                "change_where_old": "select count(*) from changes",
                "ledger_row": "select count(*) from payments",
            }[self.name]
            (times,) = db.execute(query).fetchone()
            return int(times)

    def _rows(self) -> Counter[str]:
        """Of all tables, whichever job wrote them and whenever."""
        with closing(sqlite3.connect(self.places.database)) as db:
            tables = db.execute("select name from sqlite_master where type = 'table'").fetchall()
            return Counter(
                f"{table}: {row}".replace(self.job_id, "the job")
                for (table,) in tables
                for row in db.execute(f"select * from {table}")
            )


# The prover finds every cell of the table in every run (tests/prove); here it is done by hand.
@pytest.fixture(params=RECIPES if TORTURE > 1 else [*RECIPES][::3])
def stage(
    request: pytest.FixtureRequest, tmp_path: Path, service: OtherSide, redis: str
) -> Iterator[Stage]:
    stage = Stage(request.param, tmp_path, service, redis)
    yield stage
    stage.app.close()


def worst(verdicts: list[Verdict]) -> Verdict:
    return max(verdicts, key=WORST.index)


def test_a_recipe_breaks_as_the_guide_says(stage: Stage) -> None:
    mark = stage.before_effect
    verdicts = [stage.ended_at(number) for number in range(len(stage.names))]
    reaches_out = stage.recipe.effect == "call"
    found: tuple[Verdict, ...] = (
        worst(verdicts[: mark + 1]),
        worst(verdicts[mark + 1 :]),
        stage.met("refuse") if reaches_out else "none",
        stage.met("lose the answer") if reaches_out else "none",
        worst([stage.ended_at(number, days=2) for number in (mark, mark + 1)]),
        stage.woken_late(),
    )
    where = list(zip(stage.names, verdicts, strict=True))
    assert dict(zip(COLUMNS, found, strict=True)) == dict(
        zip(COLUMNS, stage.recipe.truth, strict=True)
    ), where


def test_a_put_that_was_paused_replaces_a_newer_one(
    tmp_path: Path, service: OtherSide, redis: str
) -> None:
    """No crash harms it, but it wakes up with what it had read before."""
    stage = Stage("put_by_id", tmp_path, service, redis)
    stage.begin()
    with stage.paused():
        with closing(sqlite3.connect(stage.places.database, isolation_level=None)) as db:
            db.execute("update products set name = 'a blue bicycle'")
        stage.app.enqueue("original", "7")
        stage.app.drain()
        assert service.last == "7: a blue bicycle"
    assert service.last == "7: a red bicycle", "and it stays so"
    stage.app.close()


def test_an_event_that_comes_again_after_its_job_has_ended_is_processed_again(
    tmp_path: Path,
) -> None:
    recipe = load("key_while_active")
    event = {"id": "evt_1", "account": "ann"}
    places = make_places(str(tmp_path / "shop.db"), "", "")
    with (
        Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app,
        closing(sqlite3.connect(places.database)) as db,
    ):
        db.executescript(recipe.TABLES)
        handle = app.job("payment.received", retry=AT_ONCE)
        handle(lambda ctx, payload: recipe.handler(ctx, payload, places))
        process = start(receive_and_end, app.url, event)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == ENDED
        recipe.receive(app, event)
        app.drain()
        assert db.execute("select * from payments").fetchall() == [("ann",)], "not yet"
        recipe.receive(app, event)
        app.drain()
        assert db.execute("select * from payments").fetchall() == [("ann",), ("ann",)]


def test_the_stand_in_answers_as_redis_does(redis: str, tmp_path: Path) -> None:
    redis_at = load("places").redis_at
    answers = []
    for address in (redis, str(tmp_path / "rows.db")):
        with closing(redis_at(address)) as store:
            told = [store.set("stand-in", "1", nx=True, ex=100) for _ in "12"]
            told += [store.delete("stand-in") for _ in "12"]
            told += [store.set("stand-in", "2", nx=True, ex=100)]
            store.delete("stand-in")
            answers.append(told)
    assert answers[0] == answers[1] == [True, None, 1, 0, True]


def test_every_recipe_is_tried() -> None:
    files = {path.stem for path in ORIGINALS.glob("*.py")}
    assert files == {*RECIPES, "key_while_active", "places"}
