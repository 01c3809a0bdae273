"""`oncely demo`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from secrets import token_hex
from shlex import quote as shell_quote
from tempfile import TemporaryDirectory
from textwrap import fill
from typing import Final
from urllib.parse import quote

from rich.console import Console

from oncely.surface.cli.demo.crew import PUBLISHERS, Crew, DemoFailed, Watcher
from oncely.surface.cli.demo.publisher import QUEUE
from oncely.surface.cli.demo.screen import Bars, Lines, Silence, bars, table
from oncely.surface.cli.demo.tally import Tally, faults, stored, tally
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import masked, opened
from oncely.surface.cli.say import answer, screen

ORDERS: Final = 200
TIMES: Final = 5


def demo(*, options: Options = DEFAULTS) -> None:
    """Publish orders again and again, by processes that race and die.

    Without --url it runs in a temporary SQLite file, whatever $ONCELY_URL
    says. With --url it leaves its jobs in that store, in the queue demo.

        $ oncely demo
        $ oncely demo --url postgresql://app@localhost/test
    """
    out = screen()
    with _place(options) as place:
        if not options.json:
            out.print(_announcement(options))
        result = _run(place, out)
    if options.json:
        answer(result)
        return
    out.print(table(result))
    out.print(_moral(result))
    out.print(_next(options))


@contextmanager
def _place(options: Options) -> Iterator[Options]:
    if options.url is not None:
        yield options
        return
    with TemporaryDirectory(prefix="oncely-demo-") as folder:
        yield replace(options, url=f"sqlite:///{quote(folder)}/demo.db")


def _run(place: Options, out: Console) -> Tally:
    # New order numbers in each run, so that the demo can be repeated on one store.
    run_id = token_hex(3)
    orders = [f"{run_id}-{n}" for n in range(1, ORDERS + 1)]
    with opened(place, create=True) as app:
        app.migrate()

        def stored_by(publisher: str) -> int:
            newest = stored(app, orders, limit=ORDERS)
            return sum(publisher in job.tags for job in newest)

        with _watcher(place, out) as watcher:
            crew = Crew(app.url, place.schema, watcher, stored_by)
            record = asyncio.run(crew.publish(orders, times=TIMES))
        jobs = stored(app, orders)
    result = tally(orders, jobs, record)
    wrong = faults(result, jobs, record, orders, times=TIMES)
    if wrong:
        raise DemoFailed(f"the counts do not add up: {'; '.join(wrong)}")
    return result


@contextmanager
def _watcher(place: Options, out: Console) -> Iterator[Watcher]:
    if place.json:
        yield Silence()
    elif out.is_terminal:
        with bars(out) as progress:
            yield Bars(progress, ORDERS)
    else:
        yield Lines(out)


def _announcement(options: Options) -> str:
    store = "a temporary SQLite file" if options.url is None else masked(options.url)
    return (
        f"{ORDERS} orders, each published {TIMES} times, in random order, by {PUBLISHERS} "
        "processes at once.\nOne of them is killed with SIGKILL on the way, and another takes "
        f"its place.\nThe store: {store}\n"
    )


def _moral(result: Tally) -> str:
    """What was shown; the numbers are those of the table."""
    text = f"{result.orders} orders, {result.inserted} jobs: none lost, none doubled. "
    if result.unheard:
        jobs = "a job" if result.unheard == 1 else f"{result.unheard} jobs"
        text += f"The killed publisher had stored {jobs} and told nobody. "
    text += (
        "What it left unanswered was published again, as every client does that gets no answer, "
        "and the idempotency keys recognised each repeat."
    )
    return f"\n{fill(text, 78)}"


def _next(options: Options) -> str:
    if options.url is None:
        return (
            "\nThat store is gone. To look around in one that stays:\n"
            "  oncely demo --url sqlite:///demo.db\n"
            "  oncely jobs --url sqlite:///demo.db --limit 5"
        )
    schema = "" if options.schema == DEFAULTS.schema else f" --schema {options.schema}"
    look = f"oncely jobs --queue {QUEUE} --url {shell_quote(masked(options.url))}{schema}"
    return f"\nTo look at the jobs:\n  {look}"
