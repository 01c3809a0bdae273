"""The examples of effects do what they say on both engines, also when their worker ends at every
boundary."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from oncely import Job
from tests.crash.effect_scenes import ENDED
from tests.crash.example_scenes import EXAMPLES, NAMES, deliver, load, make_app
from tests.crash.fleet import start
from tests.crash.load import TORTURE
from tests.crash.stopping import let_leases_run_out
from tests.engine.steps import Backdoor, engine_of, let_days_pass
from tests.waiting import PATIENCE_SECONDS, wait_until

OURS = {
    "sqlite": "select substr(name, 8) from sqlite_master where type = 'table' "
    "and name like 'oncely%'",
    "postgres": "select tablename from pg_tables where schemaname = 'oncely'",
}
CONNECTED = (
    "select pid from pg_stat_activity "
    "where datname = current_database() and starts_with(application_name, 'oncely')"
)


class Stage:
    """One example on one store, which is emptied for each performance."""

    def __init__(self, name: str, url: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self.app = make_app(name, url, folder)
        self.app.migrate()
        self._door = Backdoor(self.app)
        self._ours = [table for (table,) in self._door.sql(OURS[engine_of(self.app)])]
        assert {"job", "lease", "effect"} <= set(self._ours)
        tables = getattr(load(name), "TABLES", "")
        self._set_up = [line for line in tables.split(";") if line.strip()]
        self._tables = [line.split()[2] for line in self._set_up if "create table" in line]

    def begin(self) -> None:
        """Nothing has happened yet; the job is published, twice."""
        for table in self._ours:
            if table not in ("migration", "store"):
                self._door.sql(f"delete from oncely.{table}")
        for table in self._tables:
            self._door.sql(f"drop table if exists {table}")
        for statement in self._set_up:
            self._door.sql(statement)
        for file in self.folder.glob("*.jsonl"):
            file.unlink()
        publish = load(self.name).publish
        self.job_id = publish(self.app).job_id
        assert not publish(self.app).inserted

    def deliver(self, end_at: int | None) -> list[str] | None:
        """By a process of its own; the boundaries it passed, or None if it ended at one."""
        told = self.folder / "told"
        before = self._connected()
        process = start(deliver, self.name, self.app.url, self.folder, end_at, told)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode in (0, ENDED)
        # What it had locked is locked until the server has noticed as well.
        wait_until(lambda: not self._connected() - before, "the server notices that it is gone")
        let_leases_run_out(self.app)
        if process.exitcode == ENDED:
            return None
        names: list[str] = json.loads(told.read_text())
        return names

    def _connected(self) -> set[int]:
        if engine_of(self.app) == "sqlite":
            return set()
        return {pid for (pid,) in self._door.sql(CONNECTED)}

    def resolve(self) -> int:
        held = self.app.jobs(state="in_doubt")
        for job in held:
            happened = bool(self.world())
            self.app.resolve(job.job_id, "page", happened=happened, by="ann", note="asked her")
        return len(held)

    def world(self) -> list[Any]:
        """All that was done to it: by the services, and in the tables of the example."""
        done = [
            (file.name, line.replace(self.job_id, "the job"))
            for file in sorted(self.folder.glob("*.jsonl"))
            for line in file.read_text().splitlines()
        ]
        for table in self._tables:
            rows = self._door.sql(f"select * from {table}")
            done += [(table, str(row).replace(self.job_id, "the job")) for row in rows]
        return done

    def open_jobs(self) -> list[Job]:
        return [job for job in self.app.jobs(limit=100) if job.state != "completed"]

    def close(self) -> None:
        self._door.close()
        self.app.close()


@pytest.fixture(params=NAMES)
def stage(
    request: pytest.FixtureRequest, migrated: None, url: str, tmp_path: Path
) -> Iterator[Stage]:
    stage = Stage(request.param, url, tmp_path)
    yield stage
    stage.close()


def test_an_example_ended_at_every_boundary_leaves_the_same_world(stage: Stage) -> None:
    stage.begin()
    names = stage.deliver(None)
    assert names
    wanted = stage.world()
    assert stage.open_jobs() == []
    assert wanted
    held = 0
    # The boundaries are those of the verbs, which test_effect_crashes.py ends at on both engines.
    every = 1 if TORTURE > 1 else 3
    for end_at, name in [*enumerate(names)][::every]:
        stage.begin()
        assert stage.world() != wanted
        assert stage.deliver(end_at) is None
        stage.app.drain()
        held += (stuck := stage.resolve())
        if stuck:
            assert stage.app.drain()
        assert stage.open_jobs() == [], f"ended at {end_at}, {name}"
        assert stage.world() == wanted, f"ended at {end_at}, {name}"
    assert (held > 0) == (stage.name == "notification"), "only that one needs a person"
    print(f"N={len(names)} boundaries of {stage.name} on {engine_of(stage.app)}")


@pytest.mark.parametrize("answer_is_lost", [False, True], ids=["refused", "answer lost"])
def test_an_example_whose_other_side_fails_once_leaves_the_same_world(
    stage: Stage, answer_is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.begin()
    stage.app.drain()
    wanted = stage.world()
    service = load("world").Service
    do = service.do
    failed: list[Any] = []

    def do_and_fail_once(self: Any, *what: Any) -> None:
        first = not failed
        failed.append(what)
        if answer_is_lost or not first:
            do(self, *what)
        if first:
            raise OSError(errno.ETIMEDOUT if answer_is_lost else errno.ECONNREFUSED, "as told")

    stage.begin()
    monkeypatch.setattr(service, "do", do_and_fail_once)
    stage.app.drain()
    assert (not failed) == (stage.name in ("sync", "trial")), "those call nobody"
    held = stage.resolve()
    assert held == (answer_is_lost and stage.name == "notification")
    let_days_pass(stage.app, 0.5)
    stage.app.drain()
    assert stage.open_jobs() == []
    assert stage.world() == wanted


@pytest.mark.parametrize("stage", ["charge"], indirect=True)
def test_a_charge_that_comes_again_when_its_key_may_be_forgotten_is_held(stage: Stage) -> None:
    stage.begin()
    names = stage.deliver(None)
    assert names
    stage.begin()
    stage.deliver(names.index("after effect"))
    charged = stage.world()
    let_days_pass(stage.app, 2)
    stage.app.drain()
    job = stage.app.get(stage.job_id)
    assert job is not None
    assert (job.state, stage.world()) == ("in_doubt", charged)


def test_they_are_short() -> None:
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text().splitlines()) <= 65, path
