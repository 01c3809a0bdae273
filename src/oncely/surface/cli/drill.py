"""`oncely drill`: what drills found, and the switch that all workers obey."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

from cyclopts import Parameter

from oncely.model.drill import DrillFinding, Drills
from oncely.model.event import one_line
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def drill(
    do: Annotated[
        Literal["status", "stop", "start"],
        Parameter(metavar="status|stop|start", help="Look, or turn the switch for all workers."),
    ] = "status",
    /,
    *,
    options: Options = DEFAULTS,
) -> None:
    """Show what drills found; stop them on all workers, or let them go on.

    A worker with --drill delivers a share of the jobs that it completed once
    more, to see what that would repeat. `stop` takes effect within a second.

        $ oncely drill
        $ oncely drill stop
    """
    with opened(options) as app:
        if do == "stop":
            app.stop_drills()
        elif do == "start":
            app.start_drills()
        found = app.drills()
    if options.json:
        answer(found)
        return
    for line in _lines(found):
        screen().print(visible(line))


def _lines(found: Drills) -> Iterator[str]:
    now = datetime.now(UTC)
    since = "" if found.at is None else f" by {found.by}, {when(found.at, now)}"
    if found.stopped:
        yield f"drills are stopped{since}"
    else:
        yield f"drills may run{since and f': started{since}'}"
    for kind, outcomes in found.outcomes.items():
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
        yield f"  {kind}: {sum(outcomes.values())} drills, {told}"
    if not found.outcomes:
        yield "  none was made yet"
        return
    yield f"  in all: {found.recognised} effects recognised, {found.repeated} would be repeated"
    for each in found.findings:
        yield f"{each.outcome}  job {each.job_id}, {each.kind}, {when(each.at, now)}"
        yield f"    {_why(each)}"


def _why(each: DrillFinding) -> str:
    if each.repeated:
        return f"would repeat: {', '.join(map(one_line, each.repeated))}"
    if isinstance(each.error, dict):
        return one_line(f"{each.error.get('type')}: {each.error.get('message')}")
    return "it returned something else than the first time"
