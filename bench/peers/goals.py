"""The goals: ratios within one run, so that the machine and its noise fall out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from bench.peers.records import Records
from bench.peers.roster import BY_NAME, HTTP, LIMIT, OURS, OURS_SQLITE, PEERS

NOT_MEASURED: Final = "not measured in this run"


@dataclass(frozen=True)
class Verdict:
    goal: str
    wanted: str
    measured: str
    reached: bool | None
    """None: this run has no figure for it."""

    @property
    def said(self) -> str:
        return {True: "reached", False: "**missed**", None: NOT_MEASURED}[self.reached]


Goal = Callable[[Records], Verdict]


def _times(goal: str, least: float, this: tuple[str, str], other: tuple[str, str], of: str) -> Goal:
    """At least so many times the other's."""

    def judge(records: Records) -> Verdict:
        found = records.ratio(this, other)
        wanted = f"≥ {least:g} x {of}"
        if found is None:
            return Verdict(goal, wanted, "-", None)
        return Verdict(goal, wanted, f"{found:.2f} x", found >= least)

    return judge


def _best_peer(goal: str, least: float, measure: str) -> Goal:
    def judge(records: Records) -> Verdict:
        wanted = f"≥ {least:g} x the best peer"
        ratios = {
            peer.label: ratio
            for peer in PEERS
            if (ratio := records.ratio((OURS, measure), (peer.name, measure))) is not None
        }
        if not ratios:
            return Verdict(goal, wanted, "-", None)
        best = min(ratios, key=lambda label: ratios[label])
        return Verdict(goal, wanted, f"{ratios[best]:.2f} x {best}", ratios[best] >= least)

    return judge


def _below_all(goal: str, what: str) -> Goal:
    def judge(records: Records) -> Verdict:
        wanted = "below every PostgreSQL peer"
        ratios = {
            peer.label: ratio
            for peer in PEERS
            if peer.store == "postgres"
            and (ratio := records.ratio((OURS, "latency"), (peer.name, "latency"), what))
            is not None
        }
        ours = records.spread(OURS, "latency", what)
        if not ratios or ours is None:
            return Verdict(goal, wanted, "-", None)
        nearest = max(ratios, key=lambda label: ratios[label])
        measured = f"{ours.median:.1f} ms, {ratios[nearest]:.2f} x {nearest}"
        return Verdict(goal, wanted, measured, ratios[nearest] < 1)

    return judge


def _share(goal: str, least: float, measure: str, of: str, whole: str) -> Goal:
    """At least this share of another figure of the same measure."""

    def judge(records: Records) -> Verdict:
        wanted = f"≥ {least:g} x {of}"
        shares = sorted(
            r.found["rate"] / r.found[whole]
            for r in records.of(OURS, measure)
            if r.found.get(whole)
        )
        if not shares:
            return Verdict(goal, wanted, "-", None)
        middle = shares[len(shares) // 2]
        return Verdict(goal, wanted, f"{middle:.2f} x", middle >= least)

    return judge


def _at_most(goal: str, most: float, measure: str) -> Goal:
    def judge(records: Records) -> Verdict:
        found = records.spread(OURS, measure, "megabytes")
        wanted = f"≤ {most:g} MB"
        if found is None:
            return Verdict(goal, wanted, "-", None)
        return Verdict(goal, wanted, f"{found.median:.0f} MB", found.median <= most)

    return judge


def _at_least(goal: str, least: float, system: str, measure: str) -> Goal:
    def judge(records: Records) -> Verdict:
        found = records.spread(system, measure)
        wanted = f"≥ {least:,.0f}/s"
        if found is None:
            return Verdict(goal, wanted, "-", None)
        return Verdict(goal, wanted, f"{found.median:,.0f}/s", found.median >= least)

    return judge


def _to(name: str, measure: str) -> tuple[tuple[str, str], tuple[str, str], str]:
    return (OURS, measure), (name, measure), BY_NAME[name].label


GOALS: Final[tuple[Goal, ...]] = (
    _times("drain, 1 process", 1.3, *_to("graphile-worker", "drain")),
    _times("drain, 1 process", 5, *_to("pgqueuer", "drain")),
    _times("drain, 1 process", 0.6, (OURS, "drain"), (LIMIT, "statements"), "our statements alone"),
    _times("drain, 2 processes", 1.2, *_to("graphile-worker", "drain2")),
    _share("50 workers with concurrency 4, jobs of 50 ms", 0.9, "fleet", "the ideal", "ideal"),
    _best_peer("bulk enqueue with keys", 1.5, "bulk_keyed"),
    _times("enqueue one by one", 0.8, (OURS, "enqueue"), (LIMIT, "commit"), "one row per commit"),
    _times("64 callers at once", 5, (OURS, "callers"), (OURS, "enqueue"), "one by one"),
    _below_all("latency on an idle queue, p50", "p50_ms"),
    _below_all("latency on an idle queue, p99", "p99_ms"),
    _share("the last of 1 million jobs, all of them kept", 0.9, "lasting", "the first", "first"),
    _share("a transaction open elsewhere for 10 minutes", 0.7, "held", "without", "first"),
    _times("jobs with one step", 0.3, (OURS, "steps"), (OURS, "drain"), "the plain drain"),
    _times(
        "jobs in `ctx.transaction()`, 16 at once",
        0.7,
        (OURS, "transactions"),
        (LIMIT, "commit16"),
        "one row per commit, 16 at once",
    ),
    _times(
        "SQLite FULL, drain", 5, (OURS_SQLITE, "drain"), ("huey-sqlite", "drain"), "Huey on SQLite"
    ),
    _times("HTTP publish", 4, (HTTP, "publish"), ("fastapi", "publish"), BY_NAME["fastapi"].label),
    _times("HTTP publish", 0.6, (HTTP, "publish"), (HTTP, "bare"), "the server without a store"),
    _at_least("push to a receiver on this machine", 3_000, HTTP, "push"),
    _at_most("memory of an idle worker", 60, "idle_memory"),
    _at_most("memory with 10,000 jobs in hand", 150, "prefetched_memory"),
)


def verdicts(records: Records) -> list[Verdict]:
    return [goal(records) for goal in GOALS]
