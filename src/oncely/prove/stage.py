"""The stage: one job in a copy of its store, a world around it, and schedules played on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.prove.clock import let_pass_on_postgres, let_pass_on_sqlite
from oncely.prove.delivery import QUEUE, Child, Ground, ask_in_child
from oncely.prove.downstream import Downstream
from oncely.prove.inherited import let_go
from oncely.prove.job_values import Place, as_lines
from oncely.prove.mailbox import Mailbox
from oncely.prove.schedule import Fault, Move, Schedule
from oncely.prove.watch import Act, Action, Hosts
from oncely.prove.world import Snapshot, Snapshots, Table, WorldItem, counted, labels
from oncely.store.deliver import reclaim
from oncely.store.postgres.engine import PostgresEngine
from oncely.store.sqlite.engine import SqliteEngine
from oncely.surface.app import Oncely

CHILDREN: Final = "jobs enqueued"
_LEASE_SECONDS: Final = 61.0
_PAUSE_SECONDS: Final = 600.0
_LATE_SECONDS: Final = 2 * 86_400.0
_DELIVERIES: Final = 25
_PATIENCE_SECONDS: Final = 1.5
"""A successor that stands still for so long waits for what the paused one holds."""
_HUNG_SECONDS: Final = 30.0
_RESTING: Final = ("completed", "failed", "cancelled", "in_doubt")
_ACTIONS: Final[dict[Fault, Action]] = {
    "crash": "crash",
    "late": "crash",
    "zombie": "pause",
    "overlap": "pause",
    "refuse": "refuse",
    "lose": "lose",
    "timeout": "timeout",
    "raise": "raise",
}


class Play(msgspec.Struct, frozen=True):
    """A schedule that was played to its end."""

    schedule: Schedule
    deliveries: list[Child]
    job: Job
    world: Snapshot
    hung: bool = False
    reached: bool = True
    """Whether each fault came to its boundary."""
    ahead_seconds: float = 0.0
    """How much time had passed at the end."""
    read_clock: bool = False


class Stage:
    def __init__(
        self,
        app: Oncely,
        kind: str,
        payload: Any,
        world: Sequence[WorldItem],
        *,
        shows_output: bool = False,
        by_line: bool = False,
        allow_hosts: Sequence[str] = (),
        accept: Sequence[str] = (),
    ) -> None:
        self.world = list(world)
        self.left_out_of_children: dict[str, set[Place]] = {}
        self.labels = labels(self.world)
        self.downstreams = [item for item in world if isinstance(item, Downstream)]
        self.ground = Ground(
            app,
            Hosts(
                frozenset(each.host for each in self.downstreams)
                | {each.address for each in world if isinstance(each, Mailbox)},
                frozenset(allow_hosts),
                frozenset(accept),
            ),
            shows_output=shows_output,
            by_line=by_line,
        )
        self._patient = None if shows_output else _HUNG_SECONDS
        try:
            self._observer = self._open(app)
            self._put_in(kind, payload)
        except BaseException:
            self.ground.copies.close()
            raise

    def _open(self, app: Oncely) -> Oncely:
        copies, engine = self.ground.copies, app._engine
        if isinstance(engine, SqliteEngine) and engine.path is not None:
            url = f"sqlite:///{copies.file(str(engine.path))}"
            self._schema = "oncely"
        elif isinstance(engine, PostgresEngine):
            let_go()
            url = copies.databases.add(app.url).conninfo()
            self._schema = engine.schema
        else:
            raise InvalidInput(
                "a proof needs a store that other processes can open: an SQLite file or "
                "PostgreSQL, not one in memory or behind a server"
            )
        for table in self.tables:
            if table.path is not None:
                copies.file(table.path)
            else:
                let_go()
                copies.databases.add(table.url)
            table.check(copies)
        if url.startswith("sqlite"):
            return Oncely(url)
        return Oncely(_as_url(url), schema=self._schema)

    @property
    def tables(self) -> list[Table]:
        return [item for item in self.world if isinstance(item, Table)]

    def labelled_tables(self) -> list[tuple[str, Table]]:
        return [
            (label, item)
            for label, item in zip(self.labels, self.world, strict=True)
            if isinstance(item, Table)
        ]

    def changed_files(self) -> list[str]:
        return self.ground.copies.files.changed()

    def changed_keys(self) -> list[str]:
        return self.ground.copies.redis.changed()

    def _put_in(self, kind: str, payload: Any) -> None:
        self._known = {job.job_id for job in self._observer.jobs(limit=1000)}
        # Room for every fault: what a handler does when it has used up its attempts is not asked.
        receipt = self._observer.enqueue(kind, payload, queue=QUEUE, max_attempts=20)
        self.job_id = receipt.job_id
        self._known.add(self.job_id)
        engine = self._observer._engine
        if isinstance(engine, SqliteEngine):
            self.ground.copies.keep_copy(str(engine.path))
        for database in self.ground.copies.databases.all:
            self._forget_connections()
            database.keep()
        self.restore()
        self.before = self.snapshot()

    def restore(self) -> None:
        engine = self._observer._engine
        engine.pause()
        self._forget_connections()
        try:
            self.ground.copies.restore()
        finally:
            engine.resume()
        self.ground.clock.reset()
        for each in self.world:
            reset = getattr(each, "reset", None)
            if callable(reset):
                reset()

    def _forget_connections(self) -> None:
        engine = self._observer._engine
        if isinstance(engine, PostgresEngine):
            engine._forget_idle()

    def snapshot(self) -> Snapshot:
        found: Snapshot = {}
        others: list[tuple[str, Any]] = []
        for label, item in zip(self.labels, self.world, strict=True):
            match item:
                case Table():
                    found[label] = counted(item.rows(self.ground.copies))
                case Downstream() | Mailbox():
                    found[label] = counted(item.snapshot())
                case _:
                    others.append((label, item))
        if others:
            found.update(self._ask(others))
        jobs = self._observer.jobs(limit=1000)
        children = [job for job in reversed(jobs) if job.job_id not in self._known]
        found[CHILDREN] = as_lines(children, self.left_out_of_children)
        return found

    def _ask(self, others: list[tuple[str, Any]]) -> Snapshot:
        """In a child, where the copies stand for the originals."""

        def question() -> bytes:
            told = {
                label: counted(item.snapshot() if isinstance(item, Snapshots) else item())
                for label, item in others
            }
            return msgspec.json.encode(told)

        answer = ask_in_child(self.ground, question)
        read = msgspec.json.decode(answer, type=dict[str, dict[str, int]])
        return {label: Counter(lines) for label, lines in read.items()}

    @property
    def job(self) -> Job:
        job = self._observer.get(self.job_id)
        assert job is not None
        return job

    def play(
        self, schedule: Schedule, *, happened: bool | None = None, after_seconds: float = 0.0
    ) -> Play:
        """From the beginning to the end. `happened` is what a person says of each doubt,
        `after_seconds` the time that passes before the first delivery."""
        while True:
            try:
                return self._play(schedule, happened, after_seconds)
            except _BeginAnew:
                continue

    def _play(self, schedule: Schedule, happened: bool | None, after_seconds: float) -> Play:
        self.restore()
        if after_seconds:
            self.let_pass(after_seconds)
        deliveries: list[Child] = []
        hung, reached = False, True
        try:
            moves = iter(schedule.moves)
            for move in moves:
                inner = next(moves) if move.fault == "overlap" else None
                reached = self._suffer(move, inner, deliveries) and reached
            self._deliver_until_rest(deliveries)
            for _ in range(5):
                if happened is None or self.job.state != "in_doubt":
                    break
                self._answer(happened=happened)
                self._deliver_until_rest(deliveries)
        except _Hung:
            hung = True
        finally:
            for child in deliveries:
                child.kill()
            if any(child.has_started_processes for child in deliveries):
                self.ground.copies.end_processes()
        clock = self.ground.clock
        return Play(
            schedule,
            deliveries,
            self.job,
            self.snapshot(),
            hung,
            reached,
            clock.ahead_seconds,
            clock.was_read,
        )

    def _suffer(self, move: Move, inner: Move | None, deliveries: list[Child]) -> bool:
        """One delivery with its fault, and the time after it; whether the fault struck. `inner` is
        the fault of the successor, while this one is paused."""
        self._make_due()
        child = self._start(Act(_ACTIONS[move.fault], move.at), deliveries)
        end = self._wait(child)
        if end == "paused":
            self.let_pass(_PAUSE_SECONDS)
            return self._succeed(child, inner, deliveries)
        if end == "crashed" and move.fault == "late":
            self.let_pass(_LATE_SECONDS)
            for each in self.downstreams:
                each.let_days_pass()
        return child.was_struck

    def _succeed(self, paused: Child, inner: Move | None, deliveries: list[Child]) -> bool:
        """The successor runs to its end while the first one stands still; then that goes on."""
        self._take_back()
        act = None if inner is None else Act(_ACTIONS[inner.fault], inner.at)
        child = self._start(act, deliveries)
        if child.wait(_PATIENCE_SECONDS) is None:
            paused.resume()  # it holds what the successor waits for
            self._wait(child)
        else:
            if inner is None:
                self._deliver_until_rest(deliveries)
            paused.resume()
        self._wait(paused)
        return inner is None or child.was_struck

    def _deliver_until_rest(self, deliveries: list[Child]) -> None:
        for _ in range(_DELIVERIES):
            if not self._make_due():
                return
            self._wait(self._start(None, deliveries))

    def _make_due(self) -> bool:
        """What the job waits for goes by; whether it may be delivered then."""
        job = self.job
        if job.state == "running":
            self.let_pass(_LEASE_SECONDS)
            self._take_back()
        elif job.state == "scheduled":
            self.let_pass(max(1.0, (job.due_at - datetime.now(UTC)).total_seconds() + 1))
        return job.state not in _RESTING

    def _take_back(self) -> None:
        """What a worker does now and then: the jobs of the dead are due again."""
        self._observer._engine.run(lambda _: reclaim(100), "transaction")

    def _start(self, act: Act | None, deliveries: list[Child]) -> Child:
        child = Child(self.ground, act)
        deliveries.append(child)
        return child

    def _wait(self, child: Child) -> str:
        end = child.wait(self._patient)
        if end is None:
            child.kill()
            raise _Hung
        if end == "imports":
            raise _BeginAnew
        return end

    def _answer(self, *, happened: bool) -> None:
        for effect in self.job.effects:
            if effect.state == "in_doubt":
                self._observer.resolve(self.job_id, effect.name, happened=happened)

    def let_pass(self, seconds: float) -> None:
        self.ground.clock.advance(seconds)
        for path in self.ground.copies.stores():
            let_pass_on_sqlite(path, seconds)
        for conninfo in self.ground.copies.databases.conninfos():
            let_pass_on_postgres(conninfo, self._schema, seconds)
        self.ground.copies.redis.let_pass(seconds)

    def close(self) -> None:
        self._observer.close()
        self.ground.copies.close()


class _BeginAnew(Exception):
    """A library came in that has to be watched."""


class _Hung(Exception):
    """A delivery that comes to no end."""


def _as_url(conninfo: str) -> str:
    """A PostgreSQL store is named by a URL."""
    from urllib.parse import quote, urlencode

    from psycopg.conninfo import conninfo_to_dict

    parts = {name: str(value) for name, value in conninfo_to_dict(conninfo).items()}
    name = quote(parts.pop("dbname", ""), safe="")
    return f"postgresql:///{name}?{urlencode(parts)}"
