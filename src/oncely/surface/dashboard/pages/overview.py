"""How things are: the first page."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from markupsafe import Markup

from oncely.model.flow import Queue
from oncely.model.traffic import Last, Latency, Traffic, check_last
from oncely.model.worker import Worker
from oncely.store import limits
from oncely.surface.dashboard.ask import Ask, Page, View
from oncely.surface.dashboard.charts import SPANS, Part, Totals, counts, times
from oncely.surface.dashboard.live import Topic

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site

_EVERY_SECONDS: Final[dict[Last, float]] = {"hour": 2.0, "day": 10.0, "month": 60.0}
_KINDS: Final = 50
_UNHANDLED_KINDS: Final = 5
_RECENT: Final = 5


class KindRow(msgspec.Struct, frozen=True):
    """What became of the jobs of one kind."""

    kind: str
    enqueued: int
    completed: int
    failed: int
    retried: int
    waited: Latency | None
    ran: Latency | None


class QueueRow(msgspec.Struct, frozen=True):
    name: str
    paused: bool
    waiting: int
    oldest_seconds: float | None
    running: int
    waited: Latency | None
    ran: Latency | None


async def show(ask: Ask) -> View:
    last = check_last(ask.query.get("last", "hour"))
    part = await ask.site.live.part(f"overview-{last}", ask.root)
    return View("overview.html", {"part": Markup(part), "last": last, "spans": SPANS})


async def read(site: Site, *, last: Last) -> Mapping[str, Any]:
    traffic = await site.app.atraffic(last)
    queues = await site.app.aqueues()
    workers = await site.app.aworkers()
    ages = await site.service.ask(lambda _: limits.ages())
    unhandled = await site.service.ask(lambda _: limits.kinds_without_handler())
    resting = await site.service.ask(lambda _: limits.resting())
    # A store may have many kinds: the server answers others meanwhile.
    return await asyncio.to_thread(
        _figures, last, traffic, queues, workers, ages=ages, unhandled=unhandled, resting=resting
    )


def _figures(
    last: Last,
    traffic: Traffic,
    queues: list[Queue],
    workers: list[Worker],
    *,
    ages: Mapping[str, float],
    unhandled: Mapping[str, int],
    resting: Mapping[str, int],
) -> Mapping[str, Any]:
    executions = traffic.values("executions")
    totals = Totals(traffic)
    return {
        "last": last,
        "span": SPANS[last],
        "queues": _queues(queues, traffic, totals, ages),
        "oldest": max(ages.values(), default=0.0),
        "waiting": sum(min(each.waiting, limits.COUNT_LIMIT - 1) for each in queues),
        "more": any(each.waiting >= limits.COUNT_LIMIT for each in queues),
        "running": sum(each.running for each in queues),
        "alive": sum(each.alive for each in workers),
        "silent": sum(not each.alive for each in workers),
        "unhandled": sum(unhandled.values()),
        "unhandled_kinds": list(unhandled)[:_UNHANDLED_KINDS],
        "unhandled_left": max(0, len(unhandled) - _UNHANDLED_KINDS),
        "held": resting.get("in_doubt", 0),
        "dead": resting.get("failed", 0),
        "executions": sum(executions),
        "lately": _lately(traffic, executions),
        "failed": sum(traffic.values("executions", label="failed")),
        "retried": sum(_ended(traffic, "retried")) + sum(_ended(traffic, "crashed")),
        "waited": totals.of("waited"),
        "ran": totals.of("ran"),
        "kinds": _kinds(traffic, totals),
        "kinds_left": max(0, len(traffic.kinds) - _KINDS),
        "charts": [
            counts(
                traffic,
                "Throughput",
                [
                    Part("completed", "good", _ended(traffic, "completed"), filled=True),
                    Part("enqueued", "main", traffic.values("enqueued")),
                ],
            ),
            counts(
                traffic,
                "Failures and retries",
                [
                    Part("failed", "bad", _ended(traffic, "failed"), filled=True),
                    Part("retried", "doubt", _ended(traffic, "retried")),
                    Part("crashed", "other", _ended(traffic, "crashed")),
                ],
            ),
            times(traffic, "Waited", "from due to start", "waited"),
            times(traffic, "Ran", "from start to end", "ran"),
        ],
    }


def _kinds(traffic: Traffic, totals: Totals) -> list[KindRow]:
    """Those with the most executions first."""
    ended = partial(totals.count, "executions")
    kinds = sorted(
        traffic.kinds,
        key=lambda kind: (-ended(kind, "failed"), -ended(kind, "completed"), kind),
    )
    return [
        KindRow(
            kind,
            totals.count("enqueued", kind),
            ended(kind, "completed"),
            ended(kind, "failed"),
            ended(kind, "retried") + ended(kind, "crashed"),
            totals.of("waited", kind=kind),
            totals.of("ran", kind=kind),
        )
        for kind in kinds[:_KINDS]
    ]


def _lately(traffic: Traffic, executions: list[int]) -> str:
    """How many there are in a second or a minute, by the last steps that are over."""
    recent = executions[-_RECENT - 1 : -1]
    per_minute = sum(recent) / len(recent) / traffic.seconds * 60
    if per_minute < 60:
        return f"{per_minute:,.3g} a minute lately"
    return f"{per_minute / 60:,.0f} a second lately"


def _queues(
    queues: list[Queue], traffic: Traffic, totals: Totals, ages: Mapping[str, float]
) -> list[QueueRow]:
    """Those that stand in the store, and those that had something to do."""
    known = {each.name: each for each in queues}
    return [
        QueueRow(
            name,
            known[name].paused if name in known else False,
            known[name].waiting if name in known else 0,
            ages.get(name) or None,
            known[name].running if name in known else 0,
            totals.of("waited", queue=name),
            totals.of("ran", queue=name),
        )
        for name in sorted({*known, *traffic.queues})
    ]


def _ended(traffic: Traffic, outcome: str) -> list[int]:
    return traffic.values("executions", label=outcome)


PAGES: Final = (Page("GET", "/", show, "Overview", nav="Overview"),)
TOPICS: Final = tuple(
    Topic(f"overview-{last}", "overview_part.html", partial(read, last=last), every_seconds)
    for last, every_seconds in _EVERY_SECONDS.items()
)
