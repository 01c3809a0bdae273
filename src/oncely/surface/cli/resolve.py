"""`oncely resolve`: the answer that a job in doubt waits for."""

from __future__ import annotations

from typing import Annotated

import msgspec
from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible
from oncely.surface.cli.steer import JobId


def resolve(
    job_id: JobId,
    effect: Annotated[str, Parameter(help="The name of the effect, as `oncely show` prints it.")],
    /,
    *,
    happened: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="It happened, and is not done again."),
    ] = False,
    did_not_happen: Annotated[
        bool, Parameter(negative="", show_default=False, help="It did not: it is done again.")
    ] = False,
    result: Annotated[
        str | None,
        Parameter(metavar="JSON", help="With --happened: what its function would have returned."),
    ] = None,
    note: Annotated[str | None, Parameter(metavar="TEXT", help="How you know; kept.")] = None,
    by: Annotated[
        str | None, Parameter(metavar="NAME", help="Who says so; else the user of this shell.")
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """Say whether an effect in doubt happened.

    The job goes on when nothing of it is in doubt any more. Who said so, when and
    why is kept, and part of its story.

        $ oncely resolve 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42 charge --happened --note "paid"
        $ oncely resolve 0199a5c2-6f8e-7d31-9c55-2f6f0a1b7e42 charge --did-not-happen
    """
    refuse_both_or_neither(happened, did_not_happen)
    if result is not None and not happened:
        raise InvalidInput("--result goes with --happened: what did not happen has none")
    with opened(options) as app:
        value = decoded(result, "--result")
        app.resolve(job_id, effect, happened=happened, result=value, note=note, by=by)
        job = app.get(job_id)
    state = job.state if job else None
    if options.json:
        answer({"job_id": job_id, "effect": effect, "happened": happened, "state": state})
        return
    told = "it happened" if happened else "it did not happen"
    left = [each.name for each in job.effects if each.state == "in_doubt"] if job else []
    still = f", still in doubt: {', '.join(map(repr, left))}" if left else ""
    screen().print(visible(f"resolved effect {effect!r} of job {job_id}, {told}; {state}{still}"))


def refuse_both_or_neither(happened: bool, did_not_happen: bool) -> None:
    if happened == did_not_happen:
        both = "both are given" if happened else "neither is given"
        raise InvalidInput(f"expected one of --happened and --did-not-happen; {both}")


def decoded(text: str | None, option: str) -> object:
    if text is None:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        raise InvalidInput(
            f"{option} is not JSON ({error}): expected a JSON value such as '{{\"id\": 1}}' or "
            "'\"text\"'"
        ) from None
