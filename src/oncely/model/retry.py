"""The policy of a kind or a queue: how often a job is tried, and how long to wait in between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal

import msgspec
from msgspec.structs import force_setattr

from oncely.model.effect_options import error_types
from oncely.model.errors import InvalidInput, RaceError, StoreError

if TYPE_CHECKING:
    from oncely.model.effect_options import ErrorTypes
else:
    ErrorTypes = Any  # a type of exceptions has no form in JSON

MAX_ATTEMPTS: Final = 20
_CAP_LIMIT_SECONDS: Final = 30 * 86_400
_OWN_ERRORS: Final = (StoreError, RaceError)


class Retry(msgspec.Struct, frozen=True):
    """`base` seconds after the first failure, doubled after each further one (`exponential`) or
    always the same (`fixed`), never more than `cap`. `jitter` takes up to half of it off, so that
    jobs that failed together do not come back together.

    `on` are the exceptions that are retried (all, if not said), `never_on` those that are not: then
    the job fails at once. Both are types of exceptions, one or a tuple. They belong to a handler,
    not to the policy of a queue.
    """

    IN_CODE_ONLY: ClassVar[frozenset[str]] = frozenset({"on", "never_on"})
    """Fields that are neither stored nor sent."""

    max_attempts: int = 10
    backoff: Literal["exponential", "fixed"] = "exponential"
    base: float = 1.0
    cap: float = 3_600.0
    jitter: bool = True
    on: ErrorTypes = ()
    never_on: ErrorTypes = ()

    def __post_init__(self) -> None:
        _check_whole("max_attempts", self.max_attempts, 1, MAX_ATTEMPTS)
        if self.backoff not in ("exponential", "fixed"):
            raise InvalidInput(f"backoff is {self.backoff!r}; expected 'exponential' or 'fixed'")
        _check_seconds("base", self.base)
        _check_seconds("cap", self.cap)
        if not isinstance(self.jitter, bool):
            raise InvalidInput(f"jitter is {self.jitter!r}; expected True or False")
        force_setattr(self, "on", _checked_types("on", self.on))
        force_setattr(self, "never_on", _checked_types("never_on", self.never_on))

    def covers(self, error: BaseException) -> bool:
        """Whether it is retried. The store's own troubles always are, unless they are named."""
        if isinstance(error, self.never_on):
            return False
        return not self.on or isinstance(error, (self.on, _OWN_ERRORS))

    def stored(self) -> dict[str, Any]:
        """The part of it that a queue has."""
        fields = msgspec.structs.asdict(self)
        return {name: value for name, value in fields.items() if name not in self.IN_CODE_ONLY}

    def delay_seconds(self, attempt: int, chance: float) -> float:
        """How long to wait after `attempt` failed. `chance` is a random number from 0 to 1."""
        seconds = self.base
        if self.backoff == "exponential":
            seconds *= 2 ** (attempt - 1)
        seconds = min(seconds, self.cap)
        return seconds * (1 - chance / 2) if self.jitter else seconds


def _checked_types(name: str, value: Any) -> tuple[type[BaseException], ...]:
    types = error_types(value)
    if not types and value not in ((), []):
        raise InvalidInput(f"{name} is {value!r}; expected an exception type, or a tuple of them")
    return types


def _check_whole(name: str, value: Any, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InvalidInput(f"{name} is {value!r}; expected a whole number from {least} to {most}")


def _check_seconds(name: str, value: Any) -> None:
    usable = isinstance(value, int | float) and not isinstance(value, bool)
    if not usable or not 0 <= value <= _CAP_LIMIT_SECONDS:
        raise InvalidInput(
            f"{name} is {value!r}; expected seconds from 0 to {_CAP_LIMIT_SECONDS:,}"
        )
