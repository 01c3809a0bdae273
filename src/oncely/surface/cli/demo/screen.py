"""What the demo shows while it runs, and the table at its end."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from oncely.surface.cli.demo.record import Standing
from oncely.surface.cli.demo.tally import Tally
from oncely.surface.cli.demo.working import PLACES


class Silence:
    """For `--json`."""

    def told(self, line: str) -> None: ...

    def stood(self, now: Standing) -> None: ...


class Lines(Silence):
    """One line for each process, when it ends, and for each answer of the operator."""

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
        self._progress.update(
            self._publishes,
            completed=now.publishes,
            note=_note("red", now.publishers_killed, "publishers killed"),
        )
        held = now.held - now.resolved
        self._progress.update(
            self._jobs,
            completed=now.jobs,
            note=_notes(
                _note("yellow", held, "held in doubt"), _note("green", now.resolved, "resolved")
            ),
        )
        self._progress.update(
            self._completed,
            completed=now.completed,
            note=_notes(
                _note("red", now.workers_killed, "workers killed"),
                _note("green", now.recovered, "jobs recovered"),
            ),
        )


def _note(colour: str, number: int, what: str) -> str:
    return f"[{colour}]{count(number, what)}[/]" if number > 0 else ""


def _notes(*notes: str) -> str:
    return " ".join(note for note in notes if note)


def bars(out: Console) -> Progress:
    return Progress(
        TextColumn("{task.description:9}"),
        BarColumn(20, complete_style="cyan", finished_style="green"),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        console=out,
    )


def table(tally: Tally) -> Table:
    """By the doors; the last part is the payment service's own book."""
    sections: tuple[dict[str, int | None], ...] = (
        {
            "orders": tally.orders,
            f"publishes, by {tally.publishers} processes": tally.publishes,
            "jobs inserted": tally.inserted,
            "deduplicated": tally.deduplicated,
        },
        {
            f"executions, by {tally.workers} workers": tally.executions,
            "workers killed": tally.workers_killed,
            f"  {PLACES['intent']}": tally.killed_after_intent,
            f"  {PLACES['effect']}": tally.killed_after_effect,
            f"  {PLACES['outcome']}": tally.killed_after_outcome,
            "jobs recovered": tally.recovered,
            "held in doubt": tally.held,
            "resolved": tally.resolved,
            "completed, once each": tally.completed,
        },
        {
            "by the payment service's own book": None,
            "charges asked for": tally.charges_asked,
            "charges made": tally.charges,
            "mails asked about": tally.questions,
            "mails sent": tally.mails,
            "lost": tally.lost,
            "doubled": tally.doubled,
        },
    )
    made = Table(show_header=False)
    made.add_column()
    made.add_column(justify="right")
    for rows in sections:
        for label, number in rows.items():
            bad = label in ("lost", "doubled") and number
            made.add_row(
                label, "" if number is None else f"{number:,}", style="bold red" if bad else ""
            )
        made.add_section()
    return made


def count(number: int, what: str) -> str:
    """`what` in the plural."""
    noun, *rest = what.split(" ", 1)
    return " ".join([str(number), noun.removesuffix("s") if number == 1 else noun, *rest])
