"""The verbs that steer from outside: cancel, replay."""

from __future__ import annotations

from collections.abc import Callable

from oncely.flow.replay import replay_failed
from oncely.model.draft import check_name
from oncely.store import steer
from oncely.surface.base import Base, refuse_malformed, twin


class Steering(Base):
    def cancel(self, job_id: str) -> None:
        """End a job that waits or runs, and free its unique key. Cancelling it again changes
        nothing. A running handler is cancelled once its worker notices; its writes are refused
        from now on."""
        refuse_malformed(job_id)
        self._engine.run(lambda _: steer.cancel(job_id), "transaction")

    def replay(self, job_id: str) -> None:
        """Put a failed job back, with the same id and its attempts renewed.

        `UniqueKeyTaken` names the job that holds its unique key meanwhile, if one does.
        """
        refuse_malformed(job_id)
        self._engine.run(lambda again: steer.replay(job_id, again=again), "transaction")

    def replay_all(
        self,
        *,
        queue: str | None = None,
        kind: str | None = None,
        error: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        progress: Callable[[int], None] | None = None,
    ) -> int:
        """Replay the failed jobs that match, the oldest first; how many that were.

        `error` is a part of the error's type and message. A job whose unique key another one holds
        meanwhile stays where it is. With `dry_run` nothing is changed, and the number is that of
        the jobs that match. `progress` is told the number from time to time.
        """
        for option, name in (("kind", kind), ("queue", queue)):
            if name is not None:
                check_name(name, option)
        return replay_failed(
            self._engine,
            queue=queue,
            kind=kind,
            error=error,
            limit=limit,
            dry_run=dry_run,
            progress=progress or (lambda _: None),
        )

    acancel = twin(cancel)
    areplay = twin(replay)
    areplay_all = twin(replay_all)
