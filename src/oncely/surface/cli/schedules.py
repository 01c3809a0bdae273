"""`oncely schedules`: the schedules of a store, to look at and to steer."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.schedule import Schedule
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def schedules(
    *,
    pause: Annotated[str | None, Parameter(metavar="NAME", help="No ticks of it for now.")] = None,
    resume: Annotated[
        str | None, Parameter(metavar="NAME", help="Go on with the next tick.")
    ] = None,
    fire: Annotated[
        str | None, Parameter(metavar="NAME", help="Enqueue its job now, beside its ticks.")
    ] = None,
    remove: Annotated[
        str | None, Parameter(metavar="NAME", help="Forget one that no worker declares.")
    ] = None,
    idempotency_key: Annotated[
        str | None,
        Parameter(metavar="KEY", help="With --fire: repeats with this key are one job."),
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """List the schedules; pause, resume, fire or remove one.

    Schedules are declared in code, by `app.schedule`, and fired by the workers
    that declare them. Ticks that fall in a pause are not made up for.

        $ oncely schedules
        $ oncely schedules --fire digest
    """
    asked = {"pause": pause, "resume": resume, "fire": fire, "remove": remove}
    steps = [(verb, name) for verb, name in asked.items() if name is not None]
    if len(steps) > 1:
        given = " and ".join(f"--{verb}" for verb, _ in steps)
        raise InvalidInput(f"{given} are given; expected one of them")
    if idempotency_key is not None and fire is None:
        raise InvalidInput("--idempotency-key goes with --fire")
    with opened(options) as app:
        match steps:
            case [("pause", name)]:
                app.pause_schedule(name)
                _report("paused", name, options)
            case [("resume", name)]:
                app.resume_schedule(name)
                _report("resumed", name, options)
            case [("remove", name)]:
                app.remove_schedule(name)
                _report("removed", name, options)
            case [("fire", name)]:
                receipt = app.fire_schedule(name, idempotency_key=idempotency_key)
                if options.json:
                    answer(receipt)
                elif receipt.inserted:
                    screen().print(f"fired schedule {name}: job {receipt.job_id}, {receipt.state}")
                else:
                    screen().print(
                        f"deduplicated: job {receipt.job_id} already there, {receipt.state}"
                    )
            case _:
                _list(app.schedules(), options)


def _report(done: str, name: str, options: Options) -> None:
    if options.json:
        answer({"schedule": name, "done": done})
    else:
        screen().print(f"{done} schedule {name}")


def _list(found: list[Schedule], options: Options) -> None:
    if options.json:
        answer(found)
        return
    out = screen()
    for schedule in found:
        title = (schedule.name, schedule.cron, schedule.timezone)
        out.print("  ".join(visible(part) for part in title), style="bold")
        for line in _lines(schedule):
            out.print(f"    {line}")
    if not found:
        out.print("no schedules")


def _lines(schedule: Schedule) -> Iterator[str]:
    now = datetime.now(UTC)
    yield f"job   {schedule.kind} in {schedule.queue}"
    yield f"next  {'paused' if schedule.next_at is None else when(schedule.next_at, now)}"
    yield f"last  {'none yet' if schedule.last_at is None else when(schedule.last_at, now)}"
    if not schedule.declared:
        yield "no worker that declares it runs: nobody fires it"
