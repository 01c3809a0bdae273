"""The policy of a kind or a queue: how often a job is tried, and how long to wait in between."""

from __future__ import annotations

from typing import Any, Final, Literal

import msgspec

from oncely.model.errors import InvalidInput

MAX_ATTEMPTS: Final = 20
_CAP_LIMIT_SECONDS: Final = 30 * 86_400


class Retry(msgspec.Struct, frozen=True):
    """`base` seconds after the first failure, doubled after each further one (`exponential`) or
    always the same (`fixed`), never more than `cap`. `jitter` takes up to half of it off, so that
    jobs that failed together do not come back together."""

    max_attempts: int = 10
    backoff: Literal["exponential", "fixed"] = "exponential"
    base: float = 1.0
    cap: float = 3_600.0
    jitter: bool = True

    def __post_init__(self) -> None:
        _check_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.backoff not in ("exponential", "fixed"):
            raise InvalidInput(f"backoff is {self.backoff!r}; expected 'exponential' or 'fixed'")
        _check_seconds("base", self.base)
        _check_seconds("cap", self.cap)
        if not isinstance(self.jitter, bool):
            raise InvalidInput(f"jitter is {self.jitter!r}; expected True or False")

    def delay_seconds(self, attempt: int, chance: float) -> float:
        """How long to wait after `attempt` failed. `chance` is a random number from 0 to 1."""
        seconds = self.base
        if self.backoff == "exponential":
            seconds *= 2 ** (attempt - 1)
        seconds = min(seconds, self.cap)
        return seconds * (1 - chance / 2) if self.jitter else seconds


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{name} is {value!r}; expected a whole number from {least} to {most}")


def _check_seconds(name: str, value: Any) -> None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or not 0 <= value <= _CAP_LIMIT_SECONDS:
        raise InvalidInput(
            f"{name} is {value!r}; expected seconds from 0 to {_CAP_LIMIT_SECONDS:,}"
        )
