"""Both engines and a model in plain Python go through the same operations, and agree."""

import os
import secrets
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any, ClassVar, TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from oncely import (
    Job,
    JobNotFound,
    KeyConflict,
    NewJob,
    Oncely,
    OncelyError,
    Receipt,
    UniqueKeyTaken,
    WrongState,
)
from oncely.model.transition import STATES, State
from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement
from oncely.store.sql import EngineName
from tests.engine import plain_model as plain
from tests.engine.plain_model import Answer, Call, PlainJob, PlainLease, PlainStore
from tests.engine.steps import TABLES, Backdoor, claim, prune, prune_keys, settle

T = TypeVar("T")
A_MONTH = 31
AN_HOUR = 3600

calls = st.builds(
    Call,
    kind=st.sampled_from(["a", "b"]),
    queue=st.sampled_from(["q", "r"]),
    payload=st.integers(0, 1),
    key=st.sampled_from([None, "i1", "i2", "i3"]),
    unique=st.sampled_from([None, "u1", "u2"]),
    later=st.sampled_from([False, False, False, True]),
)
anyone = st.integers(0, 1_000)
outcomes: st.SearchStrategy[State] = st.sampled_from(
    ["completed", "failed", "cancelled", "pending", "scheduled", "failed", "in_doubt"]
)


def new_job(call: Call) -> NewJob:
    return NewJob(
        call.kind,
        call.payload,
        queue=call.queue,
        idempotency_key=call.key,
        unique_key=call.unique,
        delay=AN_HOUR if call.later else None,
    )


def enqueue(app: Oncely, call: Call) -> Receipt:
    return app.enqueue(
        call.kind,
        call.payload,
        queue=call.queue,
        idempotency_key=call.key,
        unique_key=call.unique,
        delay=AN_HOUR if call.later else None,
    )


class Machine(RuleBasedStateMachine):
    apps: ClassVar[dict[EngineName, Oncely]]
    doors: ClassVar[dict[EngineName, Backdoor]]

    @initialize()
    def begin(self) -> None:
        self.model = PlainStore()
        self.fences: dict[tuple[EngineName, int], Fence] = {}
        for door in self.doors.values():
            for table in TABLES:
                door.sql(f"delete from oncely.{table}")

    # What both engines are asked, and whether their answer is the model's.

    def some_job(self, number: int) -> PlainJob:
        return self.model.jobs[number % len(self.model.jobs)]

    def expect(self, expected: Callable[[], T], ask: Callable[[Oncely], Any]) -> T | None:
        """Do it to the model, then to the engines: the same answer, or the same error."""
        try:
            answer = expected()
        except (plain.Conflict, plain.WrongState, plain.Missing, plain.Taken) as error:
            for name, app in self.apps.items():
                try:
                    given = ask(app)
                except OncelyError as raised:
                    self.same_error(name, error, raised)
                else:
                    raise AssertionError(f"{name} answered {given}, expected {error!r}")
            return None
        for name, app in self.apps.items():
            self.same_answer(name, answer, ask(app))
        return answer

    def same_error(self, name: EngineName, expected: Exception, raised: OncelyError) -> None:
        match expected, raised:
            case (plain.Conflict(job=None), KeyConflict(job_id=None)):
                pass
            case (plain.Conflict(job=PlainJob() as job), KeyConflict(job_id=str() as job_id)):
                assert job.ids[name] == job_id
            case (plain.Taken(holder=holder), UniqueKeyTaken(holder_id=holder_id)):
                assert holder.ids[name] == holder_id
            case (plain.WrongState(), WrongState()) | (plain.Missing(), JobNotFound()):
                pass
            case _:
                raise AssertionError(f"{name} raised {raised!r}, expected {expected!r}")

    def same_answer(self, name: EngineName, expected: object, given: Any) -> None:
        match expected:
            case Answer(job=job, inserted=inserted, state=state):
                assert given.inserted == inserted
                assert given.state == state
                assert job.ids.setdefault(name, given.job_id) == given.job_id
            case list():
                assert given.inserted == sum(answer.inserted for answer in expected)
                assert given.inserted + given.skipped == len(expected)
                for answer, receipt in zip(expected, given.receipts, strict=True):
                    self.same_answer(name, answer, receipt)
            case _:
                assert given == expected

    # The operations.

    @rule(call=calls)
    def enqueue(self, call: Call) -> None:
        self.expect(lambda: self.model.enqueue(call), lambda app: enqueue(app, call))

    @rule(batch=st.lists(calls, min_size=1, max_size=6))
    def enqueue_many(self, batch: list[Call]) -> None:
        # A key that has expired and is still there is given up only when somebody comes for it,
        # one statement too late to go before the others of the batch.
        self.forget_keys()
        self.expect(
            lambda: self.model.enqueue_many(batch),
            lambda app: app.enqueue_many(map(new_job, batch)),
        )

    @precondition(lambda self: self.model.jobs)
    @rule(number=anyone)
    def cancel(self, number: int) -> None:
        job = self.some_job(number)
        self.steer(job, self.model.cancel, Oncely.cancel)

    @precondition(lambda self: self.model.jobs)
    @rule(number=anyone)
    def replay(self, number: int) -> None:
        job = self.some_job(number)
        self.steer(job, self.model.replay, replay)

    @precondition(lambda self: any(job.state == "failed" for job in self.model.alive))
    @rule(number=anyone)
    def replay_a_failed_one(self, number: int) -> None:
        failed = [job for job in self.model.alive if job.state == "failed"]
        self.steer(failed[number % len(failed)], self.model.replay, replay)

    def steer(
        self,
        job: PlainJob,
        expected: Callable[[PlainJob], None],
        ask: Callable[[Oncely, str], object],
    ) -> None:
        by_app = {app: job.ids[name] for name, app in self.apps.items()}
        self.expect(lambda: expected(job), lambda app: ask(app, by_app[app]))

    @rule(queue=st.sampled_from(["q", "r"]))
    def claim(self, queue: str) -> None:
        lease = self.model.claim(queue)
        for name, app in self.apps.items():
            claimed = claim(app, queue, limit=1000)
            if lease is None:
                assert claimed == []
                continue
            self.fences[name, len(self.model.leases)] = claimed[0].fence
            self.same_claim(name, lease, claimed)

    def same_claim(self, name: EngineName, lease: PlainLease, claimed: list[Claimed]) -> None:
        assert len({item.fence for item in claimed}) == 1
        given = {item.job_id: (item.attempt, item.kind, item.payload) for item in claimed}
        assert given == {
            job.ids[name]: (lease.attempts[job], job.call.kind, str(job.call.payload))
            for job in lease.jobs
        }
        for job in lease.jobs:
            job.epochs.setdefault(name, []).append(claimed[0].fence.epoch)

    @precondition(lambda self: self.model.leases)
    @rule(number=anyone, which=st.integers(1, 255), state=outcomes)
    def settle(self, number: int, which: int, state: State) -> None:
        """Any lease there ever was, any of its jobs: what it no longer holds is refused."""
        place = number % len(self.model.leases)
        lease = self.model.leases[place]
        chosen = [job for index, job in enumerate(lease.jobs) if which >> index % 8 & 1]
        accepted = self.model.settle(lease, chosen, state)
        for name, app in self.apps.items():
            fence = self.fences[name, place + 1]
            how = [self.settlement(job, job.ids[name], lease, state) for job in chosen]
            forged = Fence(fence.epoch, fence.nonce ^ 1 + secrets.randbits(8))
            assert settle(app, forged, how) == set()
            assert settle(app, fence, how) == {job.ids[name] for job in accepted}

    @rule(queue=st.sampled_from(["q", "r"]), state=st.sampled_from(["failed", "completed"]))
    def run_all(self, queue: str, state: State) -> None:
        """A short way to where jobs have ended: what comes after that is rarely reached else."""
        before = len(self.model.leases)
        self.claim(queue)
        if len(self.model.leases) > before:
            self.settle(before, 255, state)

    def settlement(self, job: PlainJob, id: str, lease: PlainLease, state: State) -> Settlement:
        attempt = lease.attempts[job]
        if state not in ("pending", "scheduled"):
            return Settlement(id, attempt, state=state)
        delay_us = AN_HOUR * 1_000_000 if state == "scheduled" else 0
        return Settlement(id, attempt, outcome="retried", attempts=attempt, delay_us=delay_us)

    @rule()
    def prune(self) -> None:
        pruned = self.model.prune()
        for app in self.apps.values():
            assert prune(app) == pruned

    @rule()
    def forget_keys(self) -> None:
        forgotten = self.model.prune_keys()
        for app in self.apps.values():
            assert prune_keys(app) == forgotten

    @rule()
    def let_a_month_pass(self) -> None:
        self.model.let_days_pass(A_MONTH)
        for door in self.doors.values():
            door.let_days_pass(A_MONTH)

    # What must be so after each of them.

    @invariant()
    def every_job_stands_where_the_model_says(self) -> None:
        alive = self.model.alive[::-1]
        for name, app in self.apps.items():
            jobs = app.jobs(limit=10_000)
            assert [job.job_id for job in jobs] == [job.ids[name] for job in alive]
            for expected, job in zip(alive, jobs, strict=True):
                self.same_job(name, expected, job)
            for state in STATES:
                given = [job.job_id for job in app.jobs(state=state, limit=10_000)]
                assert given == [job.ids[name] for job in alive if job.state == state]

    def same_job(self, name: EngineName, expected: PlainJob, job: Job) -> None:
        call = expected.call
        assert (job.kind, job.queue, job.payload) == (call.kind, call.queue, call.payload)
        assert (job.idempotency_key, job.unique_key) == (call.key, call.unique)
        running = expected.state == "running"
        assert (job.state, job.attempt) == (expected.state, expected.attempt + running)
        epochs = expected.epochs.get(name, [])
        assert all(before < after for before, after in pairwise(epochs))
        assert [item.epoch for item in job.executions] == epochs[: expected.settled]

    @invariant()
    def a_job_that_is_gone_is_gone(self) -> None:
        gone = [job for job in self.model.jobs if job.pruned]
        for name, app in self.apps.items():
            for job in gone[-2:]:
                assert app.get(job.ids[name]) is None

    @invariant()
    def one_job_per_key(self) -> None:
        for name, door in self.doors.items():
            remembered = rows(door, "select queue, key, job_id from oncely.idempotency_key")
            assert remembered == sorted(
                (*place, memory.job.ids[name]) for place, memory in self.model.keys.items()
            )
            held = rows(door, "select kind, key, job_id from oncely.unique_key")
            assert held == sorted(
                (job.call.kind, job.call.unique, job.ids[name])
                for job in self.model.alive
                if job.call.unique and job.state in plain.ACTIVE
            )

    @invariant()
    def nothing_is_left_over(self) -> None:
        for name, door in self.doors.items():
            waiting = rows(door, "select id from oncely.ready")
            assert waiting == sorted(
                (job.ids[name],)
                for job in self.model.alive
                if job.state in ("scheduled", "pending")
            )
            [[leases]] = door.sql("select count(*) from oncely.lease")
            assert leases == sum(1 for lease in self.model.leases if lease.held)
            for table in ("execution", "outcome"):
                jobs = "select id from oncely.job"
                orphans = f"select job_id from oncely.{table} where job_id not in ({jobs})"
                assert door.sql(orphans) == []


def replay(app: Oncely, job_id: str) -> None:
    assert app.replay(job_id) == []


def rows(door: Backdoor, text: str) -> list[tuple[str, ...]]:
    return sorted(tuple(str(value) for value in row) for row in door.sql(text))


def close_all(things: Iterable[Oncely | Backdoor]) -> None:
    for thing in things:
        thing.close()


def test_the_engines_and_the_model_agree(sqlite_url: str, postgres_url: str) -> None:
    class EnginesAndModel(Machine):
        pass

    machine = EnginesAndModel
    machine.apps = {"sqlite": Oncely(sqlite_url), "postgres": Oncely(postgres_url)}
    machine.doors = {}
    try:
        for name, app in machine.apps.items():
            app.migrate()
            machine.doors[name] = Backdoor(app)
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=int(os.environ.get("ONCELY_MACHINE_EXAMPLES", "12")),
                stateful_step_count=40,
                deadline=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        close_all(machine.doors.values())
        close_all(machine.apps.values())
