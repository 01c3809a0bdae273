"""The story of a schedule in two lanes: the first delivery, and those after it."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import msgspec

from oncely.prove.schedule import Fault, Schedule
from oncely.prove.watch import Boundary, Note

if TYPE_CHECKING:
    from oncely.prove.child import Delivery

_STRUCK: Final[dict[Fault, str]] = {
    "crash": "✗ the process ends",
    "late": "✗ the process ends; two days go by",
    "zombie": "‖ paused past its lease",
    "overlap": "‖ paused past its lease",
    "refuse": "✗ 503, nothing done",
    "lose": "✗ done, and the answer is lost",
    "timeout": "✗ done, and the caller times out",
    "drop": "✗ it does not arrive, and the caller times out",
    "outage": "✗ 503, nothing done, and again for the next request",
    "throttle": "✗ 429 with Retry-After, nothing done",
    "fail": "✗ the statement fails, nothing done",
    "tear": "✗ the process ends with half of it in the file",
    "fresh": "✗ the process ends; a fresh interpreter goes on",
    "raise": "✗ an exception",
}
_ENDS: Final = ("crash", "late", "zombie", "overlap", "raise", "fresh")
"""The faults that strike before what comes next is tried."""
_WIDTH: Final = 58


class Step(msgspec.Struct, frozen=True):
    text: str
    where: str | None = None
    is_fault: bool = False
    number: int | None = None
    """Of its boundary in this delivery: what a schedule names."""


class Lane(msgspec.Struct, frozen=True):
    title: str
    steps: list[Step]


def lanes_of(schedule: Schedule, deliveries: list[Delivery]) -> list[Lane]:
    """A paused delivery that goes on is a lane of its own, after its successor."""
    lanes: list[tuple[float, Lane]] = []
    for number, child in enumerate(deliveries):
        fault = schedule.moves[number].fault if number < len(schedule.moves) else None
        until = child.resumed_at
        steps = _steps(child.messages[:until], fault)
        lanes.append((child.began, Lane(f"delivery {number + 1}", steps)))
        if until is not None:
            rest = _steps(child.messages[until:], None)
            lanes.append((child.went_on, Lane(f"delivery {number + 1} goes on", rest)))
    return [lane for _, lane in sorted(lanes, key=lambda each: each[0])]


def _steps(messages: list[Boundary | Note], fault: Fault | None) -> list[Step]:
    steps: list[Step] = []
    for each in messages:
        if isinstance(each, Boundary):
            steps.append(Step(each.name, each.where, number=each.number))
        elif each.what == "answer" and steps:
            steps[-1] = msgspec.structs.replace(steps[-1], text=f"{steps[-1].text} → {each.text}")
        elif each.what == "struck" and fault is not None and steps:
            # What it struck has not happened, unless it was tried.
            last = steps.pop() if fault in _ENDS else steps[-1]
            text, number = _STRUCK[fault], None
            if last not in steps:
                text, number = f"{text} before: {last.text}", last.number
            steps.append(Step(text, last.where, is_fault=True, number=number))
    return steps


def draw(lanes: list[Lane]) -> str:
    """Two columns: the left one is the delivery that met the fault."""
    rows: list[tuple[str, str]] = []
    for number, lane in enumerate(lanes):
        left = number == 0 or lane.title.endswith("goes on")
        if number == 0:
            rows.append((lane.title, "those after it"))
        elif lane.steps:
            rows.append((lane.title if left else "", "" if left else lane.title))
        for step in lane.steps:
            mark = "" if step.number is None else str(step.number)
            told = f"{mark:>4} {_cut(step.text)}"
            place = f"     {short(step.where)}" if step.where else None
            lines = [told, place] if place else [told]
            rows += [(text, "") if left else ("", text) for text in lines]
    width = max((len(left) for left, _ in rows), default=0)
    return "\n".join(f"  {left:<{width}} │ {right}".rstrip() for left, right in rows)


def _cut(text: str) -> str:
    return text if len(text) <= _WIDTH else text[: _WIDTH - 1] + "…"


def short(where: str) -> str:
    relative = os.path.relpath(where)
    return where if relative.startswith("..") else relative
