"""The examples of effects do what they say, also when their worker ends at every boundary."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncely.store.deliver import reclaim
from tests.crash.effect_scenes import ENDED
from tests.crash.example_scenes import NAMES, deliver, load, make_app
from tests.crash.fleet import start

PATIENCE_SECONDS = 60
pytestmark = pytest.mark.timeout(300)


class Stage:
    def __init__(self, name: str, folder: Path) -> None:
        folder.mkdir()
        self.name = name
        self.folder = folder
        self.path = folder / "jobs.db"
        self.url = f"sqlite:///{self.path}"
        self.app = make_app(name, self.url, folder)
        with closing(sqlite3.connect(self.path)) as connection:
            connection.executescript(getattr(load(name), "TABLES", ""))
        module = load(name)
        self.job_id = module.publish(self.app).job_id
        assert not module.publish(self.app).inserted

    def deliver(self, end_at: int | None) -> list[str] | None:
        told = self.folder / "told"
        process = start(deliver, self.name, self.url, self.folder, end_at, told)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode in (0, ENDED)
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            connection.execute("update oncely_lease set expires_at = 0")
        self.app._engine.run(lambda _: reclaim(100), "transaction")
        if process.exitcode == ENDED:
            return None
        names: list[str] = json.loads(told.read_text())
        return names

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
        with closing(sqlite3.connect(self.path)) as connection:
            tables = connection.execute(
                "select name from sqlite_master where type = 'table' "
                "and name not like 'oncely%' and name not like 'sqlite%' order by name"
            ).fetchall()
            for (table,) in tables:
                rows = connection.execute(f"select * from {table}")
                done += [(table, str(row).replace(self.job_id, "the job")) for row in rows]
        return done

    def ended(self) -> bool:
        jobs = self.app.jobs(limit=100)
        return all(job.state == "completed" for job in jobs)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_ended_at_every_boundary_leaves_the_same_world(
    name: str, tmp_path: Path
) -> None:
    clean = Stage(name, tmp_path / "clean")
    names = clean.deliver(None)
    assert names
    wanted = clean.world()
    assert clean.ended()
    assert wanted
    clean.app.close()
    held = 0
    for end_at in range(len(names)):
        stage = Stage(name, tmp_path / str(end_at))
        assert stage.deliver(end_at) is None
        assert stage.deliver(None) is not None
        held += (stuck := stage.resolve())
        if stuck:
            assert stage.deliver(None)
        assert stage.ended(), f"ended at {end_at}, {names[end_at]}"
        assert stage.world() == wanted, f"ended at {end_at}, {names[end_at]}"
        stage.app.close()
    assert (held > 0) == (name == "notification"), "only that one needs a person"


def test_they_are_short() -> None:
    for path in (Path(__file__).parents[2] / "examples" / "effects").glob("*.py"):
        assert len(path.read_text().splitlines()) <= 50, path
