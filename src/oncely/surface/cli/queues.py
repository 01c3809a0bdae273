"""`oncely queues`: queues and groups, to look at, to limit and to pause."""

from __future__ import annotations

import os
from typing import Annotated, Any, Final

import msgspec
from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.flow import Group, Queue
from oncely.model.push import Mode, Push
from oncely.store.limits import COUNT_LIMIT
from oncely.surface.app import Oncely
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible

_NONE: Final = "none"
_OF_GROUPS: Final = ("concurrency", "rate")
SECRET_NAME: Final = "ONCELY_PUSH_SECRET"


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
    push_url: Annotated[
        str | None,
        Parameter(metavar="URL", help="The server sends its jobs there; `none`: workers do them."),
    ] = None,
    push_secret: Annotated[
        str | None,
        Parameter(
            metavar="SECRET",
            help="Signs what is sent; two, with a comma, while the receiver changes. Better in "
            f"${SECRET_NAME}: others can see command lines.",
        ),
    ] = None,
    push_mode: Annotated[
        Mode | None, Parameter(help="Whether a 2xx ends a job, or only accepts it.")
    ] = None,
    require_key: Annotated[
        bool | None, Parameter(help="Over HTTP, refuse to enqueue without an idempotency key.")
    ] = None,
    group: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="NAME is the key of a group, not a queue."),
    ] = False,
    options: Options = DEFAULTS,
) -> None:
    """List the queues; limit, pause or resume one, or have its jobs pushed to a URL.

    What is set holds for all workers from their next claim on. With --group it is
    about groups: those that have a limit or a pause.

        $ oncely queues
        $ oncely queues --set payments --concurrency 10 --rate 100/60
        $ oncely queues --set hooks --push-url https://example.com/jobs
        $ oncely queues --group --pause acme
    """
    asked = {"pause": pause, "resume": resume, "set": set}
    steps = [(verb, name) for verb, name in asked.items() if name is not None]
    if len(steps) > 1:
        verbs = " and ".join(f"--{verb}" for verb, _ in steps)
        raise InvalidInput(f"{verbs} are given; expected one of them")
    changes = _changes(concurrency, rate, timeout)
    if require_key is not None:
        changes["require_key"] = require_key
    target = _Target(push_url, push_secret, push_mode)
    given = [option.replace("_", "-") for option in (*changes, *target.given)]
    if given and set is None:
        raise InvalidInput(f"--{given[0]} goes with --set NAME")
    if group and (wrong := [option for option in given if option not in _OF_GROUPS]):
        raise InvalidInput(f"--{wrong[0]} is for queues; a group has --concurrency and --rate")
    with opened(options) as app:
        if set is not None and target.given:
            changes["push"] = target.of(app, set)
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
        app.set_group(name, **changes)
    elif verb == "set":
        app.set_queue(name, **changes)
    else:
        act = app.pause if verb == "pause" else app.resume
        act(group=name) if group else act(name)


class _Target(msgspec.Struct, frozen=True):
    """The push target as it is asked for. What is not given stays as it is."""

    url: str | None
    secret: str | None
    mode: Mode | None

    @property
    def given(self) -> list[str]:
        options = {"push_url": self.url, "push_secret": self.secret, "push_mode": self.mode}
        return [option for option, value in options.items() if value is not None]

    def of(self, app: Oncely, queue: str) -> Push | None:
        if self.url == _NONE:
            return None
        found = [each.push for each in app.queues() if each.name == queue and each.push]
        if self.url is None and not found:
            raise InvalidInput(f"queue {queue!r} is not pushed anywhere; expected --push-url too")
        url = self.url or found[0].url
        mode = self.mode or (found[0].mode if found else "sync")
        secret = self.secret or os.environ.get(SECRET_NAME)
        return Push(url, secret.split(",") if secret else None, mode)


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
            waits = ", which says how they end" if queue.push.mode == "ack" else ""
            policy.append(f"pushed to {visible(queue.push.url)}{waits}")
        if queue.require_key:
            policy.append("only with keys")
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
