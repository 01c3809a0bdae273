"""`oncely requests`: the HTTP requests whose outcome nobody knows."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.request import RequestInDoubt
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.resolve import decoded, refuse_both_or_neither
from oncely.surface.cli.say import answer, screen, visible


def requests(
    *,
    resolve: Annotated[
        str | None, Parameter(metavar="KEY", help="Say whether the one with this key happened.")
    ] = None,
    happened: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="It did: repeats get --status and --body."),
    ] = False,
    did_not_happen: Annotated[
        bool, Parameter(negative="", show_default=False, help="It did not: the next repeat runs.")
    ] = False,
    status: Annotated[
        int | None, Parameter(metavar="CODE", help="With --happened: the status of the response.")
    ] = None,
    body: Annotated[
        str | None, Parameter(metavar="JSON", help="With --happened: the body; empty without it.")
    ] = None,
    caller: Annotated[
        str | None, Parameter(metavar="NAME", help="Whose key it is, if more than one has it.")
    ] = None,
    note: Annotated[str | None, Parameter(metavar="TEXT", help="How you know; kept.")] = None,
    options: Options = DEFAULTS,
) -> None:
    """List the HTTP requests in doubt, or answer for one.

    A request with an Idempotency-Key is in doubt if its server died, or if it
    ended without a response. Its repeats are refused until somebody says.

        $ oncely requests
        $ oncely requests --resolve order-9482-charge --happened --status 201 --body '{"charge":7}'
        $ oncely requests --resolve order-9482-charge --did-not-happen
    """
    if resolve is None:
        if happened or did_not_happen or (status, body, caller, note) != (None,) * 4:
            raise InvalidInput("an answer is given, but not to what: expected --resolve KEY")
        with opened(options) as app:
            _list(app.requests_in_doubt(), options)
        return
    refuse_both_or_neither(happened, did_not_happen)
    told_body = decoded(body, "--body")
    with opened(options) as app:
        app.resolve_request(
            resolve, happened=happened, status=status, body=told_body, caller=caller, note=note
        )
    if options.json:
        answer({"key": resolve, "happened": happened})
        return
    told = "it happened: repeats get the response" if happened else "it did not: a repeat runs"
    screen().print(visible(f"resolved request {resolve!r}, {told}"))


def _list(found: list[RequestInDoubt], options: Options) -> None:
    if options.json:
        answer(found)
        return
    out, now = screen(), datetime.now(UTC)
    for request in found:
        out.print(visible(request.key), style="bold")
        out.print(f"    caller     {visible(request.caller) or 'none'}")
        out.print(f"    begun      {when(request.begun_at, now)}")
        out.print(f"    unknown    {when(request.unknown_since, now)}")
        out.print(f"    forgotten  {when(request.forgotten_at, now)}")
    if not found:
        out.print("no requests in doubt")
