"""What goes wrong, when: a schedule, and the word that names it so that it can be run again."""

from __future__ import annotations

import re
from typing import Final, Literal, cast, get_args

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.watch import Act, Action

Fault = Literal[
    "crash", "late", "zombie", "overlap", "refuse", "lose", "timeout", "drop", "outage", "throttle",
    "fail", "tear", "fresh", "raise",
]  # fmt: skip
FAULTS: Final[tuple[Fault, ...]] = get_args(Fault)
_MOVE: Final = re.compile(rf"({'|'.join(FAULTS)})@(\d+)")
_ACTIONS: Final[dict[Fault, Action]] = {
    "late": "crash",
    "fresh": "crash",
    "zombie": "pause",
    "overlap": "pause",
}


class Move(msgspec.Struct, frozen=True):
    """A fault at the boundary with that number of the next delivery."""

    fault: Fault
    at: int

    def __str__(self) -> str:
        return f"{self.fault}@{self.at}"

    @property
    def act(self) -> Act:
        """What happens in the process of the delivery. The rest happens around it."""
        return Act(_ACTIONS.get(self.fault) or cast("Action", self.fault), self.at)


class Schedule(msgspec.Struct, frozen=True):
    """One fault for each of the first deliveries; the ones after that are healthy."""

    moves: tuple[Move, ...] = ()

    def __str__(self) -> str:
        return "+".join(map(str, self.moves)) or "clean"

    @property
    def told(self) -> str:
        return ", then ".join(f"{_WORDS[move.fault]} at {move.at}" for move in self.moves)


_WORDS: Final[dict[Fault, str]] = {
    "crash": "the process ends",
    "late": "the process ends, and the job comes again two days later",
    "zombie": "the worker is paused past its lease and resumed after its successor",
    "overlap": "the worker is paused past its lease and resumed after its successor has ended",
    "refuse": "the other side answers 503",
    "lose": "the other side does it, and its answer is lost",
    "timeout": "the other side does it, and the caller times out",
    "drop": "the request does not arrive, and the caller times out",
    "outage": "the other side answers 503 twice",
    "throttle": "the other side answers 429",
    "fail": "the statement fails",
    "tear": "the process ends with half of the file written",
    "fresh": "the process ends, and the job comes again in a fresh interpreter",
    "raise": "an exception is raised",
}


def parse(token: str) -> Schedule:
    moves = []
    for part in token.split("+"):
        match = _MOVE.fullmatch(part.strip())
        if match is None:
            raise InvalidInput(
                f"the schedule is {token!r}; expected something like crash@5 or crash@5+crash@2, "
                "as a report names it"
            )
        moves.append(Move(match[1], int(match[2])))  # type: ignore[arg-type]
    for move, after in zip(moves, [*moves[1:], None], strict=True):
        if move.fault == "overlap" and (after is None or after.fault != "crash"):
            raise InvalidInput(
                f"the schedule is {token!r}; after an overlap expected the crash of the successor, "
                "as in overlap@2+crash@3"
            )
    return Schedule(tuple(moves))
