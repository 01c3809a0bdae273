"""The workers of the demo: some are killed in the middle of a charge, and others take over."""

from __future__ import annotations

from typing import Final

import msgspec

from oncely.surface.cli.demo.child import Child, child
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.record import DemoFailed, Record, Watcher
from oncely.surface.cli.demo.worker import Charge

WORKERS: Final = 4
KILLED_AT: Final = (50, 60, 110, 120)
"""Who makes these charges, counted over all workers, is killed before it can settle them.

In two strikes: a job that is hit three times in a row would be a poison pill."""
_MODULE: Final = "oncely.surface.cli.demo.worker"


class Working:
    def __init__(self, place: Place, record: Record, watcher: Watcher) -> None:
        self._place = place
        self._record = record
        self._watcher = watcher
        self._kills = list(KILLED_AT)
        self._at_work: set[Child] = set()
        self._over = False

    async def work(self) -> None:
        """One place in the crew: whoever is killed in it is replaced, until all are dismissed."""
        while await self._employ():
            pass

    def dismiss(self) -> None:
        self._over = True
        for process in self._at_work:
            process.dismiss()

    async def _employ(self) -> bool:
        """Whether it was killed."""
        name = f"worker {len(self._record.workers) + 1}"
        self._record.workers.append(name)
        async with child(_MODULE, self._place) as process:
            self._at_work.add(process)
            if self._over:
                process.dismiss()
            charges, killed = await self._follow(process)
            self._at_work.discard(process)
            if not killed and (await process.ended() != 0 or not self._over):
                raise DemoFailed(f"{name} failed: {await process.last_words()}")
        if killed:
            self._record.workers_killed.append(name)
            self._watcher.told(f"{name}: killed in the middle of its charge {charges}")
        else:
            self._watcher.told(f"{name}: {charges} charges")
        return killed and not self._over

    async def _follow(self, process: Child) -> tuple[int, bool]:
        charges, killed = 0, False
        while line := await process.hear():
            self._record.charges.append(msgspec.json.decode(line, type=Charge))
            charges += 1
            if not killed and self._kills and len(self._record.charges) >= self._kills[0]:
                self._kills.pop(0)
                process.kill()
                killed = True
        return charges, killed and await process.was_killed()
