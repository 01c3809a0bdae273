"""`oncely dlq`: the dead-letter queue, to look at and to replay."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

from cyclopts import Parameter
from rich.progress import Progress

from oncely.model.errors import InvalidInput
from oncely.model.job import Job
from oncely.surface.app import Oncely
from oncely.surface.cli.moments import span
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def dlq(
    *,
    queue: Annotated[str | None, Parameter(metavar="NAME", help="Only jobs in it.")] = None,
    kind: Annotated[str | None, Parameter(metavar="NAME", help="Only jobs of this kind.")] = None,
    error: Annotated[
        str | None, Parameter(metavar="TEXT", help="Only jobs whose error has this in it.")
    ] = None,
    limit: Annotated[
        int | None, Parameter(metavar="N", help="At most so many; 100 in a list.")
    ] = None,
    replay: Annotated[
        bool, Parameter(negative="", show_default=False, help="Put them back.")
    ] = False,
    dry_run: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="Only count what would be replayed."),
    ] = False,
    options: Options = DEFAULTS,
) -> None:
    """List the dead-letter queue, or replay it.

    The list begins with the newest, a replay with the oldest. A job whose unique
    key another one holds meanwhile stays.

        $ oncely dlq --queue payments
        $ oncely dlq --replay --error "mailbox full" --dry-run
    """
    if limit is not None and limit < 1:
        raise InvalidInput(f"--limit is {limit}; expected 1 or more")
    if dry_run and not replay:
        raise InvalidInput("--dry-run goes with --replay: without it nothing is changed anyway")
    with opened(options) as app:
        if replay:
            filters: dict[str, Any] = {"queue": queue, "kind": kind, "error": error}
            _replay(app, options, limit=limit, dry_run=dry_run, **filters)
            return
        found = app.jobs(state="failed", queue=queue, kind=kind, limit=limit or 100)
    if error is not None:
        found = [job for job in found if error in _told(job)]
    if options.json:
        answer(found)
        return
    out = screen()
    for job in found:
        age = span((datetime.now(UTC) - (job.ended_at or job.created_at)).total_seconds())
        out.print(f"{job.job_id}  {job.kind}  {job.queue}  attempt {job.attempt}, {age} ago")
        out.print(f"    {visible(_told(job).partition(chr(10))[0])}", style="red")
    if not found:
        out.print("no failed jobs" if queue is kind is error is None else "no such failed jobs")


def _told(job: Job) -> str:
    if isinstance(job.error, dict):
        return f"{job.error.get('type')}: {job.error.get('message')}"
    return "no error was told"


def _replay(
    app: Oncely, options: Options, *, limit: int | None, dry_run: bool, **filters: Any
) -> None:
    out = screen()
    with Progress(console=out, disable=options.json or not out.is_terminal) as progress:
        task = progress.add_task("replayed", total=None)
        count = app.replay_all(
            **filters,
            limit=limit,
            dry_run=dry_run,
            progress=lambda count: progress.update(task, completed=count),
        )
    if options.json:
        answer({"replayed": 0 if dry_run else count, "matching": count})
        return
    jobs = "1 job" if count == 1 else f"{count:,} jobs"
    out.print(f"{jobs} would be replayed" if dry_run else f"replayed {jobs}")
