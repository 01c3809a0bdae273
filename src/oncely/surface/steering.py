"""The verbs that steer from outside: cancel, replay."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from oncely.flow.replay import replay_failed
from oncely.model import payload
from oncely.model.draft import check_name
from oncely.model.effect import RESULT_LIMIT_BYTES, check_note
from oncely.model.effect import check_name as check_name_of_effect
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, check_part, shown
from oncely.store import effects, steer
from oncely.surface.acting import trail
from oncely.surface.base import Base, refuse_malformed, twin


class Steering(Base):
    def cancel(self, job_id: str) -> None:
        """End a job that waits, runs or is held, and free its unique key. Cancelling it again
        changes nothing. A running handler is cancelled once its worker notices; its writes are
        refused from now on. What is in doubt of a job that was held stays so in its ledger, and can
        still be resolved, for the record."""
        refuse_malformed(job_id)
        who = trail()
        self._engine.run(lambda _: steer.cancel(job_id, trail=who), "transaction")

    def replay(self, job_id: str, *, fresh_ledger: bool = False) -> list[str]:
        """Put a failed job back, with the same id and its attempts renewed.

        It keeps its ledger: what it has done it does not do again. With `fresh_ledger` it forgets
        that, and does all of it again; the answer is the names of those effects. `InDoubt` if one
        of them is in doubt. Who has done so is kept.

        `UniqueKeyTaken` names the job that holds its unique key meanwhile, if one does.
        """
        refuse_malformed(job_id)
        who = trail()
        by = who.by if fresh_ledger else None
        return self._engine.run(
            lambda again: steer.replay(job_id, forgotten_by=by, again=again, trail=who),
            "transaction",
        )

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
        if error is not None:
            check_part(error, "error")
        return replay_failed(
            self._engine,
            queue=queue,
            kind=kind,
            error=error,
            limit=limit,
            dry_run=dry_run,
            progress=progress or (lambda _: None),
            trail=trail(),
        )

    def resolve(
        self,
        job_id: str,
        effect: str,
        *,
        happened: bool,
        result: Any = None,
        note: str | None = None,
        by: str | None = None,
    ) -> None:
        """Say whether an effect in doubt happened; the job goes on when its last doubt is over.

        If it `happened`, `result` is what its function would have returned, and the effect is not
        done again. If not, it is. Who said so (`by`; if not said, the user of this process), when
        and with what `note` is kept.
        """
        refuse_malformed(job_id)
        check_name_of_effect(effect)
        if not isinstance(happened, bool):
            raise InvalidInput(f"happened is {shown(happened)}; expected True or False")
        if result is not None and not happened:
            raise InvalidInput("a result is given for an effect that did not happen")
        text = payload.encode(result, max_bytes=RESULT_LIMIT_BYTES) if happened else None
        who = trail(by=None if by is None else check_key(by, "by"), note=check_note(note))
        self._engine.run(
            lambda again: effects.resolve(
                job_id,
                effect,
                happened=happened,
                result=text,
                by_whom=who.by,
                note=who.note,
                again=again,
                trail=who,
            ),
            "transaction",
        )

    aresolve = twin(resolve)
    acancel = twin(cancel)
    areplay = twin(replay)
    areplay_all = twin(replay_all)
