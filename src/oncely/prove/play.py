"""What became of a schedule, and why one cannot be played as it is."""

from __future__ import annotations

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.prove.child import Delivery
from oncely.prove.schedule import Schedule
from oncely.prove.world import Snapshot

_INTENT, _DONE, _TAKEN = "write the intent of ", "record that ", "take over "


class Play(msgspec.Struct, frozen=True):
    """A schedule that was played to its end."""

    schedule: Schedule
    deliveries: list[Delivery]
    job: Job
    world: Snapshot
    hung: str = ""
    """Which delivery came to no end, after how long, and its last boundary."""
    reached: bool = True
    """Whether each fault came to its boundary."""
    ahead_seconds: float = 0.0
    """How much time had passed at the end."""
    read_clock: bool = False


class BeginAnew(Exception):
    """A library came in that has to be watched."""


class NotFresh(Exception):
    """A fresh interpreter cannot deliver the job, though a forked process can."""


class Hung(Exception):
    """A delivery that comes to no end."""


def woken_in_fence(play: Play) -> str | None:
    """The fence whose sender was paused in the middle of the call, and taken over after its
    `verify` was asked. That it may still wake up is what such a fence says of itself."""
    if play.schedule.moves[0].fault not in ("zombie", "overlap"):
        return None
    paused, *successors = play.deliveries
    before = [each.name for each in paused.boundaries[: play.schedule.moves[0].at + 1]]
    begun = {name.removeprefix(_INTENT) for name in before if name.startswith(_INTENT)}
    ended = {name.removeprefix(_DONE).removesuffix(" is done") for name in before}
    taken = {each.name.removeprefix(_TAKEN) for child in successors for each in child.boundaries}
    return next((name for name in (begun - ended) & taken if name.startswith("fence ")), None)


def refuse_unfinished(play: Play) -> None:
    job = play.job
    if play.hung:
        raise InvalidInput(
            f"the clean run came to no end: {play.hung}. Prove a handler that ends by itself"
        )
    if job.state != "completed":
        error = job.error or {}
        told = error.get("message", "") if isinstance(error, dict) else str(error)
        raise InvalidInput(
            f"the clean run ended {job.state}, not completed ({told}): the handler must do "
            "its work when nothing goes wrong"
        )
