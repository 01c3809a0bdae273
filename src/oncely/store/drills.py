"""Plans of drills: the switch that all workers obey, and what was found."""

from __future__ import annotations

from typing import Any, Final

import msgspec

from oncely.model.counter import Counter
from oncely.model.drill import Drilled, DrillFinding, Drills
from oncely.store.claim import Claimed
from oncely.store.counters import counters
from oncely.store.look import moment, moment_of
from oncely.store.plan import Plan, Statement
from oncely.store.trail import Trail, write

FINDINGS: Final = 20


def may_begin(job_id: str, epoch: int) -> Plan[bool]:
    """Whether that execution completed its job, and drills are not stopped."""
    return bool((yield Statement("drill_may", {"id": job_id, "epoch": epoch})))


def is_stopped() -> Plan[bool]:
    rows = yield Statement("drill_switch")
    return bool(rows and rows[0][0])


def turn(*, stopped: bool, trail: Trail) -> Plan[None]:
    """In a transaction. Turned the same way again, nothing changes."""
    if (yield Statement("drill_set", {"stopped": stopped, "by_whom": trail.by})):
        yield from write(trail, "stop_drills" if stopped else "start_drills", "drills", "drills")


def keep(claimed: Claimed, worker: str, drilled: Drilled) -> Plan[None]:
    """In a transaction. The same again changes nothing."""
    yield Statement(
        "drill_keep",
        {
            "id": claimed.job_id,
            "execution_id": claimed.execution_id,
            "epoch": claimed.fence.epoch,
            "worker": worker,
            "outcome": drilled.outcome,
            "found": msgspec.json.encode(_kept(drilled)).decode(),
            "recognised": len(drilled.recognised),
            "repeated": len(drilled.repeated),
        },
    )


def drills() -> Plan[Drills]:
    switch = yield Statement("drill_switch")
    stopped, by, at = switch[0] if switch else (False, None, None)
    totals = yield from counters()
    rows = yield Statement("drills_list", {"limit": FINDINGS})
    return Drills(
        stopped=bool(stopped),
        by=by,
        at=moment_of(at),
        outcomes=_by_kind(totals),
        recognised=_sum(totals, "recognised"),
        repeated=_sum(totals, "repeated"),
        findings=[
            DrillFinding(job_id, kind, execution_id, moment(at), worker, outcome, *read(found))
            for job_id, kind, execution_id, worker, outcome, found, at in rows
        ],
    )


def _kept(drilled: Drilled) -> dict[str, Any]:
    return {
        "recognised": drilled.recognised,
        "repeated": drilled.repeated,
        "error": drilled.failure,
    }


def read(found: str) -> tuple[list[str], list[str], Any]:
    kept = msgspec.json.decode(found)
    return kept["recognised"], kept["repeated"], kept["error"]


def _by_kind(totals: list[Counter]) -> dict[str, dict[str, int]]:
    outcomes: dict[str, dict[str, int]] = {}
    for total in totals:
        if total.name == "oncely_drills_total":
            outcomes.setdefault(total.labels["kind"], {})[total.labels["outcome"]] = total.value
    return outcomes


def _sum(totals: list[Counter], answer: str) -> int:
    return sum(
        total.value
        for total in totals
        if total.name == "oncely_drill_effects_total" and total.labels["answer"] == answer
    )
