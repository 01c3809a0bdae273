"""An attribute that is made when it is first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


# In small letters, as `property` and `cached_property` are.
class once(Generic[T]):  # noqa: N801
    """As `functools.cached_property`, whose lock costs more than what is made here. Threads that
    come at the same time may make it twice; all of them get the same one."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, owner: Any, _: type[Any] | None = None) -> T:
        made: T = owner.__dict__.setdefault(self._name, self._make(owner))
        return made
