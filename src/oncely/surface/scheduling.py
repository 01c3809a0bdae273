"""The verbs of schedules: declare, look, pause, fire."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypedDict, TypeVar, Unpack

from oncely.flow.identity import new_job_ids
from oncely.model.draft import check_name
from oncely.model.job import NewJob, Receipt
from oncely.model.keys import check_key
from oncely.model.schedule import CatchUp, Schedule
from oncely.store import schedules as store
from oncely.store.plan import Plan
from oncely.store.trail import write
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin

T = TypeVar("T")


class JobOptions(TypedDict, total=False):
    """The options of `enqueue` that make sense for every tick."""

    queue: str | None
    priority: int
    unique_key: str | None
    group_key: str | None
    max_attempts: int | None
    timeout: float | None
    tags: list[str]


class Scheduling(Base):
    def schedule(
        self,
        name: str,
        *,
        cron: str,
        timezone: str = "UTC",
        kind: str | None = None,
        payload: Any = None,
        catch_up: CatchUp = "latest",
        **options: Unpack[JobOptions],
    ) -> None:
        """Declare that a job of `kind`, which is `name` unless it is said, is enqueued at each
        tick of `cron` in `timezone`, once, however many workers there are.

        Nothing is stored yet: a worker of this app does that when it runs, and fires the ticks.
        None comes from before that. `catch_up` says what becomes of ticks that were missed because
        no worker ran: the `latest` of them is fired, or `all`, at most 100, or they are skipped
        (`skip`). The other options are those of `enqueue`. A `unique_key` leaves out a tick whose
        predecessor is still active.
        """
        self._schedules.add(
            name,
            NewJob(name if kind is None else kind, payload, **options),
            cron=cron,
            timezone=timezone,
            catch_up=catch_up,
        )

    def schedules(self) -> list[Schedule]:
        """The schedules in the store, by name, with those that this app declares."""
        return self._with_declared(lambda _: store.schedules())

    def pause_schedule(self, name: str) -> None:
        """No ticks until `resume_schedule`. Workers that start or are deployed change nothing
        about it."""
        check_name(name, "the schedule's name")
        who = trail()
        self._with_declared(lambda _: store.pause(name, trail=who))

    def resume_schedule(self, name: str) -> None:
        """From the next tick on; those of the pause are not made up for."""
        check_name(name, "the schedule's name")
        who = trail()
        self._with_declared(lambda _: store.resume(name, trail=who))

    def fire_schedule(self, name: str, *, idempotency_key: str | None = None) -> Receipt:
        """Enqueue its job now, beside its ticks, also in a pause. Each call is one job; with an
        `idempotency_key`, all calls with that key are."""
        check_name(name, "the schedule's name")
        if idempotency_key is not None:
            check_key(idempotency_key, "idempotency_key")
        [job_id] = new_job_ids(1)
        who = trail()

        def fire(again: bool) -> Plan[Receipt]:
            receipt = yield from self._schedules.fire(name, job_id, idempotency_key, again=again)
            if receipt.inserted:
                details = {"job_id": receipt.job_id}
                yield from write(who, "fire_schedule", "schedule", name, details=details)
            return receipt

        return self._with_declared(fire)

    def remove_schedule(self, name: str) -> None:
        """Forget one that is no longer in the code. While a worker that declares it runs it would
        come back: that raises `ScheduleDeclared`."""
        check_name(name, "the schedule's name")
        who = trail()
        self._engine.run(lambda again: store.remove(name, again=again, trail=who), "transaction")

    def _with_declared(self, make: Callable[[bool], Plan[T]]) -> T:
        """A schedule can be looked at and steered before its first worker runs."""

        def plan(again: bool) -> Plan[T]:
            yield from self._schedules.remember()
            return (yield from make(again))

        return self._engine.run(plan, "transaction")

    aschedules = twin(schedules)
    apause_schedule = twin(pause_schedule)
    aresume_schedule = twin(resume_schedule)
    afire_schedule = twin(fire_schedule)
    aremove_schedule = twin(remove_schedule)
