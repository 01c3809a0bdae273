"""`oncely prove`: what it takes. What it does is in the room above, which is asked by its name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from oncely.surface.cli.options import DEFAULTS, Options


def prove(
    app: Annotated[str, Parameter(metavar="MODULE:APP", help="Such as shop.jobs:app.")],
    kind: Annotated[str, Parameter(help="The kind whose handler is proved.")],
    /,
    *,
    payload: Annotated[
        str | None, Parameter(metavar="JSON", help="What the job carries. Without it: null.")
    ] = None,
    table: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative="",
            help="A table to compare, in the store's database, or after another's URL and a #. "
            "Can be repeated.",
        ),
    ] = None,
    world: Annotated[
        str | None,
        Parameter(metavar="MODULE:NAME", help="The whole world, as prove(world=…) takes it."),
    ] = None,
    budget: Annotated[float, Parameter(metavar="S", help="So many seconds at most.")] = 60.0,
    by_line: Annotated[
        bool, Parameter(negative="", help="Every line of yours is a boundary too.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        Parameter(
            metavar="HOST",
            negative="",
            help="Another machine that the handler may call, for real. Can be repeated.",
        ),
    ] = None,
    accept: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative="",
            help="A program (git) or a service of this machine (127.0.0.1:8125) that may do what "
            "cannot be seen. Can be repeated.",
        ),
    ] = None,
    strict: Annotated[
        bool,
        Parameter(
            negative="",
            help="All that the handler writes must be compared, and all of the world must change.",
        ),
    ] = False,
    schedule: Annotated[
        str | None,
        Parameter(metavar="WORD", help="Only this one, as a report names it: crash@5."),
    ] = None,
    html: Annotated[
        Path | None, Parameter(metavar="FILE", help="Write the report as a page.")
    ] = None,
    options: Options = DEFAULTS,
) -> int:
    """Show what a crash would do to a handler.

    The handler is run, and ended, at every boundary that it has; then the job
    comes again, and the world is compared with what one clean run leaves. The
    databases are copies. It ends with 1 if the handler was not proved.

        $ oncely prove shop.jobs:app order.charge --payload '{"order": 1}' --table charges
    """
    command = importlib.import_module("oncely.prove.command")
    code: int = command.run(
        app,
        kind,
        payload=payload,
        tables=table or [],
        world=world,
        budget_seconds=budget,
        by_line=by_line,
        allow_hosts=allow_host or [],
        accept=accept or [],
        strict=strict,
        schedule=schedule,
        html=html,
        url=options.url,
        as_json=options.json,
    )
    return code
