"""The page of results: figures, ratios, goals, versions and settings."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.peers.drivers import ours
from bench.peers.goals import verdicts
from bench.peers.records import Records, Spread
from bench.peers.roster import HTTP, LIMIT, OURS, OURS_SQLITE, PEER_MEASURES, PEERS, System
from bench.peers.roster import SYSTEMS as ALL

COLUMNS: Final = {
    "enqueue": "one by one",
    "bulk": "bulk (1,000)",
    "keyed": "with a key",
    "bulk_keyed": "bulk with keys",
    "drain": "drain, 1 process",
    "drain2": "drain, 2 processes",
    "latency": "latency idle, p50 / p99 ms",
}
OWN: Final = (
    (OURS, "callers", f"enqueue, {ours.CALLERS} callers at once"),
    (OURS, "steps", "drain, jobs with one step"),
    (OURS, "transactions", "drain, jobs in `ctx.transaction()`, 16 at once"),
    (OURS, "fleet", f"{ours.FLEET} workers, concurrency 4, jobs of 50 ms (ideal 4,000)"),
    (HTTP, "publish", "HTTP publish, 64 connections"),
    (HTTP, "push", "push to a receiver on this machine"),
    (OURS, "lasting", "drain, the last 100,000 of 1 million"),
    (OURS, "held", "drain, with a transaction open elsewhere"),
    (LIMIT, "commit", "limit: one row per commit, one connection"),
    (LIMIT, "commit16", "limit: one row per commit, 16 at once"),
    (LIMIT, "statements", "limit: our statements alone, batches of 500"),
    (HTTP, "bare", "limit: the HTTP server without a store"),
    ("fastapi", "publish", "FastAPI, one insert per request"),
)
HOW: Final = """No-op jobs. Each measure begins with an empty store. Every figure is checked: the
jobs are counted in the store after an enqueue; after a drain each of them has run, and the store
has it settled, which is when the clock stops. It starts with the first handler. Latency is from
before the enqueue call to the handler's start, one job at a time. The peers take turns with Oncely
in one run; a ratio is taken between two neighbours, and its median over the rounds is shown."""


@dataclass(frozen=True)
class Facts:
    day: str
    machine: str
    versions: Mapping[str, str]
    minutes: float
    rounds: int
    quick: bool

    @staticmethod
    def of_this_machine(
        versions: Mapping[str, str], minutes: float, rounds: int, *, quick: bool
    ) -> Facts:
        machine = (
            f"{os.cpu_count()} cores ({_processor()}), {platform.system()} "
            f"{platform.release().partition('-')[0]}, Python {platform.python_version()}"
        )
        day = datetime.now(UTC).date().isoformat()
        return Facts(day, machine, versions, minutes, rounds, quick)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.machine()


def write(records: Records, absent: Mapping[str, str], facts: Facts) -> str:
    parts = [
        "# Oncely and its peers\n",
        _opening(facts),
        "\n## Goals\n",
        _table(
            ("measure", "goal", "measured", ""),
            [(v.goal, v.wanted, v.measured, v.said) for v in verdicts(records)],
        ),
        "\n## Jobs per second\n",
        "Median, and least to most in brackets.\n",
        _table(("system", *COLUMNS.values()), list(_figures(records, absent))),
        *_absent(records, absent),
        "\n## Oncely, compared with each peer\n",
        "How many times the peer's rate; for the latency, how many times shorter (p50).\n",
        _table(("peer", *COLUMNS.values()), list(_ratios(records))),
        "\n## Further measures, and the limits of this machine\n",
        _table(("measure", "per second"), list(_own(records))),
        "\n## Versions and settings\n",
        _table(("system", "packages", "settings"), list(_settings(records, absent))),
    ]
    return "\n".join(parts) + "\n"


def _opening(facts: Facts) -> str:
    v = facts.versions
    stores = (
        f"PostgreSQL {v.get('server_version', '?').split()[0]} with fsync {v.get('fsync', '?')} "
        f"and synchronous_commit {v.get('synchronous_commit', '?')}"
    )
    if "redis" in v:
        stores += f"; Redis {v['redis']} with its log synced every second"
    quick = " **A quick run: its figures are worth nothing.**" if facts.quick else ""
    return (
        f"{facts.day}, {facts.machine}, shared by database, publisher and workers. {stores}. "
        f"{facts.rounds} round{'s' if facts.rounds > 1 else ''}, {facts.minutes:.0f} minutes; "
        f"made by `make bench`.{quick}\n\n{HOW}"
    )


def _figures(records: Records, absent: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for system in (s for s in ALL if set(s.jobs) & set(PEER_MEASURES) or s.name in absent):
        if system.name in absent:
            yield system.label, *("cannot be had" if n == 0 else "" for n in range(len(COLUMNS)))
            continue
        cells = [_cell(records, system, measure) for measure in COLUMNS]
        if any(cell != "-" for cell in cells):
            label = f"**{system.label}**" if system.name in (OURS, OURS_SQLITE) else system.label
            yield label, *cells


def _cell(records: Records, system: System, measure: str) -> str:
    if measure == "latency":
        p50 = records.spread(system.name, measure, "p50_ms")
        p99 = records.spread(system.name, measure, "p99_ms")
        return f"{p50.median:.1f} / {p99.median:.1f}" if p50 and p99 else "-"
    found = records.spread(system.name, measure)
    if found is None:
        failed = any((r.system, r.measure) == (system.name, measure) for r in records.errors())
        return "failed" if failed else "-"
    return _rate(found)


def _rate(found: Spread) -> str:
    if found.least == found.most:
        return f"{found.median:,.0f}"
    return f"{found.median:,.0f} ({found.least:,.0f} to {found.most:,.0f})"


def _absent(records: Records, absent: Mapping[str, str]) -> Iterator[str]:
    labels = {system.name: system.label for system in ALL}
    for name, reason in absent.items():
        yield f"\n- {labels[name]} cannot be had: {reason}."
    failures = {(r.system, r.measure): r.error for r in records.errors() if r.system not in absent}
    for (name, measure), error in failures.items():
        yield f"\n- {labels[name]}, {COLUMNS.get(measure, measure)}, failed: {error}"


def _ratios(records: Records) -> Iterator[Sequence[str]]:
    for peer in PEERS:
        mine = OURS_SQLITE if peer.store == "sqlite" else OURS
        cells = []
        for measure in COLUMNS:
            if measure == "latency":
                found = records.ratio((peer.name, measure), (mine, measure), "p50_ms")
            else:
                found = records.ratio((mine, measure), (peer.name, measure))
            cells.append("-" if found is None else f"{found:.1f} x")
        if any(cell != "-" for cell in cells):
            yield peer.label, *cells


def _own(records: Records) -> Iterator[Sequence[str]]:
    for system, measure, text in OWN:
        if (found := records.spread(system, measure)) is not None:
            yield text, _rate(found)
    for measure, text in (
        ("idle_memory", "memory of an idle worker"),
        ("prefetched_memory", f"memory of a worker with {ours.PREFETCHED:,} jobs in hand"),
    ):
        if (found := records.spread(OURS, measure, "megabytes")) is not None:
            yield text, f"{found.median:.0f} MB"


def _settings(records: Records, absent: Mapping[str, str]) -> Iterator[Sequence[str]]:
    seen = {*records.systems(), *absent}
    for system in ALL:
        if system.name in seen and system.name != LIMIT:
            packages = ", ".join(f"`{package}`" for package in system.packages)
            settings = system.settings
            if system.name in (OURS, OURS_SQLITE):
                packages, settings = "this one", ours.SETTINGS
            yield system.label, packages, settings


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
