"""`oncely audit`: who changed what, when and why."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from oncely.model.audit import About, AuditEntry
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def audit(
    *,
    about: Annotated[About | None, Parameter(help="Only changes of such a thing.")] = None,
    name: Annotated[
        str | None, Parameter(metavar="NAME", help="Only changes of it: a job's id, or a name.")
    ] = None,
    by: Annotated[str | None, Parameter(metavar="NAME", help="Only what they changed.")] = None,
    before: Annotated[
        str | None, Parameter(metavar="ID", help="Only entries before the one with this id.")
    ] = None,
    limit: Annotated[int, Parameter(metavar="N", help="At most so many, up to 1,000.")] = 100,
    options: Options = DEFAULTS,
) -> None:
    """List what operators changed, the newest first.

    Each cancel, replay, resolve, pause, limit, schedule and token has an entry,
    whether it came from a shell, the library, the server or the dashboard.

        $ oncely audit
        $ oncely audit --about queue --name payments
    """
    with opened(options) as app:
        found = app.audit(limit=limit, before=before, about=about, name=name, by=by)
    if options.json:
        answer(found)
        return
    out, now = screen(), datetime.now(UTC)
    for entry in found:
        out.print(visible(f"{when(entry.at, now)}  {entry.by}"))
        out.print(f"    {visible(told(entry))}")
        if entry.note:
            out.print(Text(f"    {visible(entry.note)}", style="dim"))
    if not found:
        out.print("nothing was changed" if about is name is by is before is None else "no entries")
    elif len(found) == limit:
        more = f"the newest {limit:,}; there may be more: --before {found[-1].id}"
        out.print(Text(more, style="dim"))


def told(entry: AuditEntry) -> str:
    """In one line: the verb, of what, and how."""
    parts = [entry.act]
    whole = entry.about in ("dlq", "drills")
    parts.append(entry.name if whole else f"{entry.about} {entry.name}")
    if entry.count is not None:
        parts.append("1 job" if entry.count == 1 else f"{entry.count:,} jobs")
    if entry.details:
        parts.append(msgspec.json.encode(entry.details).decode())
    return "  ".join(parts)
