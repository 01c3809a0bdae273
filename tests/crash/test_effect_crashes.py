"""A worker process ends at every boundary of every verb; then the job is delivered again.

Exactly once for what commits with the job and for what goes by a key; at most once, and held for a
person where nobody can know, for the rest; and nothing is ever lost.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from oncely import Job, Oncely
from tests.cluster import Cluster
from tests.crash.checker import check
from tests.crash.effect_scenes import ENDED, deliver, make_app
from tests.crash.fleet import start
from tests.crash.load import TORTURE, times
from tests.crash.other_side import OtherSide
from tests.crash.stopping import let_leases_run_out
from tests.engine.steps import found, sql
from tests.seed import dice
from tests.spares import Spares
from tests.waiting import PATIENCE_SECONDS

EXACTLY_ONCE = (
    "transaction_async",
    "transaction_def",
    "complete_async",
    "complete_def",
    "step_async",
    "step_def",
    "verified",
)
AT_MOST_ONCE = ("fence_async", "fence_def", "cleared")
pytestmark = pytest.mark.timeout(600 * TORTURE)


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """One store for all of them: each job has a queue of its own."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('effects') / 'jobs.db'}"
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    spares: Spares = request.getfixturevalue("spares")
    name = spares.take()
    yield cluster.url(name)
    spares.give_back(name)


@pytest.fixture(scope="module")
def other_side() -> Iterator[OtherSide]:
    with OtherSide() as other_side:
        yield other_side


@pytest.fixture(scope="module")
def app(place: str, other_side: OtherSide) -> Iterator[Oncely]:
    with make_app(place, other_side.port) as app:
        app.migrate()
        sql(app, "create table written (name text)")
        yield app
        check(place)


class Scene:
    """One job, alone in its queue."""

    def __init__(self, app: Oncely, other_side: OtherSide, kind: str, folder: Path) -> None:
        self.app = app
        self.other_side = other_side
        self.name = f"{kind}-{uuid4().hex}"
        self._told = folder / self.name
        self.job_id = app.enqueue(kind, self.name, queue=self.name).job_id

    def deliver(self, end_at: int | None) -> list[str] | None:
        """In a process of its own; the boundaries it passed, or None if it ended at one."""
        process = start(deliver, self.app.url, self.other_side.port, self.name, end_at, self._told)
        process.join(PATIENCE_SECONDS)
        assert process.exitcode in (0, ENDED), process.exitcode
        let_leases_run_out(self.app)
        if process.exitcode == ENDED:
            return None
        names: list[str] = json.loads(self._told.read_text())
        return names

    def deliver_by_healthy_worker(self) -> Job:
        asyncio.run(self.app.worker(queues=[self.name], concurrency=1).drain())
        return self.job

    @property
    def job(self) -> Job:
        return found(self.app, self.job_id)

    @property
    def times_done(self) -> int:
        [(rows,)] = sql(self.app, "select count(*) from written where name = :name", name=self.name)
        return self.other_side.done[self.name] + int(rows)

    def resolve_by_what_is_true(self) -> None:
        assert self.job.state == "in_doubt"
        happened = self.times_done == 1
        self.app.resolve(
            self.job_id, "send", happened=happened, result="seen" if happened else None
        )


def boundaries(app: Oncely, other_side: OtherSide, kind: str, folder: Path) -> list[str]:
    """By a run in which nothing goes wrong."""
    scene = Scene(app, other_side, kind, folder)
    names = scene.deliver(None)
    assert names is not None
    assert (scene.job.state, scene.times_done) == ("completed", 1)
    assert {"before effect", "after effect"} <= set(names)
    return names


def in_turn(names: list[str], app: Oncely) -> list[tuple[int, str]]:
    """In a usual run every other boundary on SQLite and those between on PostgreSQL; under torture
    all of them on both."""
    first = 0 if TORTURE > 1 or app.url.startswith("sqlite") else 1
    return [*enumerate(names)][first :: 1 if TORTURE > 1 else 2]


@pytest.mark.parametrize("kind", EXACTLY_ONCE)
def test_ended_at_every_boundary_it_happens_exactly_once(
    app: Oncely, other_side: OtherSide, kind: str, tmp_path: Path
) -> None:
    names = boundaries(app, other_side, kind, tmp_path)
    for end_at, name in in_turn(names, app):
        scene = Scene(app, other_side, kind, tmp_path)
        assert scene.deliver(end_at) is None, f"it did not come to boundary {end_at}, {name}"
        job = scene.deliver_by_healthy_worker()
        where = f"ended at {end_at}, {name}"
        assert (job.state, scene.times_done) == ("completed", 1), where
    print(f"N={len(names)} boundaries of {kind}: {names}")


@pytest.mark.parametrize("kind", AT_MOST_ONCE)
def test_ended_at_every_boundary_a_fence_happens_at_most_once_and_is_held(
    app: Oncely, other_side: OtherSide, kind: str, tmp_path: Path
) -> None:
    names = boundaries(app, other_side, kind, tmp_path)
    held, done = [], []
    ends = in_turn(names, app)
    for end_at, name in ends:
        scene = Scene(app, other_side, kind, tmp_path)
        assert scene.deliver(end_at) is None
        job = scene.deliver_by_healthy_worker()
        where = f"ended at {end_at}, {name}"
        assert scene.times_done <= 1, where
        if job.state == "in_doubt":
            held.append(end_at)
            done.append(scene.times_done)
            scene.resolve_by_what_is_true()
            job = scene.deliver_by_healthy_worker()
        assert (job.state, scene.times_done) == ("completed", 1), where
    assert held == [n for n in in_doubt_between(names, app) if (n, names[n]) in ends]
    effect = names.index("after effect")
    assert done == [int(n >= effect) for n in held], "held without the effect, then with it"
    print(f"N={len(names)} boundaries of {kind}, held at {[names[n] for n in held]}")


BY_ITSELF = {"after effect_begin", "after effect_done_whole+effect_held"}
"""On PostgreSQL: the answer to each of them is the answer to its commit."""


def in_doubt_between(names: list[str], app: Oncely) -> list[int]:
    """After the commit of an intent, up to the commit of what ends it."""
    inside: list[int] = []
    begun, last = False, ""
    for number, name in enumerate(names):
        if name.startswith("after effect_"):
            last = name
        by_itself = app.url.startswith("postgresql") and name in BY_ITSELF
        if last and (by_itself or name == "after commit"):
            begun = last == "after effect_begin"
            last = ""
        if begun:
            inside.append(number)
    return inside


@pytest.mark.torture
@pytest.mark.parametrize("kind", [*EXACTLY_ONCE, *AT_MOST_ONCE])
def test_two_ends_in_a_row(app: Oncely, other_side: OtherSide, kind: str, tmp_path: Path) -> None:
    """The second delivery ends too, wherever it is by then. Some pairs, more under torture."""
    names = boundaries(app, other_side, kind, tmp_path)
    chance = dice(f"two ends of {kind}")
    numbers = range(len(names))
    pairs = [(first, second) for first in numbers for second in numbers]
    pairs = chance.sample(pairs, min(len(pairs), times(1)))
    ended_twice = 0
    for first, second in pairs:
        scene = Scene(app, other_side, kind, tmp_path)
        assert scene.deliver(first) is None
        ended_twice += scene.deliver(second) is None
        job = scene.deliver_by_healthy_worker()
        where = f"ended at {first}, {names[first]}, then at {second}"
        assert scene.times_done <= 1, where
        if job.state == "in_doubt" and kind in AT_MOST_ONCE:
            scene.resolve_by_what_is_true()
            job = scene.deliver_by_healthy_worker()
        assert (job.state, scene.times_done) == ("completed", 1), where
    print(f"N={len(pairs)} pairs of {kind}, {ended_twice} of them ended twice")
