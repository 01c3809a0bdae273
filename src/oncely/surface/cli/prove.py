"""`oncely prove`: what it takes. What it does is in the room above, which is asked by its name."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.surface.cli.options import DEFAULTS, Options

Format = Literal["text", "github", "sarif", "junit", "json"]


def prove(
    target: Annotated[
        str,
        Parameter(
            metavar="MODULE:NAME",
            help="An app, a function, a task of Celery, RQ, Dramatiq or Django, or a web app.",
        ),
    ],
    kind: Annotated[
        str | None, Parameter(help="Of an app: the kind. Of a web app: 'POST /orders'.")
    ] = None,
    /,
    *,
    payload: Annotated[
        str | None,
        Parameter(metavar="JSON", help="What the job or the request carries. Without it: nothing."),
    ] = None,
    args: Annotated[
        str | None, Parameter(metavar="JSON", help="Positional arguments of a function or task.")
    ] = None,
    kwargs: Annotated[
        str | None, Parameter(metavar="JSON", help="Keyword arguments of a function or task.")
    ] = None,
    header: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME:VALUE", negative="", help="A header of the request. Can be repeated."
        ),
    ] = None,
    all_: Annotated[
        bool,
        Parameter(name="--all", negative="", help="Every kind of an app, or task of Celery."),
    ] = False,
    payloads: Annotated[
        str | None,
        Parameter(
            metavar="MODULE:NAME",
            help="For --all: a dict of kind and payload, or a function that gives one. Without "
            "it: the last job of each kind in the store.",
        ),
    ] = None,
    table: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative="",
            help="A table to compare, in the database of the store or the Django project, or "
            "after another's URL and a #. Can be repeated.",
        ),
    ] = None,
    world: Annotated[
        str | None,
        Parameter(metavar="MODULE:NAME", help="The whole world, as prove(world=…) takes it."),
    ] = None,
    budget: Annotated[float, Parameter(metavar="S", help="So many seconds at most.")] = 60.0,
    max_faults: Annotated[
        int, Parameter(metavar="N", help="1: no schedule has two faults, which takes less time.")
    ] = 2,
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
    baseline: Annotated[
        Path | None,
        Parameter(metavar="FILE", help="Known violations, which do not fail the run."),
    ] = None,
    write_baseline: Annotated[
        bool, Parameter(negative="", help="Write what is found to the --baseline.")
    ] = False,
    output: Annotated[
        Format | None,
        Parameter(
            name="--format",
            help="text, github (annotations), sarif, junit, or json. Without it: text.",
        ),
    ] = None,
    options: Options = DEFAULTS,
) -> int:
    """Show what a crash would do to a handler.

    The handler is run, and ended, at every boundary that it has; then the job
    comes again, and the world is compared with what one clean run leaves. The
    databases are copies. It ends with 1 if the handler was not proved.

        $ oncely prove shop.jobs:app order.charge --payload '{"order": 1}' --table charges
        $ oncely prove shop.tasks:charge --args '[1]' --table sqlite:///shop.db#charges
        $ oncely prove shop.web:app 'POST /orders' --payload '{"order": 1}'
    """
    if options.json and output not in (None, "json"):
        raise InvalidInput(f"--json and --format {output} are given; expected one of the two")
    command = importlib.import_module("oncely.prove.command")
    code: int = command.run(
        target,
        kind,
        payload=payload,
        args=args,
        kwargs=kwargs,
        headers=header or [],
        is_all=all_,
        payloads=payloads,
        tables=table or [],
        world=world,
        budget_seconds=budget,
        max_faults=max_faults,
        by_line=by_line,
        allow_hosts=allow_host or [],
        accept=accept or [],
        strict=strict,
        schedule=schedule,
        html=html,
        baseline=baseline,
        writes_baseline=write_baseline,
        url=options.url,
        output="json" if options.json else output or "text",
    )
    return code
