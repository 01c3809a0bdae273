"""The three doors: where repeats are recognised, and whether the keys can."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from markupsafe import Markup

from oncely.model.health import Verdict
from oncely.model.traffic import Last, Traffic, check_last
from oncely.store import counters
from oncely.surface.dashboard.ask import Ask, Page, View
from oncely.surface.dashboard.charts import SPANS, Part, Totals, counts
from oncely.surface.dashboard.live import Topic

if TYPE_CHECKING:
    from oncely.surface.dashboard.site import Site

_EVERY_SECONDS: Final[dict[Last, float]] = {"hour": 2.0, "day": 10.0, "month": 60.0}
_KEYS_SECONDS: Final = 30.0
_KINDS: Final = 100
_SAMPLE: Final = 2_000
VERDICTS: Final[dict[Verdict, tuple[str, str]]] = {
    "recognises": ("recognises repeats", "completed"),
    "no_repeat_yet": ("no repeat yet", ""),
    "no_keys": ("no keys", "in_doubt"),
    "looks_random": ("looks random", "failed"),
    "too_coarse": ("collides", "failed"),
}
"""In words, and the tone of the badge."""


class DoorRow(msgspec.Struct, frozen=True):
    """What was stopped of one kind."""

    kind: str
    enqueued: int
    enqueue: int
    delivery: int
    effect: int
    conflicts: int

    @property
    def stopped(self) -> int:
        return self.enqueue + self.delivery + self.effect


async def show(ask: Ask) -> View:
    last = check_last(ask.query.get("last", "hour"))
    parts = {
        "part": await ask.site.live.part(f"doors-{last}", ask.root),
        "keys": await ask.site.live.part("keys", ask.root),
    }
    shown = {name: Markup(text) for name, text in parts.items()}
    return View("doors.html", {**shown, "last": last, "spans": SPANS})


async def read(site: Site, *, last: Last) -> Mapping[str, Any]:
    traffic = await site.app.atraffic(last)
    # A store may have many kinds: the server answers others meanwhile.
    return await asyncio.to_thread(_figures, last, traffic)


def _figures(last: Last, traffic: Traffic) -> Mapping[str, Any]:
    found = rows(traffic)
    return {
        "last": last,
        "span": SPANS[last],
        "rows": found[:_KINDS],
        "rows_left": max(0, len(found) - _KINDS),
        "stopped": {name: sum(_at(traffic, name)) for name in ("enqueue", "delivery", "effect")},
        "conflicts": sum(traffic.values("key_conflicts")),
        "charts": [
            counts(
                traffic,
                "Repeats stopped",
                [
                    Part("at enqueue", "main", _at(traffic, "enqueue"), filled=True),
                    Part("at delivery", "doubt", _at(traffic, "delivery")),
                    Part("at effect", "good", _at(traffic, "effect")),
                ],
            ),
            counts(
                traffic,
                "Keys that collide",
                [Part("refused", "bad", traffic.values("key_conflicts"), filled=True)],
            ),
        ],
    }


def rows(traffic: Traffic) -> list[DoorRow]:
    """Those with the most repeats first."""
    totals = Totals(traffic)
    stopped = partial(totals.count, "deduplicated")
    found = [
        DoorRow(
            kind,
            totals.count("enqueued", kind),
            stopped(kind, "enqueue"),
            stopped(kind, "delivery"),
            stopped(kind, "effect"),
            totals.count("key_conflicts", kind),
        )
        for kind in traffic.kinds
    ]
    found.sort(key=lambda row: (-row.stopped, -row.conflicts, row.kind))
    return found


async def read_keys(site: Site) -> Mapping[str, Any]:
    health = await site.service.ask(lambda _: counters.key_health(_SAMPLE))
    return {"health": health, "sample": _SAMPLE, "verdicts": VERDICTS}


def _at(traffic: Traffic, boundary: str) -> list[int]:
    return traffic.values("deduplicated", label=boundary)


PAGES: Final = (Page("GET", "/doors", show, "The three doors", nav="Three doors"),)
TOPICS: Final = (
    *(
        Topic(f"doors-{last}", "doors_part.html", partial(read, last=last), every_seconds)
        for last, every_seconds in _EVERY_SECONDS.items()
    ),
    Topic("keys", "keys_part.html", read_keys, _KEYS_SECONDS),
)
