"""The count at the end of the demo: what is in the store, against what the processes reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from oncely.model.job import Job
from oncely.surface.cli.demo.crew import is_recovered
from oncely.surface.cli.demo.record import Record


class Tally(msgspec.Struct, frozen=True):
    """`publishes` = `inserted` + `deduplicated`. The names are those of `--json`."""

    orders: int
    publishers: int
    publishers_killed: int
    publishes: int
    inserted: int
    """Jobs in the store."""
    unheard: int
    """Of those, the ones whose receipt was lost with the killed publisher."""
    deduplicated: int
    """Receipts that said: already there."""
    workers: int
    workers_killed: int
    executions: int
    """Deliveries, those of killed workers included."""
    recovered: int
    """Jobs that were taken back from a dead worker."""
    charges: int
    """What the handlers did, as the world outside the store saw it."""
    completed: int
    """Jobs that completed, by exactly one of their executions."""
    lost: int
    """Orders without a completed job."""
    doubled: int
    """Jobs beyond the first of their order, and ends of a job beyond its first."""


def tally(orders: Sequence[int], jobs: Sequence[Job], record: Record) -> Tally:
    per_order = Counter(job.payload["order_id"] for job in jobs)
    ends = {job.job_id: sum(e.outcome == "completed" for e in job.executions) for job in jobs}
    served = {job.payload["order_id"] for job in jobs if ends[job.job_id]}
    heard = sum(answer.inserted for answer in record.answers)
    unheard = len(jobs) - heard
    return Tally(
        orders=len(orders),
        publishers=len(record.publishers),
        publishers_killed=len(record.publishers_killed),
        publishes=len(record.answers) + unheard,
        inserted=len(jobs),
        unheard=unheard,
        deduplicated=len(record.answers) - heard,
        workers=len(record.workers),
        workers_killed=len(record.workers_killed),
        executions=sum(len(job.executions) for job in jobs),
        recovered=sum(is_recovered(job) for job in jobs),
        charges=len(record.charges),
        completed=sum(count == 1 for count in ends.values()),
        lost=sum(order not in served for order in orders),
        doubled=sum(max(0, count - 1) for count in (*per_order.values(), *ends.values())),
    )


def faults(
    tally: Tally, jobs: Sequence[Job], record: Record, orders: Sequence[int], *, times: int
) -> list[str]:
    """Everything that does not add up."""
    return [
        *_publishing_faults(tally, jobs, record, orders, times),
        *_working_faults(tally, jobs, record),
    ]


def _publishing_faults(
    tally: Tally, jobs: Sequence[Job], record: Record, orders: Sequence[int], times: int
) -> list[str]:
    ids = {job.payload["order_id"]: job.job_id for job in jobs}
    heard = {answer.job_id for answer in record.answers if answer.inserted}
    short = Counter(list(orders) * times) - Counter(answer.order for answer in record.answers)
    wrong = sum(ids.get(answer.order) != answer.job_id for answer in record.answers)
    unheard = [job for job in jobs if job.job_id not in heard]
    strange = sum(not set(job.tags) & set(record.publishers_killed) for job in unheard)
    return _failed(
        {
            f"{tally.lost} orders have no completed job": tally.lost,
            f"{tally.doubled} jobs or ends of jobs are doubled": tally.doubled,
            f"{short.total()} publishes were never answered": short.total(),
            f"{wrong} receipts name another job than the store has": wrong,
            f"{strange} jobs are there that no living publisher reported": strange,
            f"{tally.unheard} receipts are missing, not {len(unheard)}": (
                tally.unheard != len(unheard)
            ),
            "no publisher was killed": not tally.publishers_killed,
        }
    )


def _working_faults(tally: Tally, jobs: Sequence[Job], record: Record) -> list[str]:
    charged = [charge.execution_id for charge in record.charges]
    known = {f"{job.job_id}.{e.epoch}" for job in jobs for e in job.executions}
    unknown = sum(_delivery(execution_id) not in known for execution_id in charged)
    completed = [job for job in jobs if job.state == "completed"]
    foreign = sum(
        job.result not in charged
        or _delivery(job.result) != f"{job.job_id}.{job.executions[-1].epoch}"
        for job in completed
    )
    unfenced = sum(
        any(later.epoch <= earlier.epoch for earlier, later in pairwise(job.executions))
        for job in jobs
    )
    return _failed(
        {
            f"{len(jobs) - len(completed)} jobs did not complete": len(completed) != len(jobs),
            f"{unknown} charges were made by executions that the store does not know": unknown,
            f"{len(charged) - len(set(charged))} executions charged twice": (
                len(charged) != len(set(charged))
            ),
            f"{foreign} results are not those of the execution that was accepted": foreign,
            f"the epochs of {unfenced} jobs do not rise": unfenced,
            "no worker was killed": not tally.workers_killed,
        }
    )


def _delivery(execution_id: str) -> str:
    """Job and epoch, without the nonce, which the store does not show."""
    return execution_id.rpartition(".")[0]


def _failed(checks: dict[str, int | bool]) -> list[str]:
    return [text for text, failed in checks.items() if failed]
