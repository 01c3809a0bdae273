"""`prove`: one clean run to learn the boundaries, then every schedule that the budget allows."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any, Final

from oncely.model.errors import InvalidInput
from oncely.prove import faults
from oncely.prove.default_tables import DefaultTable, varying_columns, without_columns
from oncely.prove.downstream import Downstream
from oncely.prove.fresh import why_not
from oncely.prove.fresh_verdict import judge_fresh
from oncely.prove.job_values import as_line, leave_out, varying, varying_children, without
from oncely.prove.line_coverage import LineCoverage
from oncely.prove.mailbox import Mailbox
from oncely.prove.plain import Arguments, as_app
from oncely.prove.play import NotFresh, Play, refuse_unfinished, woken_in_fence
from oncely.prove.processes import ended_by_signals
from oncely.prove.report import OtherResult, Report, Risk, Violation
from oncely.prove.schedule import Schedule, parse
from oncely.prove.seams.http import BY_HTTP
from oncely.prove.stage import CHILDREN, Stage
from oncely.prove.stand_ins import StandIns
from oncely.prove.timeline import short
from oncely.prove.verdict import Verdict, differences, judge
from oncely.prove.watch import Boundary, Note
from oncely.prove.world import Snapshot, Table, WorldItem

Progress = Callable[[int, int], None]
_BROKEN: Final = ("lost", "doubled", "stuck", "diverged")


def prove(
    app: Any,
    kind: str | None = None,
    payload: Any = None,
    *,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
    world: Sequence[WorldItem] = (),
    budget_seconds: float = 60.0,
    max_faults: int = 2,
    by_line: bool = False,
    allow_hosts: Sequence[str] = (),
    accept: Sequence[str] = (),
    strict: bool = False,
    schedule: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Whether running the handler of `kind` twice is the same as running it once.

    It runs for real, in forked processes that end, or stand still, at every boundary, on copies of
    the databases; then the job is delivered again, and `world` compared with what one clean run
    leaves.
    `world` takes `Table`, `Downstream`, `Mailbox`, anything with `snapshot()`, and functions. Of a
    database of which it has no `Table`, all tables are compared. With
    `max_faults=1` no schedule has two faults; with `by_line=True` every line of yours is a boundary
    too. A call to another machine is refused, unless its host is in `allow_hosts`, and so is a
    process, unless its program is in `accept`, which also takes the address of a service on this
    machine (`127.0.0.1:8125`): what they do is done for real and not compared. With
    `strict=True` a handler is not `ok` that writes what is not in `world`, or leaves a part of it
    unchanged. `schedule` is a
    word of an earlier report: only that one is played, with its output shown. Instead of an app and
    a kind, a function or a task of Celery, RQ, Dramatiq or Django: it is called with `payload`, or
    with `args` and `kwargs`. Or an ASGI or WSGI app and a request: `prove(web, "POST /orders",
    body, headers={…})` sends it, and sends it again as a client does that got no answer.
    """
    if not hasattr(os, "fork"):
        raise InvalidInput("a proof needs os.fork, which this system has not: use Linux or macOS")
    if isinstance(budget_seconds, bool) or not budget_seconds > 0:
        raise InvalidInput(f"budget_seconds is {budget_seconds!r}; expected a number above 0")
    if max_faults not in (1, 2):
        raise InvalidInput(f"max_faults is {max_faults!r}; expected 1 or 2")
    if payload is not None and (args or kwargs):
        raise InvalidInput("prove got payload and args or kwargs; expected one of the two")
    if isinstance(args, str) or not isinstance(args, Sequence):
        raise InvalidInput(f"args is {args!r}; expected a list of positional arguments")
    with as_app(app, kind, Arguments(args, kwargs or {}, headers or {})) as subject:
        wanted = None if schedule is None else parse(schedule)
        stage = Stage(
            subject.app,
            subject.kind,
            payload,
            world,
            shows_output=wanted is not None,
            by_line=by_line,
            allow_hosts=allow_hosts,
            accept=accept,
        )
        deadline = time.monotonic() + budget_seconds
        with closing(stage), ended_by_signals():
            report = Report(kind=subject.title, strict=strict, is_job=subject.is_job)
            proof = _Proof(stage, report, deadline, progress)
            return proof.run(wanted, pairs=max_faults > 1)


class _Proof:
    def __init__(
        self, stage: Stage, report: Report, deadline: float, progress: Progress | None
    ) -> None:
        self._stage = stage
        self._deadline = deadline
        self._progress = progress or (lambda _done, _all: None)
        self._report = report
        self._stand_ins = StandIns()
        self._seen_after: dict[Schedule, list[Boundary]] = {}
        self._later: dict[int, Snapshot] = {}
        self._lines = LineCoverage()

    def run(self, only: Schedule | None, *, pairs: bool) -> Report:
        begun = time.monotonic()
        report = self._report
        # A schedule that is played alone is played to the letter.
        self._records, self._pairs = only is None, pairs and only is None
        if self._learn():
            if only is not None:
                report.is_partial = True
                self._try(only)
            else:
                self._explore()
        report.not_run = self._lines.not_run()
        report.seconds = time.monotonic() - begun
        return report

    def _learn(self) -> bool:
        """By two clean runs, which must leave the same; whether they do."""
        report, stage = self._report, self._stage
        stage.ground.looks_at_clocks = True
        first = stage.play(Schedule())
        stage.ground.looks_at_clocks = False
        refuse_unfinished(first)
        report.boundaries = first.deliveries[0].boundaries
        if len(first.deliveries) > 1:
            report.unobserved.append(
                f"the clean run took {len(first.deliveries)} deliveries, and faults are played in "
                "the first only"
            )
        self._notice(first)
        changed = [each.label for each in differences(stage.before, first.world)]
        self._notice_what_is_left(first, changed)
        if changed and changed != [CHILDREN] and not any(map(_has_effect, report.boundaries)):
            report.unobserved.append(
                f"{', '.join(changed)} changed, and nothing that was seen can have changed it"
            )
        if not changed:
            report.unobserved.append(
                "the clean run changed nothing in world=, nor in the tables of its databases, so "
                "nothing could be seen to be lost or doubled: give the services that the handler "
                "writes to"
            )
        second = stage.play(Schedule(), records=self._records)
        self._leave_out_varying_values(first, second)
        self._stand_ins.learn(stage.before, first.world, second.world)
        self._leave_out_varying_columns(first.world, second.world)
        report.generated = sorted(stage.generated.left_out)
        report.random_names = sorted(self._stand_ins.random)
        report.compared = [*stage.named_labels]
        report.compared += [each for each in changed if each not in stage.named_labels]
        report.before = self._stand_ins.apply(stage.before)
        report.wanted = self._stand_ins.apply(first.world)
        unequal = differences(report.wanted, self._stand_ins.apply(second.world))
        if unequal or second.job.state != first.job.state:
            report.unequal = unequal
            return False
        return True

    def _leave_out_varying_columns(self, one: Snapshot, other: Snapshot) -> None:
        """In tables that nobody has named: columns in which two clean runs differ, or the table."""
        report, stage, apply = self._report, self._stage, self._stand_ins.apply
        for label, table in stage.labelled_tables():
            if not isinstance(table, DefaultTable):
                continue
            if apply({label: one[label]}) == apply({label: other[label]}):
                continue
            columns = varying_columns(one[label].elements(), other[label].elements())
            table.ignore |= columns
            report.varying += [f"{table.name}.{column}" for column in sorted(columns)]
            for world in (stage.before, one, other):
                world[label] = without_columns(world[label], columns)

    def _leave_out_varying_values(self, first: Play, second: Play) -> None:
        """Of the result, and of the jobs that were enqueued."""
        report, stage = self._report, self._stage
        stage.left_out_of_children = varying_children(first.world[CHILDREN], second.world[CHILDREN])
        for play in (first, second):
            play.world[CHILDREN] = leave_out(play.world[CHILDREN], stage.left_out_of_children)
        self._varying = set(varying(first.job.result, second.job.result))
        self._result = self._result_of(first)
        places = [f"{'.'.join(('the result', *place))}" for place in sorted(self._varying)]
        places += [
            ".".join((f"the job {kind}", *place))
            for kind, found in stage.left_out_of_children.items()
            for place in sorted(found)
        ]
        report.not_compared += [f"{place} (two clean runs differ)" for place in places]

    def _result_of(self, play: Play) -> str:
        return as_line(without(play.job.result, self._varying))

    def _notice_what_is_left(self, play: Play, changed: list[str]) -> None:
        """What the clean run has changed that is not compared, or without a write that was seen,
        and what it has not changed."""
        report, stage = self._report, self._stage
        report.not_touched = [label for label in stage.named_labels if label not in changed]
        if not self._has_custom:  # a snapshot may look there
            report.not_compared += [f"the file {path}" for path in stage.changed_files()]
            report.not_compared += [f"the key {key} of Redis" for key in stage.changed_keys()]
        written = {
            _bare(note.text)
            for child in play.deliveries
            for note in child.messages
            if isinstance(note, Note) and note.what == "written"
        }
        report.unobserved += [
            f"{label} changed, and no statement that was seen writes to it"
            for label, table in stage.labelled_tables()
            if label in changed
            and _bare(table.name) not in written
            and not table.may_change_by_itself(stage.ground.copies)
        ]

    @property
    def _has_custom(self) -> bool:
        known = (Table, Downstream, Mailbox)
        return any(not isinstance(item, known) for item in self._stage.world)

    def _notice(self, play: Play) -> None:
        """What could not be seen, and what was written and is not compared."""
        report = self._report
        compared = {_bare(table.name) for table in self._stage.tables}
        for child in play.deliveries:
            self._lines.add(child.messages)
            for note in child.messages:
                if not isinstance(note, Note):
                    continue
                if note.what == "clock":
                    self._notice_clock(note)
                if note.what == "unobserved" and note.text not in report.unobserved:
                    if self._has_custom and note.more == [BY_HTTP]:  # a snapshot may look there
                        continue
                    report.unobserved.append(note.text)
                elif (
                    note.what == "written"
                    and _bare(note.text) not in compared
                    and not note.text.lower().startswith("oncely")
                    and note.text not in report.not_compared
                ):
                    report.not_compared.append(note.text)

    def _notice_clock(self, note: Note) -> None:
        place = "" if note.text == "SQL" else f" at {short(note.text)}"
        told = f"{note.more[0]}{place}"
        if told not in self._report.clocks:
            self._report.clocks.append(told)

    def _explore(self) -> None:
        boundaries = self._report.boundaries
        claimed = [one for one in boundaries if one.name != "claim"]
        self._report.alike = len(boundaries) - len(faults.unlike(boundaries))
        self._report.held_still = len(claimed) - len(faults.free_to_pause(boundaries))
        singles = list(faults.singles(boundaries))
        for number, schedule in enumerate(singles):
            if not self._in_time():
                self._report.is_partial = True
                self._report.unobserved.append(
                    f"the budget ended after {number} of the {len(singles)} schedules with one "
                    "fault: give it more seconds"
                )
                return
            self._progress(number, len(singles))
            self._try(schedule)
        if self._report.violations:
            return
        # Costly, and for a handler that is broken anyway it says nothing new.
        for schedule in faults.of_interpreters(self._report.boundaries):
            self._try(schedule)
        if self._pairs:
            self._explore_pairs()

    def _explore_pairs(self) -> None:
        """In no order, so that a budget that ends cuts nothing in particular."""
        pairs = list(faults.pairs(self._report.boundaries, self._seen_after))
        random.Random(0).shuffle(pairs)
        for number, schedule in enumerate(pairs):
            if not self._in_time():
                self._report.left_out += len(pairs) - number
                return
            self._progress(number, len(pairs))
            self._try(schedule)

    def _in_time(self) -> bool:
        return time.monotonic() < self._deadline

    def _try(self, schedule: Schedule) -> None:
        report, stage = self._report, self._stage
        is_fresh = any(move.fault == "fresh" for move in schedule.moves)
        try:
            if is_fresh and (why := why_not(stage.ground, stage.kind)):
                raise NotFresh(why)
            play = stage.play(schedule, records=self._will_go_on(schedule))
        except NotFresh as error:
            report.not_tried.append(f"a fresh interpreter: {error}")
            return
        self._notice(play)
        report.schedules += 1
        report.played.append(schedule)
        if not play.reached:
            report.not_reached += 1
        verdict, play = self._judge(play)
        if is_fresh and verdict in _BROKEN:
            verdict = judge_fresh(stage, report, play, verdict, self._stand_ins)
        if verdict == "doubled" and (name := woken_in_fence(play)):
            verdict = "sound"
            report.risks.append(Risk(name, schedule))
        if verdict == "sound" and (result := self._result_of(play)) != self._result:
            report.other_results.append(OtherResult(schedule, self._result, result))
        if verdict == "held":
            report.held += 1
        if verdict in _BROKEN:
            found = differences(report.wanted, self._stand_ins.apply(play.world))
            violation = Violation.of(verdict, play, report.boundaries, found, is_job=report.is_job)
            report.violations.append(violation)
        elif self._leaves_more_to_do(schedule):
            after = play.deliveries[1:2]
            self._seen_after[schedule] = after[0].boundaries if after else []

    def _will_go_on(self, schedule: Schedule) -> bool:
        """Whether schedules will come in which the delivery after these faults ends."""
        return (
            self._pairs
            and not self._report.violations
            and len(schedule.moves) == 1
            and schedule.moves[0].fault == "crash"
        )

    def _leaves_more_to_do(self, schedule: Schedule) -> bool:
        """Whether a second fault is tried after it. A commit whose answer is lost leaves the same
        as a crash after it."""
        move = schedule.moves[0]
        if len(schedule.moves) > 1 or move.fault not in ("crash", "lose"):
            return False
        struck = self._report.boundaries[move.at : move.at + 1]
        return move.fault == "crash" or any(map(faults.takes_request_fault, struck))

    def _judge(self, play: Play) -> tuple[Verdict, Play]:
        """And the play that shows it."""
        state = play.job.state
        if state == "in_doubt" and not play.hung:
            return self._judge_held(play)
        if play.hung or state != "completed":
            return "stuck", play
        return self._compare(play), play

    def _judge_held(self, play: Play) -> tuple[Verdict, Play]:
        """Held for a person: sound if a true answer leads to what one run would have left."""
        if self._compare(play) == "doubled":
            return "doubled", play
        answered = []
        for happened in (True, False):
            went_on = self._stage.answer(play, happened=happened)
            verdict = self._compare(went_on) if went_on.job.state == "completed" else "stuck"
            if verdict == "sound":
                return "held", play
            answered.append((verdict, went_on))
        # One of the answers was true: the one after which less is wrong.
        return min(answered, key=lambda each: self._wrong(each[1]))

    def _compare(self, play: Play) -> Verdict:
        """With what one run leaves: at the beginning, or at the time to which the clocks were
        moved, if the handler has read one."""
        report, found = self._report, self._stand_ins.apply(play.world)
        verdict = judge(report.before, report.wanted, found)
        if verdict != "sound" and play.read_clock and play.ahead_seconds:
            later = self._wanted_after(round(play.ahead_seconds))
            if judge(report.before, later, found) == "sound":
                return "sound"
        return verdict

    def _wanted_after(self, seconds: int) -> Snapshot:
        if seconds not in self._later:
            play = self._stage.play(Schedule(), after_seconds=seconds)
            self._later[seconds] = self._stand_ins.apply(play.world)
        return self._later[seconds]

    def _wrong(self, play: Play) -> int:
        found = differences(self._report.wanted, self._stand_ins.apply(play.world))
        return sum(len(each.missing) + len(each.extra) for each in found)


def _bare(table: str) -> str:
    """Its name without the schema."""
    return table.rpartition(".")[2].lower()


def _has_effect(boundary: Boundary) -> bool:
    return boundary.channel not in ("store", "line") and not boundary.repeatable
