"""One exchange with the store: what has ended for new jobs."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence

from oncely.store import deliver
from oncely.store.claim import Claimed, claim_statement
from oncely.store.deliver import Settlement, completed
from oncely.store.lanes import AtOnce, Claim, Outlook, at_once
from oncely.store.plan import Statement
from oncely.store.swap import Completed, swap
from oncely.worker.bounds import Bounds
from oncely.worker.line import Line


class Exchange:
    """`wanted` jobs are claimed if there are so many. The first `begun` of them count as begun,
    which they are in a moment: counted from then on, a job that kills its worker at once would
    never count. One that was not among the first is so the next time, for it is the oldest."""

    def __init__(
        self,
        outlook: Outlook,
        bounds: Bounds,
        *,
        worker: str,
        lease_seconds: float,
        wanted: int,
        begun: int,
        pushes: bool,
        apart: bool,
        parallel: bool,
        take_in: Callable[[Sequence[Claimed]], None],
    ) -> None:
        self._outlook = outlook
        self._bounds = bounds
        self._worker = worker
        self._lease_seconds = lease_seconds
        self._wanted = wanted
        self._begun = begun
        self._pushes = pushes
        self._apart = apart
        self._parallel = parallel
        self._take_in = take_in
        self._nonce = secrets.randbits(60)
        self.refused: list[Settlement] = []
        self.taken_in = 0
        """The number of jobs that were taken in before the answer."""
        self.source: str | None = None
        """The plain queue that gave jobs."""

    async def make(
        self, store: Line, over: Sequence[Sequence[Completed]], singles: Sequence[Settlement]
    ) -> list[Claimed]:
        """The leases that are over and a queue in one message, if it can be; what is left, one by
        one. Before that, what is claimed so far is taken in: the rest may have to wait for a lease
        that a handler's transaction has locked. The answer is what is still to be taken in."""
        claimed: list[Claimed] = []
        lost = False
        others = self._outlook.due if self._wanted else set()
        now = time.monotonic()
        queue = self._turn() if others else None
        is_plain = queue not in self._outlook.shared
        at_once = None
        if queue is not None and not is_plain and not singles:
            # Under a limit what has ended must be settled before the claim, not after it.
            at_once = self._shared_at_once(queue, now)
        wanted: list[Statement] = []
        if at_once is not None:
            wanted = at_once.statements
        elif queue is not None and is_plain:
            wanted.append(self._plain(queue, now))
        if wanted or (over and not others):
            swapped = await store.ask(lambda again: swap(over, wanted, again=again), "write")
            lost = swapped is None
            if swapped is not None:
                claimed = swapped.claimed
                over = [lease for lease in over if lease[0].claimed.fence not in swapped.settled]
                others = others - {queue}
                if at_once is not None:
                    at_once.tell(self._outlook, claimed)
                    self._bounds.claimed_shared(claimed, now)
                else:
                    self.source = queue if claimed else None
                    self._bounds.claimed(claimed, now)
            singles = [*singles, *(completed(end) for lease in over for end in lease)]
            over = []
        room = self._wanted - len(claimed) if others else 0
        unsaid = any(not end.written or end.repeats for end in singles)
        if over or unsaid or lost or room:
            self._take_in(claimed)
            self.taken_in = len(claimed)
            return await self._exchange(store, over, singles, room, len(claimed), lost=lost)
        return claimed

    async def _exchange(
        self,
        store: Line,
        over: Sequence[Sequence[Completed]],
        singles: Sequence[Settlement],
        room: int,
        claimed: int,
        *,
        lost: bool,
    ) -> list[Claimed]:
        # What the swap has claimed must not be found again under this one's number.
        nonce = self._nonce if lost or not claimed else secrets.randbits(60)
        now = time.monotonic()
        exchanged = await store.ask(
            lambda again: deliver.exchange(
                singles,
                over=over,
                outlook=self._outlook,
                worker=self._worker,
                nonce=nonce,
                lease_seconds=self._lease_seconds,
                limit=room,
                begun=max(0, self._begun - claimed),
                pushes=self._pushes,
                apart=self._apart,
                again=again or lost,
                bounds=lambda queue: self._bounds.of_lanes(queue, now),
            )
        )
        self._bounds.claimed_shared(exchanged.claimed, now)
        self.refused = exchanged.refused
        return exchanged.claimed

    def _turn(self) -> str:
        """The queue whose turn it is."""
        names = sorted(self._outlook.due)
        return names[self._nonce % len(names)]

    def _plain(self, queue: str, now: float) -> Statement:
        return claim_statement(
            queue,
            worker=self._worker,
            nonce=self._nonce,
            lease_seconds=self._lease_seconds,
            limit=self._wanted,
            started=self._begun,
            bounds=self._bounds.of(queue, now),
            pushes=self._pushes,
            apart=self._apart,
        )

    def _shared_at_once(self, queue: str, now: float) -> AtOnce | None:
        if not self._parallel:
            return None  # to wait for an answer costs nothing there
        claim = Claim(
            queue,
            self._worker,
            self._nonce,
            round(self._lease_seconds * 1_000_000),
            self._wanted,
            self._begun,
            self._apart,
            self._bounds.of_lanes(queue, now),
        )
        return at_once(self._outlook, claim)
