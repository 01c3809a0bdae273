"""The verbs that look: jobs as they stand."""

from __future__ import annotations

from typing import Final

from oncely.model.draft import check_name
from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.model.keys import shown
from oncely.model.transition import STATES, State
from oncely.store import look
from oncely.surface.base import Base, is_job_id, twin

LIST_LIMIT: Final = 10_000


class Looking(Base):
    def get(self, job_id: str) -> Job | None:
        """The job as it stands now, or None."""
        if not is_job_id(job_id):
            return None
        return self._engine.run(lambda _: look.get(job_id), "read")

    def jobs(
        self,
        *,
        state: State | None = None,
        kind: str | None = None,
        queue: str | None = None,
        limit: int = 100,
    ) -> list[Job]:
        """Jobs, the newest first, at most `limit` of them."""
        if state is not None and state not in STATES:
            raise InvalidInput(f"state is {shown(state)}; expected one of {', '.join(STATES)}")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= LIST_LIMIT:
            raise InvalidInput(
                f"limit is {shown(limit)}; expected a number from 1 to {LIST_LIMIT:,}"
            )
        for option, name in (("kind", kind), ("queue", queue)):
            if name is not None:
                check_name(name, option)
        return self._engine.run(lambda _: look.jobs(state, kind, queue, limit), "read")

    aget = twin(get)
    ajobs = twin(jobs)
