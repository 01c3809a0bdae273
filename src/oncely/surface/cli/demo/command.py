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

from oncely.model.job import Job
from oncely.surface.cli.demo import crew
from oncely.surface.cli.demo.place import Place
from oncely.surface.cli.demo.publishing import PUBLISHERS
from oncely.surface.cli.demo.record import DemoFailed, Watcher
from oncely.surface.cli.demo.screen import Bars, Lines, Silence, bars, count, table
from oncely.surface.cli.demo.tally import Tally, faults, tally
from oncely.surface.cli.demo.working import KILLED_AT, WORKERS
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import masked, opened
from oncely.surface.cli.say import answer, screen
from oncely.surface.looking import LIST_LIMIT

ORDERS: Final = range(1, 201)
TIMES: Final = 5


def demo(*, options: Options = DEFAULTS) -> None:
    """Publish and work off orders, by processes that race, repeat and die.

    Without --url it runs in a temporary SQLite file, whatever $ONCELY_URL
    says. With --url it leaves its jobs in that store, in a queue of its own.
    It ends with an error if a job was lost or doubled.

        $ oncely demo
        $ oncely demo --url postgresql://app@localhost/test
    """
    out = screen()
    # Each run has its own queue, so that the demo can be repeated on one store.
    queue = f"demo-{token_hex(3)}"
    with _store(options) as store:
        if not options.json:
            out.print(_announcement(options))
        result, wrong = _run(store, queue, out)
    if options.json:
        answer(result)
    else:
        out.print(table(result))
    if wrong:
        raise DemoFailed(f"the counts do not add up: {'; '.join(wrong)}")
    if not options.json:
        out.print(_moral(result))
        out.print(_next(options, queue))


@contextmanager
def _store(options: Options) -> Iterator[Options]:
    if options.url is not None:
        yield options
        return
    with TemporaryDirectory(prefix="oncely-demo-") as folder:
        yield replace(options, url=f"sqlite:///{quote(folder)}/demo.db")


def _run(store: Options, queue: str, out: Console) -> tuple[Tally, list[str]]:
    """The counts, and what is wrong with them."""
    with opened(store, create=True) as app:
        app.migrate()
        place = Place(app.url, store.schema, queue)

        async def look() -> list[Job]:
            return await app.ajobs(queue=queue, limit=LIST_LIMIT)

        with _watcher(store, out) as watcher:
            record = asyncio.run(crew.run(place, ORDERS, times=TIMES, watcher=watcher, look=look))
        jobs = app.jobs(queue=queue, limit=LIST_LIMIT)
    result = tally(ORDERS, jobs, record)
    return result, faults(result, jobs, record, ORDERS, times=TIMES)


@contextmanager
def _watcher(store: Options, out: Console) -> Iterator[Watcher]:
    if store.json:
        yield Silence()
    elif out.is_terminal:
        with bars(out) as progress:
            yield Bars(progress, orders=len(ORDERS), times=TIMES)
    else:
        yield Lines(out)


def _announcement(options: Options) -> str:
    store = "a temporary SQLite file" if options.url is None else masked(options.url)
    return (
        f"{len(ORDERS)} orders, each published {TIMES} times by {PUBLISHERS} processes at once, "
        f"and charged by {WORKERS} workers.\nA publisher is killed with SIGKILL on the way, and "
        f"{len(KILLED_AT)} workers in the middle of a charge.\nThe store: {store}\n"
    )


def _moral(result: Tally) -> str:
    """What was shown, and what was not; the numbers are those of the table."""
    published = (
        f"{result.orders} orders, {result.inserted} jobs, {result.completed} completed: none "
        "lost, none doubled. "
    )
    if result.unheard:
        published += f"The killed publisher had stored {count(result.unheard, 'jobs')} and told "
        published += "nobody. "
    published += "What got no answer was published again, and the keys recognised each repeat."
    again = result.executions - result.inserted
    worked = (
        f"{result.executions} executions for {result.inserted} jobs: {again} were delivered "
        "again, and each job was settled once. "
    )
    worked += (
        "What a handler does to the world outside, a second delivery does again: there were "
        f"{result.charges} charges. To make effects happen once is the third door, and comes with "
        "a later release."
    )
    return "\n" + "\n\n".join(fill(text, 78) for text in (published, worked))


def _next(options: Options, queue: str) -> str:
    if options.url is None:
        return (
            "\nThat store is gone. To look around in one that stays:\n"
            "  oncely demo --url sqlite:///demo.db\n"
            "  oncely jobs --url sqlite:///demo.db --limit 5"
        )
    schema = "" if options.schema == DEFAULTS.schema else f" --schema {options.schema}"
    look = f"oncely jobs --queue {queue} --url {shell_quote(masked(options.url))}{schema}"
    return f"\nTo look at the jobs:\n  {look}"
