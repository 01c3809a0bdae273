"""What was found, and how it is told: a table, or JSON."""

from __future__ import annotations

from statistics import median

import msgspec
from rich.table import Table

from oncely.surface.cli.bench.cost import Cost
from oncely.surface.cli.bench.measures import Measure, Size, Timed, percentile
from oncely.surface.cli.bench.plot import Bar, chart, shown


class Found(msgspec.Struct, frozen=True):
    """Of one measure: the median of its rounds, the lowest and the highest. Latencies are those of
    single jobs, over all rounds."""

    name: str
    does: str
    unit: str
    jobs: int
    rounds: int
    median: float
    low: float
    high: float
    p99: float | None
    cost: Cost


class Report(msgspec.Struct, frozen=True):
    oncely: str
    python: str
    store: str
    concurrency: int
    measures: list[Found]


def found(measure: Measure, size: Size, rounds: list[Timed], cost: Cost) -> Found:
    p99 = None
    if measure.unit == "ms":
        values = [sample * 1_000 for timed in rounds for sample in timed.samples]
        p99 = round(percentile(values, 0.99), 2)
    else:
        values = [size.jobs / timed.seconds for timed in rounds]
    return Found(
        name=measure.name,
        does=measure.does,
        unit=measure.unit,
        jobs=size.jobs,
        rounds=len(rounds),
        median=round(median(values), 2),
        low=round(min(values), 2),
        high=round(max(values), 2),
        p99=p99,
        cost=cost,
    )


def table(report: Report) -> Table:
    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    made.add_column("measure", no_wrap=True)
    for head in ("median", "lowest", "highest"):
        made.add_column(head, justify="right", no_wrap=True)
    made.add_column("unit", no_wrap=True)
    for head in ("round\ntrips", "WAL\nbytes", "index\nentries", "disk\nbytes"):
        made.add_column(head, justify="right", no_wrap=True)
    for one in report.measures:
        rates = (one.median, one.low, one.high)
        costs = msgspec.structs.astuple(one.cost)
        made.add_row(one.name, *map(_number, rates), one.unit, *map(_number, costs))
    return made


def legend(report: Report) -> str:
    width = max(len(one.name) for one in report.measures)
    return "\n".join(
        f"{one.name:<{width}}  {one.does}"
        + ("" if one.p99 is None else f"; p99 {shown(one.p99)} ms")
        for one in report.measures
    )


def _number(value: float | None) -> str:
    return "-" if value is None else shown(value)


def plotted(report: Report) -> str:
    """The rates; if only latencies were measured, those."""
    rates = [one for one in report.measures if one.unit == "jobs/s"]
    bars = [Bar(one.does, one.median, one.low, one.high) for one in rates or report.measures]
    unit = "jobs/s" if rates else "ms"
    return chart(f"oncely {report.oncely} on {report.store}", unit, bars)
