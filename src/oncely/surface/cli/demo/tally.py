"""The count at the end of the demo: what is in the store, against what the publishers heard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from oncely.model.job import Job
from oncely.surface.app import Oncely
from oncely.surface.cli.demo.crew import Record
from oncely.surface.cli.demo.publisher import KIND, QUEUE
from oncely.surface.looking import LIST_LIMIT


class Tally(msgspec.Struct, frozen=True):
    """`publishes` = `inserted` + `deduplicated`. The names are those of `--json`."""

    orders: int
    publishers: int
    killed: int
    publishes: int
    inserted: int
    """Jobs in the store."""
    unheard: int
    """Of those, the ones whose receipt was lost with the killed publisher."""
    deduplicated: int
    """Receipts that said: already there."""
    lost: int
    """Orders without a job."""
    doubled: int
    """Jobs beyond the first of their order."""


def stored(app: Oncely, orders: Sequence[str], limit: int = LIST_LIMIT) -> list[Job]:
    """The jobs of these orders among the newest, known by their payload and not by their key."""
    wanted = set(orders)
    found = app.jobs(kind=KIND, queue=QUEUE, limit=limit)
    return [job for job in found if job.payload["order_id"] in wanted]


def tally(orders: Sequence[str], jobs: Sequence[Job], record: Record) -> Tally:
    per_order = Counter(job.payload["order_id"] for job in jobs)
    heard = sum(answer.inserted for answer in record.answers)
    unheard = len(jobs) - heard
    return Tally(
        orders=len(orders),
        publishers=len(record.publishers),
        killed=len(record.killed),
        publishes=len(record.answers) + unheard,
        inserted=len(jobs),
        unheard=unheard,
        deduplicated=len(record.answers) - heard,
        lost=sum(per_order[order] == 0 for order in orders),
        doubled=sum(count - 1 for count in per_order.values()),
    )


def faults(
    tally: Tally, jobs: Sequence[Job], record: Record, orders: Sequence[str], *, times: int
) -> list[str]:
    """Everything that does not add up."""
    ids = {job.payload["order_id"]: job.job_id for job in jobs}
    heard = {answer.job_id for answer in record.answers if answer.inserted}
    short = Counter(list(orders) * times) - Counter(answer.order for answer in record.answers)
    wrong = sum(ids.get(answer.order) != answer.job_id for answer in record.answers)
    unheard = [job for job in jobs if job.job_id not in heard]
    strange = sum(not set(job.tags) & set(record.killed) for job in unheard)
    checks = {
        f"{tally.lost} orders have no job": tally.lost,
        f"{tally.doubled} jobs are doubled": tally.doubled,
        f"{short.total()} publishes were never answered": short.total(),
        f"{wrong} receipts name another job than the store has": wrong,
        f"{strange} jobs are there that no living publisher reported": strange,
        f"{tally.unheard} receipts are missing, not {len(unheard)}": tally.unheard != len(unheard),
        "no publisher was killed": not tally.killed,
    }
    return [text for text, failed in checks.items() if failed]
