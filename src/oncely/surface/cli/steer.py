"""`oncely cancel` and `oncely replay`: steering one job from outside."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from oncely.surface.app import Oncely
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen

JobId = Annotated[str, Parameter(help="As `oncely enqueue` and `oncely jobs` print it.")]


def cancel(job_id: JobId, /, *, options: Options = DEFAULTS) -> None:
    """End a job that waits or runs, and free its unique key.

    Cancelling it again changes nothing.

        $ oncely cancel 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42
    """
    with opened(options) as app:
        app.cancel(job_id)
        _report(app, "cancelled", job_id, options)


def replay(job_id: JobId, /, *, options: Options = DEFAULTS) -> None:
    """Put a failed job back, with the same id.

    Its attempts begin anew.

        $ oncely replay 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42
    """
    with opened(options) as app:
        app.replay(job_id)
        _report(app, "replayed", job_id, options)


def _report(app: Oncely, done: str, job_id: str, options: Options) -> None:
    """The state as it is now: a worker may have been quick."""
    job = app.get(job_id)
    state = job.state if job else None
    if options.json:
        answer({"job_id": job_id, "state": state})
    elif state in (done, None):
        screen().print(f"{done} job {job_id}")
    else:
        screen().print(f"{done} job {job_id}, {state}")
