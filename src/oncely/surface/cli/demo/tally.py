"""The count at the end of the demo: the book of the payment service, the store, and what the
processes reported, against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import msgspec

from oncely.model.job import Job
from oncely.surface.cli.demo.book import Pages
from oncely.surface.cli.demo.crew import is_held, is_recovered
from oncely.surface.cli.demo.operator import NAME, NOTE
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
    killed_after_intent: int
    killed_after_effect: int
    killed_after_outcome: int
    executions: int
    """Deliveries, those of killed workers included."""
    recovered: int
    """Jobs that were taken back from a dead worker."""
    completed: int
    """Jobs that completed, by exactly one of their executions."""
    held: int
    """Jobs that were held because nobody knew whether their mail was sent."""
    resolved: int
    """Answers that were given for them."""
    charges_asked: int
    """From here on it is the payment service that counts."""
    charges: int
    mails: int
    questions: int
    """How often it was asked whether a mail was sent."""
    lost: int
    """Charges and mails that are missing."""
    doubled: int
    """Charges and mails beyond the first of their order."""


def tally(orders: Sequence[int], jobs: Sequence[Job], pages: Pages, record: Record) -> Tally:
    heard = sum(answer.inserted for answer in record.answers)
    unheard = len(jobs) - heard
    killed = Counter(record.workers_killed)
    return Tally(
        orders=len(orders),
        publishers=len(record.publishers),
        publishers_killed=len(record.publishers_killed),
        publishes=len(record.answers) + unheard,
        inserted=len(jobs),
        unheard=unheard,
        deduplicated=len(record.answers) - heard,
        workers=len(record.workers),
        workers_killed=killed.total(),
        killed_after_intent=killed["intent"],
        killed_after_effect=killed["effect"],
        killed_after_outcome=killed["outcome"],
        executions=sum(len(job.executions) for job in jobs),
        recovered=sum(is_recovered(job) for job in jobs),
        completed=sum(ends(job) == 1 for job in jobs),
        held=sum(is_held(job) for job in jobs),
        resolved=_resolved(jobs),
        charges_asked=sum(charge.asked for charge in pages.charges),
        charges=len(pages.charges),
        mails=len(pages.mails),
        questions=pages.questions,
        lost=sum((Counter(orders) - done).total() for done in _done(pages)),
        doubled=sum((done - Counter(orders)).total() for done in _done(pages)),
    )


def _done(pages: Pages) -> tuple[Counter[int], Counter[int]]:
    """Charges and mails, per order."""
    return (
        Counter(charge.order for charge in pages.charges),
        Counter(mail.order for mail in pages.mails),
    )


def ends(job: Job) -> int:
    return sum(execution.outcome == "completed" for execution in job.executions)


def _resolved(jobs: Sequence[Job]) -> int:
    return sum(
        (resolution.by, resolution.note) == (NAME, NOTE)
        for job in jobs
        for effect in job.effects
        for resolution in effect.resolutions
    )


def faults(
    tally: Tally,
    jobs: Sequence[Job],
    pages: Pages,
    record: Record,
    orders: Sequence[int],
    *,
    times: int,
) -> list[str]:
    """Everything that does not add up."""
    return [
        *_effect_faults(tally, jobs, pages, record),
        *_publishing_faults(tally, jobs, record, orders, times),
        *working_faults(jobs, record, orders),
    ]


def misrecorded(jobs: Sequence[Job], pages: Pages) -> int:
    """Jobs whose ledger is not what the payment service has in its book."""
    charges = {charge.order: charge.id for charge in pages.charges}
    wrong = 0
    for job in jobs:
        order = job.payload["order_id"]
        known = {effect.name: effect.result for effect in job.effects if effect.state == "done"}
        wrong += known != {"charge": charges.get(order), "receipt": pages.mail_of(order)}
    return wrong


def _effect_faults(tally: Tally, jobs: Sequence[Job], pages: Pages, record: Record) -> list[str]:
    wrong = misrecorded(jobs, pages)
    return failed(
        {
            f"{tally.lost} charges and mails are lost": tally.lost,
            f"{tally.doubled} charges and mails are doubled": tally.doubled,
            f"the ledger of {wrong} jobs is not what the payment service has in its book": wrong,
            f"{len(record.resolved)} answers were given, and {tally.resolved} are kept": (
                len(record.resolved) != tally.resolved
            ),
            "no job was held": not tally.held,
            "no job was resolved": not tally.resolved,
            "no worker was killed between intent and effect": not tally.killed_after_intent,
            "no worker was killed between effect and outcome": not tally.killed_after_effect,
            "no worker was killed between outcome and settle": not tally.killed_after_outcome,
        }
    )


def _publishing_faults(
    tally: Tally, jobs: Sequence[Job], record: Record, orders: Sequence[int], times: int
) -> list[str]:
    ids = {job.payload["order_id"]: job.job_id for job in jobs}
    heard = {answer.job_id for answer in record.answers if answer.inserted}
    short = Counter(list(orders) * times) - Counter(answer.order for answer in record.answers)
    wrong = sum(ids.get(answer.order) != answer.job_id for answer in record.answers)
    unheard = [job for job in jobs if job.job_id not in heard]
    strange = sum(not set(job.tags) & set(record.publishers_killed) for job in unheard)
    return failed(
        {
            f"{short.total()} publishes were never answered": short.total(),
            f"{wrong} receipts name another job than the store has": wrong,
            f"{strange} jobs are there that no living publisher reported": strange,
            f"{tally.unheard} receipts are missing, not {len(unheard)}": (
                tally.unheard != len(unheard)
            ),
            "no publisher was killed": not tally.publishers_killed,
        }
    )


def working_faults(jobs: Sequence[Job], record: Record, orders: Sequence[int]) -> list[str]:
    known = {f"{job.job_id}.{e.epoch}" for job in jobs for e in job.executions}
    unknown = sum(_delivery(execution_id) not in known for execution_id in record.executions)
    per_order = Counter(job.payload["order_id"] for job in jobs)
    completed = [job for job in jobs if job.state == "completed"]
    served = {job.payload["order_id"] for job in completed}
    unserved = sum(order not in served for order in orders)
    doubled = sum(max(0, count - 1) for count in (*per_order.values(), *map(ends, jobs)))
    foreign = sum(
        job.result not in record.executions
        or _delivery(job.result) != f"{job.job_id}.{job.executions[-1].epoch}"
        for job in completed
    )
    unfenced = sum(
        any(later.epoch <= earlier.epoch for earlier, later in pairwise(job.executions))
        for job in jobs
    )
    return failed(
        {
            f"{unserved} orders have no completed job": unserved,
            f"{doubled} jobs or ends of jobs are doubled": doubled,
            f"{len(jobs) - len(completed)} jobs did not complete": len(completed) != len(jobs),
            f"{unknown} executions are not known to the store": unknown,
            f"{foreign} results are not those of the execution that was accepted": foreign,
            f"the epochs of {unfenced} jobs do not rise": unfenced,
        }
    )


def _delivery(execution_id: str) -> str:
    """Job and epoch, without the nonce, which the store does not show."""
    return execution_id.rpartition(".")[0]


def failed(checks: dict[str, int | bool]) -> list[str]:
    return [text for text, is_so in checks.items() if is_so]
