"""The verbs of drills: how they stand, and the switch that all workers obey."""

from __future__ import annotations

from oncely.model.drill import Drills
from oncely.model.keys import check_key
from oncely.store import drills as plans
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin


class Drilling(Base):
    def drills(self) -> Drills:
        """What drills have found so far, and whether they are stopped."""
        return self._engine.run(lambda _: plans.drills(), "read")

    def stop_drills(self, *, by: str | None = None) -> None:
        """On all workers of this store, within a second: none begins, and those that run are ended.
        It stays so until `start_drills`, also for workers that start later."""
        self._turn(stopped=True, by=by)

    def start_drills(self, *, by: str | None = None) -> None:
        """Workers with `drill=` go on with what they complete from now on."""
        self._turn(stopped=False, by=by)

    def _turn(self, *, stopped: bool, by: str | None) -> None:
        who = trail(by=None if by is None else check_key(by, "by"))
        self._engine.run(lambda _: plans.turn(stopped=stopped, trail=who), "transaction")

    adrills = twin(drills)
    astop_drills = twin(stop_drills)
    astart_drills = twin(start_drills)
