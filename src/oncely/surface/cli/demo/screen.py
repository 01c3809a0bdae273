"""What the demo shows while it runs, and at its end."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from oncely.surface.cli.demo.record import Standing
from oncely.surface.cli.demo.tally import Tally


class Silence:
    """For `--json`."""

    def told(self, line: str) -> None: ...

    def stood(self, now: Standing) -> None: ...


class Lines(Silence):
    """One line for each process, when it ends."""

    def __init__(self, out: Console) -> None:
        self._out = out

    def told(self, line: str) -> None:
        self._out.print(line)


class Bars(Silence):
    """A bar for each door that an order goes through, and the dead beside it."""

    def __init__(self, progress: Progress, *, orders: int, times: int) -> None:
        self._progress = progress
        self._publishes = progress.add_task("publishes", total=orders * times, note="")
        self._jobs = progress.add_task("jobs", total=orders, note="")
        self._completed = progress.add_task("completed", total=orders, note="")

    def stood(self, now: Standing) -> None:
        publishers, workers, recovered = (
            f"[{colour}]{count(number, what)}[/]" if number else ""
            for colour, number, what in (
                ("red", now.publishers_killed, "publishers killed"),
                ("red", now.workers_killed, "workers killed"),
                ("green", now.recovered, "jobs recovered"),
            )
        )
        notes = " ".join(note for note in (workers, recovered) if note)
        self._progress.update(self._publishes, completed=now.publishes, note=publishers)
        self._progress.update(self._jobs, completed=now.jobs)
        self._progress.update(self._completed, completed=now.completed, note=notes)


def bars(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:9}"),
        BarColumn(20, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        console=out,
    )


def table(tally: Tally) -> Table:
    rows = {
        "orders": tally.orders,
        f"publishes, by {tally.publishers} processes": tally.publishes,
        "jobs inserted": tally.inserted,
        "deduplicated": tally.deduplicated,
        f"executions, by {tally.workers} workers": tally.executions,
        "workers killed": tally.workers_killed,
        "jobs recovered": tally.recovered,
        "completed, once each": tally.completed,
        "lost": tally.lost,
        "doubled": tally.doubled,
    }
    made = Table(show_header=False)
    made.add_column()
    made.add_column(justify="right")
    for label, number in rows.items():
        bad = label in ("lost", "doubled") and number
        made.add_row(label, f"{number:,}", style="bold red" if bad else "")
    return made


def count(number: int, what: str) -> str:
    """`what` in the plural."""
    noun, *rest = what.split(" ", 1)
    return " ".join([str(number), noun.removesuffix("s") if number == 1 else noun, *rest])
