"""`oncely jobs`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Annotated, Final

import msgspec
from cyclopts import Parameter
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from oncely.model.job import Job
from oncely.model.transition import State
from oncely.surface.cli.moments import span
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import STATE_STYLES, answer, screen, visible

_HEADS: Final = ("JOB", "STATE", "KIND", "QUEUE", "AGE")
_PAYLOAD_LIMIT: Final = 60
_PAYLOAD_LEAST: Final = 16
_NAME_LEAST: Final = 8
_GAP: Final = 2
_INDENT: Final = 4


def jobs(
    *,
    state: Annotated[State | None, Parameter(help="Only jobs in this state.")] = None,
    kind: Annotated[str | None, Parameter(metavar="NAME", help="Only jobs of this kind.")] = None,
    queue: Annotated[str | None, Parameter(metavar="NAME", help="Only jobs in it.")] = None,
    group: Annotated[str | None, Parameter(metavar="KEY", help="Only jobs of this group.")] = None,
    tag: Annotated[str | None, Parameter(metavar="TAG", help="Only jobs with this tag.")] = None,
    key: Annotated[
        str | None, Parameter(metavar="KEY", help="Only jobs with this idempotency or unique key.")
    ] = None,
    limit: Annotated[int, Parameter(metavar="N", help="At most so many, up to 10,000.")] = 100,
    options: Options = DEFAULTS,
) -> None:
    """List jobs, the newest first.

    The age is the time since the enqueue.

        $ oncely jobs --state failed --queue payments
        $ oncely jobs --json --limit 1000
    """
    with opened(options) as app:
        found = app.jobs(
            state=state, kind=kind, queue=queue, group_key=group, tag=tag, key=key, limit=limit
        )
    if options.json:
        answer(found)
        return
    out = screen()
    if not found:
        filters = {"state": state, "kind": kind, "queue": queue}
        filters |= {"group": group, "tag": tag, "key": key}
        asked = ", ".join(f"{name} {value}" for name, value in filters.items() if value)
        out.print(f"no jobs with {visible(asked)}" if asked else "no jobs")
        return
    # A file takes lines of any length; a terminal is as wide as it is.
    for line in _table(found, out.width if out.is_terminal else None):
        out.print(line)
    if len(found) == limit:
        note = f"the newest {limit:,}; there may be more: --limit"
        out.print(Text(note, style="dim"))


def _table(found: list[Job], width: int | None) -> Iterator[Text]:
    """The payload stands beside its job where there is room for it, else below."""
    now = datetime.now(UTC)
    rows = [
        (
            job.job_id,
            job.state,
            job.kind,
            job.queue,
            span((now - job.created_at).total_seconds()),
        )
        for job in found
    ]
    widths = [max(map(len, column)) for column in zip(_HEADS, *rows, strict=True)]
    room = _PAYLOAD_LIMIT if width is None else width - sum(widths) - _GAP * len(widths)
    beside = room >= _PAYLOAD_LEAST
    if not beside and width is not None:
        _narrow(widths, width)
    yield _line((*_HEADS, "PAYLOAD") if beside else _HEADS, widths, "bold")
    for job, row in zip(found, rows, strict=True):
        payload = visible(msgspec.json.encode(job.payload).decode())
        if beside:
            line = _line((*row, _shortened(payload, min(room, _PAYLOAD_LIMIT))), widths)
        else:
            line = _line(row, widths)
        start = len(job.job_id) + _GAP
        line.stylize(STATE_STYLES[job.state], start, start + len(job.state))
        yield line
        if not beside:
            text = _shortened(payload, min((width or 0) - _INDENT, _PAYLOAD_LIMIT))
            yield Text(f"{' ' * _INDENT}{text}", style="dim")


def _narrow(widths: list[int], width: int) -> None:
    """Names give way on a narrow terminal, never the job id."""
    for column in (_HEADS.index("KIND"), _HEADS.index("QUEUE")):
        excess = sum(widths) + _GAP * (len(widths) - 1) - width
        widths[column] = max(_NAME_LEAST, widths[column] - max(0, excess))


def _line(cells: Sequence[str], widths: list[int], style: str = "") -> Text:
    line = Text(style=style)
    for cell, width in zip_longest(cells, widths):
        line.append(cell if width is None else f"{_shortened(cell, width):<{width + _GAP}}")
    line.rstrip()
    return line


def _shortened(text: str, limit: int) -> str:
    if cell_len(text) <= limit:
        return text
    return f"{set_cell_size(text, limit - 1).rstrip()}…"
