"""`oncely cancel` and `oncely replay`: steering one job from outside."""

from __future__ import annotations

import sys
from typing import Annotated

from cyclopts import Parameter

from oncely.model.errors import InvalidInput, JobNotFound
from oncely.surface.app import Oncely
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible

JobId = Annotated[str, Parameter(help="As `oncely enqueue` and `oncely jobs` print it.")]


def cancel(job_id: JobId, /, *, options: Options = DEFAULTS) -> None:
    """End a job that waits, runs or is held, and free its unique key.

    Cancelling it again changes nothing. What is in doubt of it stays so in its
    ledger, for the record.

        $ oncely cancel 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42
    """
    with opened(options) as app:
        app.cancel(job_id)
        _report(app, "cancelled", job_id, options)


def replay(
    job_id: JobId,
    /,
    *,
    fresh_ledger: Annotated[
        bool,
        Parameter(
            negative="", show_default=False, help="Forget what it has done, and do all of it again."
        ),
    ] = False,
    yes: Annotated[
        bool, Parameter(negative="", show_default=False, help="Do not ask about --fresh-ledger.")
    ] = False,
    options: Options = DEFAULTS,
) -> None:
    """Put a failed job back, with the same id.

    Its attempts begin anew. It keeps its ledger: what it has done it does not do
    again.

        $ oncely replay 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42
        $ oncely replay 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42 --fresh-ledger
    """
    if yes and not fresh_ledger:
        raise InvalidInput("--yes goes with --fresh-ledger: a plain replay repeats nothing")
    with opened(options) as app:
        if fresh_ledger and not yes and not _agreed(app, job_id, options):
            screen().print("nothing was changed")
            return
        repeated = app.replay(job_id, fresh_ledger=fresh_ledger)
        _report(app, "replayed", job_id, options, repeated if fresh_ledger else None)


def _agreed(app: Oncely, job_id: str, options: Options) -> bool:
    job = app.get(job_id)
    if job is None:
        raise JobNotFound(job_id)
    told = _will_repeat([effect.name for effect in job.effects])
    if options.json or not sys.stdin.isatty():
        raise InvalidInput(f"--fresh-ledger {told}: say --yes if that is what you want")
    screen().print(visible(f"job {job_id} {told}"))
    return input("Go on? [y/N] ").strip().lower() in ("y", "yes")


def _will_repeat(names: list[str]) -> str:
    if not names:
        return "will repeat nothing, for nothing is in its ledger"
    return f"will repeat {', '.join(map(repr, names))}"


def _report(
    app: Oncely, done: str, job_id: str, options: Options, repeated: list[str] | None = None
) -> None:
    """The state as it is now: a worker may have been quick."""
    job = app.get(job_id)
    state = job.state if job else None
    if options.json:
        answer(
            {
                "job_id": job_id,
                "state": state,
                **({} if repeated is None else {"repeats": repeated}),
            }
        )
    elif state in (done, None):
        screen().print(f"{done} job {job_id}")
    else:
        screen().print(f"{done} job {job_id}, {state}")
    if repeated is not None and not options.json:
        screen().print(visible(f"it {_will_repeat(repeated)}"))
