"""The stage: one job in a copy of its store, a world around it, and schedules played on it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.prove import processes
from oncely.prove.blocking import is_in_the_way
from oncely.prove.checkpoints import Checkpoint, Checkpoints
from oncely.prove.child import Child, Delivery
from oncely.prove.clock import let_pass_on_mysql, let_pass_on_sqlite, move_on_postgres
from oncely.prove.databases import as_url
from oncely.prove.default_tables import DefaultTable, find_default_tables
from oncely.prove.delivery import QUEUE, Ground, ask_in_child
from oncely.prove.downstream import Downstream
from oncely.prove.generated_values import GeneratedValues
from oncely.prove.inherited import let_go
from oncely.prove.job_values import Place, as_lines
from oncely.prove.mailbox import Mailbox
from oncely.prove.play import BeginAnew, Hung, NotFresh, Play
from oncely.prove.readers import Readers
from oncely.prove.schedule import Move, Schedule
from oncely.prove.seams.everywhere import Everywhere
from oncely.prove.watch import Act, Hosts, Note
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
"""A successor that stands still for so much longer than a clean run takes waits for the paused
one, in a way that nothing shows."""
_HUNG_AGAIN_SECONDS: Final = 5.0
"""A handler that came to no end once is broken, and is not waited for so long again."""
_ANSWERS: Final = 5
"""A person says no more than that of one job."""
_ENDS: Final = ("crash", "late", "fresh")
"""The faults by which a process ends."""
_RECORD: Final = Act("record", 0)
_RESTING: Final = ("completed", "failed", "cancelled", "in_doubt")


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
        self.named_labels = list(self.labels)
        """Without those of tables that are compared though nobody has named them."""
        self.generated = GeneratedValues()
        for table in self.tables:
            if table.compare_generated:
                self.generated.compare(table.name)
        self._looked_at: set[str] = set()
        self.downstreams = [item for item in world if isinstance(item, Downstream)]
        self.ground = Ground(
            app,
            world,
            Hosts(
                frozenset(each.host for each in self.downstreams)
                | {each.address for each in world if isinstance(each, Mailbox)},
                frozenset(allow_hosts),
                frozenset(accept),
            ),
            shows_output=shows_output,
            by_line=by_line,
        )
        self._clean_seconds = 0.0
        self._held: tuple[Play, Checkpoint] | None = None
        """The last schedule that ended in doubt, and what it left."""
        self.kind = kind
        self._is_next_fresh = False
        self._hung_seconds = processes.HUNG_SECONDS
        try:
            self._observer = self._open(app)
            self._put_in(kind, payload)
        except BaseException:
            self.ground.close()
            raise

    def _open(self, app: Oncely) -> Oncely:
        copies, engine = self.ground.copies, app._engine
        if isinstance(engine, PostgresEngine) or any(table.path is None for table in self.tables):
            let_go()
        if isinstance(engine, SqliteEngine) and engine.path is not None:
            url = f"sqlite:///{copies.file(str(engine.path))}"
            self._schema = "oncely"
        elif isinstance(engine, PostgresEngine):
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
                copies.databases.add_server(table.url)
            table.check(copies)
        is_file = url.startswith("sqlite")
        observer = Oncely(url) if is_file else Oncely(as_url(url), schema=self._schema)
        # Once here, so that no child has to read them.
        observer._engine.library.read_all(*((":{name}",) if is_file else ("%({name})s", "${n}")))
        return observer

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
        for database in self.ground.copies.databases.servers():
            self._forget_connections()
            database.keep()
        self._checkpoints = Checkpoints(self.ground, self.ground.copies.checkpoints)
        self._first_job = self._observer.get(self.job_id)
        self.restore()
        self.before: Snapshot = {}
        self.before |= self.snapshot()

    def restore(self) -> None:
        with self._disconnected():
            self.ground.copies.restore(self._forget_connections)
        self._job = self._first_job
        self.ground.clock.reset()
        for each in self.world:
            reset = getattr(each, "reset", None)
            if callable(reset):
                reset()

    def _load(self, saved: Checkpoint) -> None:
        with self._disconnected():
            self.ground.copies.load(saved.files, saved.rows, self._forget_connections)
        self._job = None
        self.ground.clock.saved = saved.clock
        self.ground.load_memories(saved.memories)

    @contextmanager
    def _disconnected(self) -> Iterator[None]:
        engine = self._observer._engine
        engine.pause()
        try:
            yield
        finally:
            engine.resume()

    def _forget_connections(self) -> None:
        engine = self._observer._engine
        if isinstance(engine, PostgresEngine):
            engine._forget_idle()

    def snapshot(self) -> Snapshot:
        found: Snapshot = {}
        others: list[tuple[str, Any]] = []
        self._add_default_tables()
        with Readers(self.ground.copies) as readers:
            for label, item in zip(self.labels, self.world, strict=True):
                match item:
                    case Table():
                        found[label] = counted(item.rows(readers, self.generated))
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

    def _add_default_tables(self) -> None:
        """Of the databases that were copied since the last snapshot."""
        copies = self.ground.copies
        named = [table for table in self.tables if not isinstance(table, DefaultTable)]
        tables = list(find_default_tables(copies, named, self._looked_at, self._schema))
        with Readers(copies) as readers:
            for table in tables:
                label = f"table {table.name}"
                if label in self.labels:
                    label = f"table {table.name} of {table.url}"
                self.world.append(table)
                self.labels.append(label)
                self.before[label] = counted(table.rows(readers, first=True))

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
        if self._job is None:
            self._job = self._observer.get(self.job_id)
        assert self._job is not None
        return self._job

    def play(
        self,
        schedule: Schedule,
        *,
        fresh: bool = False,
        after_seconds: float = 0.0,
        records: bool = False,
    ) -> Play:
        """From the beginning to the end, or until it is in doubt. `fresh`: the first delivery is in
        a fresh interpreter. `after_seconds`: the time that passes before the first delivery.
        `records`: schedules will be played in which the first delivery after these faults ends."""

        def act(deliveries: list[Delivery]) -> bool:
            self._is_next_fresh = fresh
            deliveries += self._begin(schedule)
            if after_seconds:
                self.let_pass(after_seconds)
            began = time.monotonic()
            reached = self._suffer_all(schedule.moves[len(deliveries) :], deliveries)
            if records:
                self._deliver_and_record(schedule, deliveries)
            self._deliver_until_rest(deliveries)
            if not schedule.moves:
                if not records:
                    self._clean_seconds = max(self._clean_seconds, time.monotonic() - began)
                for child in deliveries:
                    self.generated.learn(child.messages)
            return reached

        play = self._play(schedule, act)
        self._held = None
        if play.job.state == "in_doubt" and (saved := self._checkpoints.save(play.deliveries)):
            self._held = play, saved
        return play

    def answer(self, play: Play, *, happened: bool) -> Play:
        """How it goes on if a person says that of each doubt."""

        def act(deliveries: list[Delivery]) -> bool:
            if self._held is not None and self._held[0] is play:
                self._load(self._held[1])
                deliveries += play.deliveries
                reached = play.reached
            else:
                self._is_next_fresh = False
                deliveries += self._begin(play.schedule)
                moves = play.schedule.moves[len(deliveries) :]
                reached = self._suffer_all(moves, deliveries)
                self._deliver_until_rest(deliveries)
            for _ in range(_ANSWERS):
                if self.job.state != "in_doubt":
                    break
                self._answer(happened=happened)
                self._deliver_until_rest(deliveries)
            return reached

        return self._play(play.schedule, act)

    def _play(self, schedule: Schedule, act: Callable[[list[Delivery]], bool]) -> Play:
        """`act` makes the deliveries, and tells whether each fault came to its boundary."""
        while True:
            try:
                return self._play_once(schedule, act)
            except BeginAnew:  # with a library that was not there before
                self.ground.end_templates()
                self.ground.copies.everywhere = Everywhere()

    def _play_once(self, schedule: Schedule, act: Callable[[list[Delivery]], bool]) -> Play:
        deliveries: list[Delivery] = []
        hung, reached = "", True
        try:
            reached = act(deliveries)
        except Hung as error:
            hung = str(error)
            self._hung_seconds = _HUNG_AGAIN_SECONDS
        finally:
            for child in deliveries:
                child.kill()
            if any(child.has_started_processes for child in deliveries):
                self.ground.end_templates()
                self.ground.copies.end_processes()
            self.ground.end_templates(if_stale=True)
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

    def _begin(self, schedule: Schedule) -> list[Delivery]:
        """Put everything back, or begin with what is left after the first faults, if that is
        saved; the deliveries that have left it."""
        deliveries: list[Delivery] = []
        saved = None
        for number, move in enumerate(schedule.moves):
            found = self._checkpoints.find(schedule.moves[:number], move.at)
            if found is None or move.fault not in _ENDS:
                break
            saved = found
            struck = Note("struck", found.last.name)
            deliveries.append(Delivery([*found.messages, struck], found.began))
        if saved is None:
            self.restore()
        else:
            self._load(saved)
            self._let_end(schedule.moves[len(deliveries) - 1])
        return deliveries

    def _suffer_all(self, moves: Sequence[Move], deliveries: list[Delivery]) -> bool:
        """Whether each fault came to its boundary."""
        reached, coming = True, iter(moves)
        for move in coming:
            inner = next(coming) if move.fault == "overlap" else None
            reached = self._suffer(move, inner, deliveries) and reached
        return reached

    def _let_end(self, move: Move) -> None:
        """What comes after a delivery that was ended."""
        self._is_next_fresh = move.fault == "fresh"
        if move.fault == "late":
            self.let_pass(_LATE_SECONDS)
            for each in self.downstreams:
                each.let_days_pass()

    def _deliver_and_record(self, schedule: Schedule, deliveries: list[Delivery]) -> None:
        """One delivery, and what it would leave if it ended at one of its boundaries."""
        if not self._checkpoints.are_taken or not self._make_due():
            return
        child = self._start(_RECORD, deliveries)
        while self._wait(child, deliveries) == "paused":
            self._checkpoints.take(schedule.moves, child)
            child.go_on()
        self._checkpoints.end(child)

    def _suffer(self, move: Move, inner: Move | None, deliveries: list[Delivery]) -> bool:
        """One delivery with its fault, and the time after it; whether the fault struck. `inner` is
        the fault of the successor, while this one is paused."""
        self._make_due()
        child = self._start(move.act, deliveries)
        end = self._wait(child, deliveries)
        if end == "paused":
            self.let_pass(_PAUSE_SECONDS)
            return self._succeed(child, inner, deliveries)
        if end == "crashed":
            self._let_end(move)
        return child.was_struck

    def _succeed(self, paused: Child, inner: Move | None, deliveries: list[Delivery]) -> bool:
        """The successor runs to its end while the first one stands still; then that goes on."""
        self._take_back()
        act = None if inner is None else inner.act
        child = self._start(act, deliveries)
        patience = _PATIENCE_SECONDS + 2 * self._clean_seconds
        databases = self.ground.copies.databases
        conninfos, mysql = databases.conninfos(), databases.mysql
        if child.wait(patience, lambda: is_in_the_way(paused.process, conninfos, mysql)) is None:
            paused.resume()  # it holds what the successor waits for
            self._wait(child, deliveries)
        else:
            if inner is None:
                self._deliver_until_rest(deliveries)
            paused.resume()
        self._wait(paused, deliveries)
        return inner is None or child.was_struck

    def _deliver_until_rest(self, deliveries: list[Delivery]) -> None:
        for _ in range(_DELIVERIES):
            if not self._make_due():
                return
            self._wait(self._start(None, deliveries), deliveries)

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
        self._job = None
        self._observer._engine.run(lambda _: reclaim(100), "transaction")

    def _start(self, act: Act | None, deliveries: list[Delivery]) -> Child:
        self._job = None
        # A handler may do what needs the file for itself.
        self._observer._engine.pause()
        self._observer._engine.resume()
        child = Child(self.ground, act, self.kind if self._is_next_fresh else None)
        self._is_next_fresh = False
        deliveries.append(child)
        return child

    def _wait(self, child: Child, deliveries: list[Delivery]) -> str:
        self._job = None
        try:
            end = child.wait(self._hung_seconds)
        except InvalidInput as error:
            if not child.is_fresh:
                raise
            raise NotFresh(str(error)) from error
        if end is None:
            child.kill()
            raise Hung(f"delivery {deliveries.index(child) + 1} {child.standstill}")
        if end == "imports":
            raise BeginAnew
        return end

    def _answer(self, *, happened: bool) -> None:
        for effect in self.job.effects:
            if effect.state == "in_doubt":
                self._observer.resolve(self.job_id, effect.name, happened=happened)
        self._job = None

    def let_pass(self, seconds: float) -> None:
        self._job = None
        self.ground.clock.advance(seconds)
        for path in self.ground.copies.stores():
            let_pass_on_sqlite(path, seconds)
        for database in self.ground.copies.databases.all:
            move_on_postgres(database.session(), self._schema, seconds)
        for each in self.ground.copies.databases.mysql:
            let_pass_on_mysql(each.run, each.now, seconds)
        self.ground.copies.redis.let_pass(seconds)

    def close(self) -> None:
        self._observer.close()
        self.ground.close()
