"""`Oncely`: the face of the queue in Python."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Unpack

from oncely.model.errors import NotOverHttp
from oncely.model.job import NewJob, Options, Receipt, Receipts
from oncely.store.engine import Finding
from oncely.store.limits import kinds_without_handler
from oncely.surface.auditing import Auditing
from oncely.surface.base import twin
from oncely.surface.drilling import Drilling
from oncely.surface.flowing import Flowing
from oncely.surface.looking import Looking
from oncely.surface.requesting import Requesting
from oncely.surface.running import Running
from oncely.surface.scheduling import Scheduling
from oncely.surface.steering import Steering
from oncely.surface.tokening import Tokening
from oncely.surface.userkeeping import UserKeeping


class Oncely(
    Looking,
    Steering,
    Flowing,
    Running,
    Scheduling,
    Tokening,
    Requesting,
    UserKeeping,
    Auditing,
    Drilling,
):
    """A queue in a store: `sqlite:///jobs.db`, or `postgresql://…` for production; or through a
    server, `https://…` with an `api_key` (else `$ONCELY_API_KEY`).

    Without a URL it is `$ONCELY_URL`, else `sqlite:///oncely.db`. On SQLite the tables make
    themselves; on PostgreSQL `migrate()` makes them, in `schema`. Every verb that does I/O has an
    async twin, `a` + name. Workers prune what is over after its `retention`. Safe to share between
    threads, and to carry over a fork.
    """

    def enqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[Options],
    ) -> Receipt:
        """Put a job in, durably; the receipt comes after the commit. The options:

        - `queue`: the lane it waits in; if not said, the one that the kind's handler declares,
          else `default`.
        - `idempotency_key`: the identity of this call, per queue. A repeat returns the first
          job's id, also after that job has ended; with another kind or payload it raises
          `KeyConflict`.
        - `unique_key`: the identity of the work, per kind. While a job with it is active, a
          repeat is skipped and returns that job's id.
        - `priority`: higher runs first. `delay` in seconds or as a timedelta, or `run_at` with a
          time zone: not before that.
        - `group_key`: the label that limits go by. `max_attempts` (1 to 20) and `timeout` (in
          seconds) go before the policy of the kind and the queue. `tags`: labels to look for.
        - `tx`: your own open transaction. The job exists if and only if you commit.
        """
        return self._enqueuer.one(NewJob(kind, payload, **options), tx)

    async def aenqueue(
        self,
        kind: str,
        payload: Any = None,
        *,
        tx: Any = None,
        **options: Unpack[Options],
    ) -> Receipt:
        """The async twin of `enqueue`; `tx` may be an async connection."""
        return await self._enqueuer.aone(NewJob(kind, payload, **options), tx)

    def enqueue_many(self, jobs: Iterable[NewJob], *, tx: Any = None) -> Receipts:
        """Put many jobs in at once, all or none; the receipts are in the order of the input.

        Repeats, also of a job earlier in the same call, are skipped. A `KeyConflict` stores
        nothing.
        """
        return self._enqueuer.many(jobs, tx)

    async def aenqueue_many(self, jobs: Iterable[NewJob], *, tx: Any = None) -> Receipts:
        return await self._enqueuer.amany(jobs, tx)

    def migrate(self) -> list[str]:
        """Bring the schema up to date; the names of what was applied. Safe to repeat, and safe
        from many processes at once."""
        return self._engine.migrate()

    amigrate = twin(migrate)

    def examine(self) -> list[Finding]:
        """What `oncely doctor` shows."""
        findings = self._engine.examine()
        if any(finding.status == "error" for finding in findings):
            return findings
        try:
            kinds = self._engine.run(lambda _: kinds_without_handler(), "read")
        except NotOverHttp:
            return findings
        return [*findings, _examine_handlers(kinds)]

    aexamine = twin(examine)


def _examine_handlers(kinds: dict[str, int]) -> Finding:
    if not kinds:
        return Finding("handlers", "ok", "no job waits for want of a handler")
    told = ", ".join(f"{kind!r} ({count} jobs)" for kind, count in kinds.items())
    return Finding(
        "handlers",
        "warning",
        f"jobs wait because the workers that claim them have no handler for their kind: {told}. "
        "Start a worker that imports it, or give such jobs a queue of their own",
    )
