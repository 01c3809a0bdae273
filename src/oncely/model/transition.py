"""The states of a job and the moves between them: the one table that all else comes from."""

from __future__ import annotations

from typing import Final, Literal

State = Literal["scheduled", "pending", "running", "completed", "failed", "cancelled", "in_doubt"]
Move = Literal["due", "claim", "complete", "fail", "retry", "cancel", "doubt", "resolve", "replay"]

TRANSITIONS: Final[dict[tuple[State, Move], State]] = {
    ("scheduled", "due"): "pending",
    ("scheduled", "cancel"): "cancelled",
    ("pending", "claim"): "running",
    ("pending", "cancel"): "cancelled",
    ("running", "complete"): "completed",
    ("running", "fail"): "failed",
    ("running", "retry"): "scheduled",
    ("running", "cancel"): "cancelled",
    ("running", "doubt"): "in_doubt",
    ("in_doubt", "resolve"): "pending",
    ("in_doubt", "cancel"): "cancelled",
    ("failed", "replay"): "pending",
}

STATES: Final[tuple[State, ...]] = State.__args__  # type: ignore[attr-defined]
ACTIVE: Final[tuple[State, ...]] = ("scheduled", "pending", "running", "in_doubt")
"""The states in which a job holds its unique key."""
ENDED: Final[tuple[State, ...]] = tuple(state for state in STATES if state not in ACTIVE)
OUTCOMES: Final[tuple[State, ...]] = (*ENDED, "in_doubt")
"""The states that a settle leaves behind in the outcome table."""


def states_before(move: Move) -> tuple[State, ...]:
    """The states from which `move` is possible, in the order of the table."""
    return tuple(state for state, possible in TRANSITIONS if possible == move)
