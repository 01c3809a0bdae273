"""The executions that have ended and are not settled yet, by the lease they ran under."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set

from oncely.store.claim import Claimed, Fence
from oncely.store.deliver import Settlement, completed
from oncely.store.swap import Completed
from oncely.worker.pace import LINGER_SECONDS

Lease = list[Completed]


class Ends:
    """`urgent` once there is something that gains nothing by waiting: half of what was claimed at a
    time is over, in leases that are, or an end that is not a plain return."""

    def __init__(self) -> None:
        self._left: dict[Fence, int] = {}
        self._leases: dict[Fence, Lease] = {}
        self._since: dict[Fence, float] = {}
        self._singles: list[Settlement] = []
        self.held_back: list[Settlement] = []
        """They may have to wait for a lease that is locked, and are settled apart."""
        self._claimed = 0
        self._over = 0
        self.urgent = False

    @property
    def waiting(self) -> bool:
        return bool(self._leases or self._singles)

    @property
    def fences(self) -> set[Fence]:
        """The leases of the executions that wait here."""
        return fences_of(self._leases.values(), [*self._singles, *self.held_back])

    @property
    def since(self) -> float | None:
        """When the first ended of those that wait for the rest of their lease."""
        return min(self._since.values(), default=None)

    def expect(self, claimed: Sequence[Claimed]) -> None:
        self._claimed = len(claimed) or self._claimed
        for job in claimed:
            if job.place == 0:
                self._left[job.fence] = job.of

    def add(self, claimed: Claimed, end: Completed | Settlement, now: float) -> None:
        fence = claimed.fence
        if isinstance(end, Settlement):
            self._singles.append(end)
            self.urgent = True
        elif (lease := self._leases.get(fence)) is not None:
            lease.append(end)
        else:
            self._leases[fence] = [end]
            self._since[fence] = now
        left = self._left.get(fence, 1) - 1
        if left:
            self._left[fence] = left
        else:
            self._left.pop(fence, None)
            self._over += claimed.of
            self.urgent = self.urgent or 2 * self._over >= self._claimed

    def leave(self, claimed: Claimed) -> None:
        """Its end comes from elsewhere."""
        self._left.pop(claimed.fence, None)

    def take(
        self, now: float, *, linger: bool, locked: Set[Fence] = frozenset()
    ) -> tuple[list[Lease], list[Settlement]]:
        """The leases that are over as a whole, and single ends. With `linger`, those whose lease
        goes on stay for a moment. Those of a `locked` lease are held back."""
        over: list[Lease] = []
        singles, self._singles = self._singles, []
        for fence, lease in list(self._leases.items()):
            if len(lease) == lease[0].claimed.of:
                lease.sort(key=_place)
                over.append(lease)
            elif linger and fence in self._left and now - self._since[fence] < LINGER_SECONDS:
                continue
            else:
                singles += map(completed, lease)
            del self._leases[fence], self._since[fence]
        self.urgent, self._over = False, 0
        if locked:
            self.held_back += [end for end in singles if end.fence in locked]
            singles = [end for end in singles if end.fence not in locked]
        return over, singles

    def take_held_back(self) -> list[Settlement]:
        ends, self.held_back = self.held_back, []
        return ends

    def put_back(self, over: Sequence[Lease], singles: Sequence[Settlement], now: float) -> None:
        """They could not be sent."""
        self._singles += singles
        for lease in over:
            fence = lease[0].claimed.fence
            self._leases[fence] = lease
            self._since[fence] = now
        self.urgent = True


def fences_of(over: Iterable[Lease], singles: Iterable[Settlement]) -> set[Fence]:
    """The leases that these executions ran under."""
    fences = {lease[0].claimed.fence for lease in over}
    fences.update(end.fence for end in singles)
    return fences


def _place(end: Completed) -> int:
    return end.claimed.place
