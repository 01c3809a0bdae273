"""The workers of the demo: some are killed between intent, effect and outcome, and others take
over."""

from __future__ import annotations

from typing import Final

import msgspec

from oncely.surface.cli.demo.child import Child, child
from oncely.surface.cli.demo.gate import After, EffectName, Left, Stop
from oncely.surface.cli.demo.place import Place, asks
from oncely.surface.cli.demo.record import DemoFailed, Record, Watcher
from oncely.surface.cli.demo.worker import Assignment

WORKERS: Final = 4
EVERY: Final = 10
"""After so many executions the next worker may be killed."""
PLACES: Final[dict[After, str]] = {
    "intent": "between intent and effect",
    "effect": "between effect and outcome",
    "outcome": "between outcome and settle",
}
_MODULE: Final = "oncely.surface.cli.demo.worker"


class Strike(msgspec.Struct, frozen=True):
    effect: EffectName
    after: After
    asks: bool | None = None
    """Of a receipt: whether the handler can ask after it."""

    def fits(self, stop: Stop) -> bool:
        if (self.effect, self.after) != (stop.effect, stop.after):
            return False
        return self.asks in (None, asks(stop.order))


STRIKES: Final = (
    Strike("charge", "intent"),
    Strike("charge", "effect"),
    Strike("receipt", "intent", asks=False),
    Strike("receipt", "intent", asks=True),
    Strike("receipt", "effect", asks=False),
    Strike("receipt", "effect", asks=True),
    Strike("receipt", "outcome"),
)


class Working:
    def __init__(self, place: Place, port: int, record: Record, watcher: Watcher) -> None:
        self._assignment = Assignment(place, port)
        self._record = record
        self._watcher = watcher
        self._strikes = list(STRIKES)
        self._hit: set[int] = set()
        self._at_work: dict[Child, dict[str, Stop]] = {}
        self._over = False

    async def work(self) -> None:
        """One place in the crew: whoever is killed in it is replaced, until all are dismissed."""
        while await self._employ():
            pass

    def dismiss(self) -> None:
        self._over = True
        for process in self._at_work:
            process.dismiss()

    def is_sending(self, order: int) -> bool:
        """Whether a worker that lives may still mail a receipt for this order."""
        return any(
            (stop.order, stop.effect, stop.after) == (order, "receipt", "intent")
            for under_way in self._at_work.values()
            for stop in under_way.values()
        )

    async def _employ(self) -> bool:
        """Whether it was killed."""
        name = f"worker {len(self._record.workers) + 1}"
        self._record.workers.append(name)
        async with child(_MODULE, self._assignment) as process:
            self._at_work[process] = {}
            if self._over:
                process.dismiss()
            try:
                executions, strike = await self._follow(process)
            finally:
                del self._at_work[process]
            if strike is None and (await process.ended() != 0 or not self._over):
                raise DemoFailed(f"{name} failed: {await process.last_words()}")
        if strike is not None:
            self._record.workers_killed.append(strike.after)
            self._watcher.told(f"{name}: killed {PLACES[strike.after]} of a {strike.effect}")
        else:
            self._watcher.told(f"{name}: {executions} executions")
        return strike is not None and not self._over

    async def _follow(self, process: Child) -> tuple[int, Strike | None]:
        """How many executions it began, and the strike that killed it."""
        heard, strike = set(), None
        under_way = self._at_work[process]
        while line := await process.hear():
            said = msgspec.json.decode(line, type=Stop | Left)
            if isinstance(said, Left):
                under_way.pop(said.execution_id, None)
                continue
            heard.add(said.execution_id)
            self._record.executions.add(said.execution_id)
            under_way[said.execution_id] = said
            if strike is None and (strike := self._strike(said, under_way)):
                process.kill()
            elif strike is None:
                await process.tell(b"%d\n" % said.ticket)
        self._hit.update(stop.order for stop in under_way.values())
        return len(heard), strike if await process.was_killed() else None

    def _strike(self, stop: Stop, under_way: dict[str, Stop]) -> Strike | None:
        """The one to make at this stop, if any.

        Not while the worker runs a job that was hit before: one that is hit three times in a row
        would be a poison pill.
        """
        made = len(STRIKES) - len(self._strikes)
        if len(self._record.executions) < EVERY * (made + 1):
            return None
        if any(other.order in self._hit for other in under_way.values()):
            return None
        strike = next((strike for strike in self._strikes if strike.fits(stop)), None)
        if strike is not None:
            self._strikes.remove(strike)
        return strike
