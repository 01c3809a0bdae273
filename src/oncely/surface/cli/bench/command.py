"""`oncely bench`."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Final

from cyclopts import Parameter
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from oncely.model.errors import InvalidInput
from oncely.surface.cli.bench.cost import cost
from oncely.surface.cli.bench.ground import Ground, ground
from oncely.surface.cli.bench.measures import MEASURES, Measure, Size, Timed
from oncely.surface.cli.bench.report import Found, Report, found, legend, plotted, table
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.say import answer, screen

_ROUNDS: Final = 3
_QUICK: Final = 20
_COST_JOBS: Final = 1_000


def bench(
    *,
    quick: Annotated[
        bool,
        Parameter(negative="", show_default=False, help="One short round: a first impression."),
    ] = False,
    only: Annotated[
        list[str] | None,
        Parameter(
            metavar="NAME",
            negative="",
            help=f"Only this measure; can be repeated: {', '.join(MEASURES)}.",
        ),
    ] = None,
    concurrency: Annotated[
        int, Parameter(metavar="N", help="So many handlers at once, where jobs are run.")
    ] = 100,
    plot: Annotated[
        Path | None, Parameter(metavar="FILE.svg", help="Draw the rates into this file.")
    ] = None,
    options: Options = DEFAULTS,
) -> None:
    """Measure the queue on this database, and what a job costs it.

    It works in stores of its own and removes them: on PostgreSQL in schemas
    beside yours, on SQLite in files beside yours; without a store, in a
    temporary folder. Your jobs are not touched, but the machine is busy.

        $ oncely bench --quick
        $ oncely bench --url postgresql://app@localhost/test --plot bench.svg
    """
    wanted = _wanted(only)
    if concurrency < 1:
        raise InvalidInput(f"--concurrency is {concurrency}; expected 1 or more")
    if plot is not None:
        _refuse_plot(plot)
    out = screen()
    rounds = 1 if quick else _ROUNDS
    with ground(options) as place:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        with Progress(*columns, console=out, disable=options.json or not out.is_terminal) as told:
            task = told.add_task("", total=len(wanted) * (rounds + 1))
            measures = []
            for measure in wanted:
                told.update(task, description=measure.name)
                size = Size(max(1, measure.jobs // (_QUICK if quick else 1)), concurrency)
                measures.append(_measured(place, measure, size, rounds, lambda: told.advance(task)))
            told.update(task, description="done")
        report = Report(
            oncely=version("oncely"),
            python=platform.python_version(),
            store=place.shown,
            concurrency=concurrency,
            measures=measures,
        )
    if plot is not None:
        plot.write_text(plotted(report), encoding="utf-8")
    if options.json:
        answer(report)
        return
    out.print(f"{report.store}; {concurrency} handlers at once; Python {report.python}")
    out.print("Round trips, bytes and index entries are for each job.\n")
    out.print(table(report))
    out.print(f"\n{legend(report)}")
    if plot is not None:
        out.print(f"\ndrawn into {plot}")


def _wanted(only: list[str] | None) -> list[Measure]:
    unknown = [name for name in only or () if name not in MEASURES]
    if unknown:
        raise InvalidInput(f"there is no measure {unknown[0]!r}; expected {', '.join(MEASURES)}")
    return [measure for name, measure in MEASURES.items() if not only or name in only]


def _refuse_plot(file: Path) -> None:
    """Before minutes are spent on figures that could not be drawn."""
    if file.suffix != ".svg":
        raise InvalidInput(f"--plot is {str(file)!r}; expected a file that ends in .svg")
    if not file.absolute().parent.is_dir():
        raise InvalidInput(f"--plot is {str(file)!r}; there is no folder {file.absolute().parent}")


def _measured(
    place: Ground, measure: Measure, size: Size, rounds: int, done: Callable[[], object]
) -> Found:
    timed = []
    for _ in range(rounds):
        timed.append(_timed(place, measure, size))
        done()
    counted = cost(place, measure, Size(min(size.jobs, _COST_JOBS), size.concurrency))
    done()
    return found(measure, size, timed, counted)


def _timed(place: Ground, measure: Measure, size: Size) -> Timed:
    with place.store() as store, store.opened() as app:
        measure.prepare(app, size.jobs)
        return measure.run(app, size)
