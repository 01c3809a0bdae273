"""`oncely queues`: queues and groups, to look at, to limit and to pause."""

from __future__ import annotations

from typing import Annotated, Any, Final

from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.flow import Group, Queue
from oncely.store.limits import COUNT_LIMIT
from oncely.surface.app import Oncely
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible

_NONE: Final = "none"


def queues(
    *,
    pause: Annotated[
        str | None, Parameter(metavar="NAME", help="Begin no more of its jobs.")
    ] = None,
    resume: Annotated[str | None, Parameter(metavar="NAME", help="Undo a pause.")] = None,
    set: Annotated[
        str | None, Parameter(metavar="NAME", help="Change its limits, with the options below.")
    ] = None,
    concurrency: Annotated[
        str | None,
        Parameter(metavar="N", help="So many run at once, over all workers; `none` lifts it."),
    ] = None,
    rate: Annotated[
        str | None,
        Parameter(metavar="N/SECONDS", help="So many begin in that time; `none` lifts it."),
    ] = None,
    timeout: Annotated[
        str | None,
        Parameter(metavar="SECONDS", help="For jobs whose kind has none; `none` lifts it."),
    ] = None,
    group: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="NAME is the key of a group, not a queue."),
    ] = False,
    options: Options = DEFAULTS,
) -> None:
    """List the queues; limit, pause or resume one.

    What is set holds for all workers from their next claim on. With --group it is
    about groups: those that have a limit or a pause.

        $ oncely queues
        $ oncely queues --set payments --concurrency 10 --rate 100/60
        $ oncely queues --group --pause acme
    """
    asked = {"pause": pause, "resume": resume, "set": set}
    steps = [(verb, name) for verb, name in asked.items() if name is not None]
    if len(steps) > 1:
        given = " and ".join(f"--{verb}" for verb, _ in steps)
        raise InvalidInput(f"{given} are given; expected one of them")
    changes = _changes(concurrency, rate, timeout)
    if changes and set is None:
        raise InvalidInput(f"--{next(iter(changes))} goes with --set NAME")
    with opened(options) as app:
        for verb, name in steps:
            _steer(app, verb, name, changes, group=group)
        names = [name for _, name in steps]
        if group:
            groups = [found for found in app.groups() if not names or found.key in names]
            _show_groups(groups, options)
        else:
            _show_queues([q for q in app.queues() if not names or q.name in names], options)


def _steer(app: Oncely, verb: str, name: str, changes: dict[str, Any], *, group: bool) -> None:
    if verb == "set" and group:
        if "timeout" in changes:
            raise InvalidInput("--timeout is for queues; a group has --concurrency and --rate")
        app.set_group(name, **changes)
    elif verb == "set":
        app.set_queue(name, **changes)
    else:
        act = app.pause if verb == "pause" else app.resume
        act(group=name) if group else act(name)


def _changes(concurrency: str | None, rate: str | None, timeout: str | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if concurrency is not None:
        changes["concurrency"] = (
            None if concurrency == _NONE else _number("concurrency", concurrency)
        )
    if rate is not None:
        changes["rate"] = None if rate == _NONE else _rate(rate)
    if timeout is not None:
        changes["timeout"] = None if timeout == _NONE else _number("timeout", timeout)
    return changes


def _rate(text: str) -> tuple[float, float]:
    count, slash, seconds = text.partition("/")
    if not slash:
        raise InvalidInput(f"--rate is {text!r}; expected N/SECONDS, such as 100/60, or none")
    return _number("rate", count), _number("rate", seconds)


def _number(option: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise InvalidInput(f"--{option} is {text!r}; expected a number or none") from None
    return int(value) if value.is_integer() else value


def _show_queues(found: list[Queue], options: Options) -> None:
    if options.json:
        answer(found)
        return
    for queue in found:
        many = "more than 10,000" if queue.waiting >= COUNT_LIMIT else f"{queue.waiting:,}"
        policy = []
        if queue.timeout is not None:
            policy.append(f"timeout {queue.timeout:g} s")
        if queue.retry is not None:
            policy.append(f"{queue.retry.max_attempts} attempts")
        if queue.push is not None:
            policy.append(f"pushed to {visible(queue.push.url)}")
        _line(
            queue.name, [f"{many} waiting", f"{queue.running:,} running", *_limits(queue), *policy]
        )
    if not found:
        screen().print("no jobs, no limits")


def _show_groups(found: list[Group], options: Options) -> None:
    if options.json:
        answer(found)
        return
    for group in found:
        _line(group.key, [f"{group.running:,} running", *_limits(group)])
    if not found:
        screen().print("no limit, no pause")


def _limits(found: Queue | Group) -> list[str]:
    parts = []
    if found.concurrency is not None:
        parts.append(f"concurrency {found.concurrency:,}")
    if found.rate is not None:
        parts.append(f"rate {found.rate[0]:,} in {found.rate[1]:g} s")
    if found.paused:
        parts.append("paused")
    return parts


def _line(name: str, parts: list[str]) -> None:
    screen().print(f"{visible(name)}  {', '.join(parts)}")
