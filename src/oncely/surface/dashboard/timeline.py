"""The story of a job as a drawing: lanes for calls, deliveries, effects and people.

Time runs from left to right. A pause of an hour beside an execution of a millisecond would leave
nothing to see of it, so longer is drawn longer, but not in proportion.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from oncely.model.event import Event
from oncely.model.story import Story
from oncely.model.words import details

WIDTH: Final = 960
_LEFT: Final = 176
_RIGHT: Final = 944
_LANE: Final = 26
_TOP: Final = 30
_LANES_LIMIT: Final = 12
_LABEL_LIMIT: Final = 24
_LEAST_BAR: Final = 4.0
_TICK_ROOM: Final = 96.0
_TONES: Final = {
    "completed": "good",
    "failed": "bad",
    "crashed": "bad",
    "retried": "bad",
    "in_doubt": "doubt",
    "effect_done": "good",
    "effect_renamed": "bad",
    "resolved": "other",
    "forgotten": "other",
    "replayed": "other",
    "drilled": "other",
}
_PEOPLE: Final = ("resolved", "forgotten", "replayed")
_BESIDE: Final = ("claimed", "deduplicated", "enqueued", "drilled", *_PEOPLE)


class Bar(msgspec.Struct, frozen=True):
    x: float
    width: float
    tone: str
    told: str


class Point(msgspec.Struct, frozen=True):
    x: float
    tone: str
    told: str


class Lane(msgspec.Struct, frozen=True):
    label: str
    told: str
    y: int
    bars: list[Bar]
    points: list[Point]


class Tick(msgspec.Struct, frozen=True):
    x: float
    text: str


class Timeline(msgspec.Struct, frozen=True):
    lanes: list[Lane]
    ticks: list[Tick]
    left_out: int
    """So many deliveries and effects are not drawn: the oldest."""
    width: int = WIDTH
    left: int = _LEFT

    @property
    def height(self) -> int:
        return _TOP + _LANE * len(self.lanes) + 8


Rows = list[tuple[str, list[tuple[Event, Event | None]], list[Event]]]
"""Of each lane its label, what lasts (with its end, or None) and what is a moment."""


def drawn(story: Story, told: Callable[[str], str]) -> Timeline:
    """`told` is what a text goes through before it is shown."""
    events = [event for event in story.events if event.at is not None]
    scale = _Scale([event.at for event in events if event.at is not None])
    calls = [e for e in events if e.what == "enqueued" or e.boundary == "enqueue"]
    people = [e for e in events if e.what in _PEOPLE or (e.what == "cancelled" and not e.epoch)]
    deliveries, effects = _deliveries(events), _effects(events)
    left_out = max(0, len(deliveries) - _LANES_LIMIT) + max(0, len(effects) - _LANES_LIMIT)
    rows: Rows = [("enqueue", [], calls), *deliveries[-_LANES_LIMIT:], *effects[-_LANES_LIMIT:]]
    if people:
        rows.append(("people", [], people))
    lanes = []
    for number, (label, lasting, moments) in enumerate(rows):
        bars = [_bar(begun, end, scale, told) for begun, end in lasting]
        points = [Point(scale.x(e.at), _tone(e), told(_line(e))) for e in moments if e.at]
        short = label if len(label) <= _LABEL_LIMIT else f"{label[: _LABEL_LIMIT - 1]}…"
        lanes.append(Lane(told(short), told(label), _TOP + _LANE * number, bars, points))
    return Timeline(lanes, scale.ticks(), left_out)


def _deliveries(events: Sequence[Event]) -> Rows:
    epochs: dict[int, tuple[list[Event], list[Event], list[Event]]] = {}
    for event in events:
        if event.epoch is None or event.what.startswith("effect_"):
            continue
        begun, ended, beside = epochs.setdefault(event.epoch, ([], [], []))
        if event.what == "claimed":
            begun.append(event)
        elif event.what in _BESIDE:
            beside.append(event)
        else:
            ended.append(event)
    rows: Rows = []
    for number, (_, (begun, ended, beside)) in enumerate(sorted(epochs.items()), 1):
        lasting = [(begun[0], ended[-1] if ended else None)] if begun else []
        rows.append((f"delivery {number}", lasting, [*beside, *([] if begun else ended)]))
    return rows


def _effects(events: Sequence[Event]) -> Rows:
    rows: dict[str, tuple[list[tuple[Event, Event | None]], list[Event]]] = {}
    for event in events:
        if event.effect is None or event.what == "deduplicated":
            continue
        lasting, moments = rows.setdefault(event.effect, ([], []))
        if event.what == "effect_begun":
            lasting.append((event, None))
        elif event.what == "effect_renamed":
            moments.append(event)
        elif lasting and lasting[-1][1] is None:
            lasting[-1] = (lasting[-1][0], event)
        else:
            moments.append(event)
    return [(f"effect {name}", lasting, moments) for name, (lasting, moments) in rows.items()]


def _bar(begun: Event, end: Event | None, scale: _Scale, told: Callable[[str], str]) -> Bar:
    start = scale.x(begun.at)
    stop = _RIGHT if end is None else scale.x(end.at)
    last = begun if end is None else end
    text = _line(begun) if end is None else f"{_line(begun)} — {_line(end)}"
    if end is None:
        tone = "busy" if begun.what == "claimed" else "doubt"
    else:
        tone = _tone(last)
    return Bar(start, round(max(_LEAST_BAR, stop - start), 1), tone, told(text))


def _line(event: Event) -> str:
    at = "" if event.at is None else f"{_clock(event.at)} "
    return f"{at}{event.what.replace('_', ' ')} {details(event)}".rstrip()


def _tone(event: Event) -> str:
    return _TONES.get(event.what, "main")


def _clock(at: datetime) -> str:
    return f"{at:%H:%M:%S}.{at.microsecond // 1000:03}"


class _Scale:
    """Where a moment lies. Between two moments there is as much room as the logarithm of the time
    between them asks for."""

    def __init__(self, moments: Sequence[datetime]) -> None:
        self._moments = sorted(set(moments))
        weights = [
            math.log1p((later - earlier).total_seconds() * 1000) + 0.5
            for earlier, later in zip(self._moments, self._moments[1:], strict=False)
        ]
        room, total = _RIGHT - _LEFT - 16, sum(weights) or 1.0
        self._places = {self._moments[0]: float(_LEFT)} if self._moments else {}
        at = float(_LEFT)
        for moment, weight in zip(self._moments[1:], weights, strict=True):
            at += room * weight / total
            self._places[moment] = round(at, 1)

    def x(self, at: datetime | None) -> float:
        return float(_LEFT) if at is None else self._places[at]

    def ticks(self) -> list[Tick]:
        found: list[Tick] = []
        for moment in self._moments:
            x = self._places[moment]
            if (not found or x - found[-1].x >= _TICK_ROOM) and x <= _RIGHT - 60:
                found.append(Tick(x, _clock(moment)))
        return found
