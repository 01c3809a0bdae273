"""The verb that reads the audit trail."""

from __future__ import annotations

from typing import Final

from oncely.model.audit import About, AuditEntry, check_about
from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown
from oncely.store import audit
from oncely.surface.base import Base, is_job_id, twin

_MOST: Final = 1_000


class Auditing(Base):
    def audit(
        self,
        *,
        limit: int = 100,
        before: str | None = None,
        about: About | None = None,
        name: str | None = None,
        by: str | None = None,
    ) -> list[AuditEntry]:
        """Who changed what, when and why, the newest first: what operators did with this library,
        the command line, the server or the dashboard. Entries are kept for a year.

        `before` is the id of the last entry of the page before. `about` and `name` choose what was
        changed (`about="queue", name="payments"`), `by` who did.
        """
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= _MOST:
            raise InvalidInput(f"limit is {shown(limit)}; expected a number from 1 to {_MOST:,}")
        if before is not None and not is_job_id(before):
            raise InvalidInput(f"before is {shown(before)}; expected the id of an entry")
        for option, value in (("name", name), ("by", by)):
            if value is not None:
                check_key(value, option)
        about = check_about(about)
        return self._engine.run(
            lambda _: audit.entries(limit, before, about=about, name=name, by=by), "read"
        )

    aaudit = twin(audit)
