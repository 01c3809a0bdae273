"""What must hold after torture: read from the store, from the book of the payment service, and from
what the processes told, against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from oncely.model.counter import Counter as Total
from oncely.model.job import Job
from oncely.surface.cli.demo.book import Pages
from oncely.surface.cli.demo.crew import is_held, is_recovered
from oncely.surface.cli.demo.tally import ends, failed, misrecorded, working_faults
from oncely.surface.cli.torture.crew import Ordeal
from oncely.surface.cli.torture.worker import is_in_store


class Verdict(msgspec.Struct, frozen=True):
    """The names are those of `--json`."""

    store: str
    seconds: float
    publishers: int
    publishers_killed: int
    workers: int
    workers_killed: int
    workers_stopped: int
    acknowledged: int
    """Publishes whose receipt arrived."""
    jobs: int
    deduplicated: int
    """Repeats recognised at enqueue."""
    executions: int
    recovered: int
    late_ends_refused: int
    effects_recognised: int
    held: int
    resolved: int
    replayed: int
    """Jobs that were hit three times in a row, and put back after the faults."""
    completed: int
    """Once each."""
    charges: int
    mails: int
    paid_in_store: int
    lost: int
    doubled: int
    violations: list[str]


def check(
    orders: Sequence[int],
    jobs: Sequence[Job],
    pages: Pages,
    paid: Sequence[int],
    totals: Sequence[Total],
    ordeal: Ordeal,
    *,
    store: str,
    seconds: float,
) -> Verdict:
    record = ordeal.record
    known = Counter(answer.order for answer in record.answers)
    # Who was killed may have stored an order that nobody heard of, or not.
    there = {job.payload["order_id"] for job in jobs}
    wanted = Counter(order for order in orders if order in known or order in there)
    effects = _effects(wanted, pages, paid)
    return Verdict(
        store=store,
        seconds=round(seconds, 1),
        publishers=len(record.publishers),
        publishers_killed=len(record.publishers_killed),
        workers=len(record.workers),
        workers_killed=ordeal.killed,
        workers_stopped=ordeal.stopped,
        acknowledged=len(record.answers),
        jobs=len(jobs),
        deduplicated=_total(totals, "enqueue"),
        executions=sum(len(job.executions) for job in jobs),
        recovered=sum(map(is_recovered, jobs)),
        late_ends_refused=_total(totals, "delivery"),
        effects_recognised=_total(totals, "effect"),
        held=sum(map(is_held, jobs)),
        resolved=len(record.resolved),
        replayed=ordeal.replayed,
        completed=sum(ends(job) == 1 for job in jobs),
        charges=len(pages.charges),
        mails=len(pages.mails),
        paid_in_store=len(paid),
        lost=sum((must - done).total() for must, done in effects),
        doubled=sum((done - must).total() for must, done in effects),
        violations=[*_violations(wanted, jobs, pages, effects, ordeal)],
    )


Effects = list[tuple[Counter[int], Counter[int]]]


def _effects(wanted: Counter[int], pages: Pages, paid: Sequence[int]) -> Effects:
    """What must have been done, and what was: charges, mails, and rows in the store."""
    outside = Counter(order for order in wanted if not is_in_store(order))
    return [
        (outside, Counter(charge.order for charge in pages.charges)),
        (outside, Counter(mail.order for mail in pages.mails)),
        (Counter(order for order in wanted if is_in_store(order)), Counter(paid)),
    ]


def _violations(
    wanted: Counter[int], jobs: Sequence[Job], pages: Pages, effects: Effects, ordeal: Ordeal
) -> list[str]:
    ids = {job.payload["order_id"]: job.job_id for job in jobs}
    answers = ordeal.record.answers
    missing = sum(answer.order not in ids for answer in answers)
    other = sum(ids.get(answer.order, answer.job_id) != answer.job_id for answer in answers)
    outside = [job for job in jobs if not is_in_store(job.payload["order_id"])]
    wrong = misrecorded(outside, pages)
    lost = sum((must - done).total() for must, done in effects)
    doubled = sum((done - must).total() for must, done in effects)
    return [
        *failed(
            {
                f"{missing} acknowledged publishes have no job": missing,
                f"{other} receipts name another job than the store has": other,
                f"{ordeal.unended} jobs did not come to an end after the last fault": (
                    ordeal.unended
                ),
                f"{lost} effects are lost": lost,
                f"{doubled} effects are doubled": doubled,
                f"the ledger of {wrong} jobs is not what the payment service has in its book": (
                    wrong
                ),
            }
        ),
        *working_faults(jobs, ordeal.record, [*wanted]),
    ]


def _total(totals: Sequence[Total], boundary: str) -> int:
    return sum(
        each.value
        for each in totals
        if each.name == "oncely_deduplicated_total" and each.labels["boundary"] == boundary
    )
