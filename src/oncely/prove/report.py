"""What a proof found: said in words, and never more than was seen."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from oncely.prove.advice import advice
from oncely.prove.play import Play
from oncely.prove.schedule import Schedule
from oncely.prove.timeline import Lane, draw, lanes_of
from oncely.prove.verdict import Difference, Verdict
from oncely.prove.watch import Boundary
from oncely.prove.world import Snapshot

Summary = Literal[
    "sound", "held", "unobserved", "not deterministic", "lost", "doubled", "stuck", "diverged"
]


class Violation(msgspec.Struct, frozen=True):
    """A schedule after which the world is not as one run would have left it."""

    verdict: Verdict
    schedule: Schedule
    lanes: list[Lane]
    differences: list[Difference]
    ended: str
    advice: str
    is_known: bool = False
    """Whether the baseline has it."""

    @classmethod
    def of(
        cls,
        verdict: Verdict,
        play: Play,
        boundaries: list[Boundary],
        found: list[Difference],
        *,
        is_job: bool = True,
    ) -> Violation:
        error = play.job.error
        told = error.get("message") if isinstance(error, dict) else None
        ended = f"{play.job.state}: {told}" if told else play.job.state
        if play.hung:
            ended = f"came to no end: {play.hung}"
        return cls(
            verdict,
            play.schedule,
            lanes_of(play.schedule, play.deliveries),
            found,
            ended,
            advice(verdict, play.schedule, boundaries, found, is_job=is_job),
        )

    @property
    def damage(self) -> tuple[object, ...]:
        """What went wrong, and in which parts of the world."""
        parts = [(each.label, bool(each.missing), bool(each.extra)) for each in self.differences]
        return (self.verdict, *parts)

    @property
    def where(self) -> str | None:
        """The user's line at which the fault struck, or the last one before it."""
        steps = self.lanes[0].steps if self.lanes else []
        return next((each.where for each in reversed(steps) if each.where), None)

    @property
    def token(self) -> str:
        """Plays exactly this one again: `prove(…, schedule=token)`."""
        return str(self.schedule)

    def timeline(self) -> str:
        lines = [f"{self.verdict}: {self.schedule.told}", "", draw(self.lanes), ""]
        for each in self.differences:
            lines += [f"  {each.label}"]
            lines += [f"    {line}" for line in each.lines]
        lines += [f"  the job is {self.ended}", f"  play it again: schedule={self.token!r}"]
        lines += ["", f"  {self.advice}"]
        return "\n".join(lines)


class Risk(msgspec.Struct, frozen=True):
    """A fence with `verify` whose sender was paused inside its call, and woke up after `verify` had
    been asked: it was done twice, and no fence of ours can prevent that."""

    effect: str
    schedule: Schedule


class OtherResult(msgspec.Struct, frozen=True):
    """The world was as one run leaves it, and the job's result was another, as JSON."""

    schedule: Schedule
    wanted: str
    found: str


class Report(msgspec.Struct):
    kind: str
    schedules: int = 0
    boundaries: list[Boundary] = []
    violations: list[Violation] = []
    """The fewest faults at the earliest point first."""
    held: int = 0
    """Schedules that left the job in doubt, as its handler declares."""
    unobserved: list[str] = []
    compared: list[str] = []
    """The parts of the world, and the tables that were compared without being named."""
    generated: list[str] = []
    """Columns whose new values the database generated: they were not compared."""
    varying: list[str] = []
    """Columns of tables that nobody has named, in which two clean runs differ: not compared."""
    random_names: list[str] = []
    """Parts of the world with random names, which were matched by their content."""
    not_compared: list[str] = []
    """Tables, files and keys of Redis that were written and are not in the world."""
    not_touched: list[str] = []
    """Parts of the world that the clean run did not change."""
    other_results: list[OtherResult] = []
    strict: bool = False
    """Whether the three above are no proof."""
    not_run: list[str] = []
    """Lines of the handler's functions that ran in no delivery."""
    gone: list[str] = []
    """Violations of the baseline that were not found any more."""
    is_job: bool = True
    """Whether it is a handler of an app, and not a function or a task of another queue."""
    unequal: list[Difference] = []
    """How two clean runs differ."""
    risks: list[Risk] = []
    """What was done twice, as its handler declares that it may be."""
    clocks: list[str] = []
    """Those that the handler reads and that no schedule moves."""
    not_tried: list[str] = []
    """Faults that could not be played, and why."""
    alike: int = 0
    """Boundaries where a crash leaves the same as one boundary earlier."""
    is_partial: bool = False
    """Whether not all schedules with one fault were played."""
    left_out: int = 0
    held_still: int = 0
    not_reached: int = 0
    seconds: float = 0.0
    played: list[Schedule] = []
    before: Snapshot = {}
    wanted: Snapshot = {}

    @property
    def verdict(self) -> Summary:
        if self.unequal:
            return "not deterministic"
        if self.violations:
            return self.violations[0].verdict
        if self.strict and self.other_results:
            return "diverged"
        if self.is_incomplete:
            return "unobserved"
        return "held" if self.held or self.risks else "sound"

    @property
    def is_incomplete(self) -> bool:
        return bool(self.unobserved or (self.strict and (self.not_compared or self.not_touched)))

    @property
    def ok(self) -> bool:
        """Nothing is broken but what the baseline has, and all could be seen."""
        has_other_result = self.strict and self.other_results
        return not (self.unequal or self.new or self.is_incomplete or has_other_result)

    @property
    def new(self) -> list[Violation]:
        """Without those of the baseline."""
        return [each for each in self.violations if not each.is_known]

    def groups(self) -> list[list[Violation]]:
        """The new ones, those with the same cause together."""
        found: dict[object, list[Violation]] = {}
        # What a crash alone breaks is broken for the same reason by a pause, or two days later.
        by_crash = {
            each.damage for each in self.violations if each.schedule.moves[0].fault == "crash"
        }
        for each in self.new:
            cause = each.damage if each.damage in by_crash else (each.damage, each.advice)
            found.setdefault(cause, []).append(each)
        return list(found.values())

    def __str__(self) -> str:
        parts = [f"{self.kind}: {self.verdict}"]
        if self.unequal:
            parts.append(self._not_deterministic())
        for first, *others in self.groups():
            parts.append(first.timeline())
            if others:
                parts.append(f"  {like_it(others)}")
        parts += self._gaps()
        parts.append(self.sentence)
        return "\n\n".join(parts)

    @property
    def sentence(self) -> str:
        """The last line: what was tried, and no more than that."""
        if self.unequal:
            return "Nothing was proved: two clean runs did not leave the same."
        tried = f"{_count(self.schedules, 'schedule')} at {len(self.boundaries)} boundaries"
        if self.violations:
            known = len(self.violations) - len(self.new)
            told = f"{_count(len(self.violations), 'violation')} in {tried}"
            if known:
                told += f", {known} of them in the baseline"
        elif self.verdict == "unobserved":
            return f"Not proved: no violation in {tried}, but not all could be seen."
        else:
            told = f"No violation in {tried}"
        if self.held:
            told += f"; {self.held} of them end as declared, in doubt"
        if self.risks:
            told += (
                f". In {len(self.risks)} of them {self._risky} was done twice, by a sender that "
                "woke up inside the call: verify is declared, and cannot prevent that"
            )
        if self.other_results:
            told += f". In {len(self.other_results)} of them the job has another result"
        if self.clocks:
            told += f". Not covered: what the handler makes of {', '.join(self.clocks)}"
        return f"{told}."

    @property
    def _risky(self) -> str:
        return ", ".join(sorted({each.effect for each in self.risks}))

    def _not_deterministic(self) -> str:
        first = self.unequal[0]
        lines = ["two clean runs leave different things, so a repeat cannot be told from a change"]
        lines += [f"  {first.label}"]
        lines += [f"    once     {line}" for line in first.missing[:3]]
        lines += [f"    and once {line}" for line in first.extra[:3]]
        return "\n".join(
            [
                *lines,
                "  name what changes in ignore=[…], or leave it out of the world: of a database, "
                "name the tables that are to be compared",
            ]
        )

    def _gaps(self) -> list[str]:
        lines = [f"unobserved: {each}" for each in self.unobserved]
        if known := [each.token for each in self.violations if each.is_known]:
            lines.append(f"in the baseline: {' '.join(known)}")
        lines += [f"gone since the baseline: {each}" for each in self.gone]
        if self.compared:
            lines.append(f"compared: {', '.join(self.compared)}")
        if self.generated:
            lines.append(
                "not compared, for the database generates them: "
                f"{', '.join(self.generated)}; Table(…, compare_generated=True) compares them"
            )
        if self.varying:
            lines.append(
                f"not compared, for two clean runs differ there: {', '.join(self.varying)}"
            )
        if self.random_names:
            lines.append(
                "random names differ in each run, and were matched by what else is there: "
                f"{', '.join(self.random_names)}"
            )
        if self.not_compared:
            lines.append(f"written, and not compared: {', '.join(sorted(self.not_compared))}")
        if self.not_touched:
            lines.append(f"not changed by the clean run: {', '.join(self.not_touched)}")
        if self.not_run:
            lines.append(f"lines that no schedule ran: {', '.join(self.not_run)}")
        if self.risks:
            tokens = " ".join(str(each.schedule) for each in self.risks)
            lines.append(
                f"declared risk: a sender that was paused inside the call of {self._risky} woke up "
                "after verify had been asked, and it was done twice; only a key at the other side "
                f"prevents that\n  {tokens}"
            )
        if self.other_results:
            tokens = " ".join(str(each.schedule) for each in self.other_results)
            first = self.other_results[0]
            lines.append(
                f"another result: {first.found} instead of {first.wanted}, for who waits for the "
                f"result of the job\n  {tokens}"
            )
        lines += [
            f"not covered: the handler reads {each}, a clock that no schedule moves"
            for each in self.clocks
        ]
        lines += [f"not tried: {each}" for each in self.not_tried]
        if self.alike:
            lines.append(
                f"{self.alike} boundaries are inside a transaction, where a crash leaves the same "
                "as at its begin: played once"
            )
        if self.left_out:
            lines.append(f"not played for want of time: {_count(self.left_out, 'schedule')}")
        if self.held_still > 0:
            lines.append(
                f"not paused at {self.held_still} boundaries inside a transaction that a successor "
                "would wait for"
            )
        if self.not_reached:
            told = _count(self.not_reached, "schedule")
            lines.append(f"the fault did not come to its boundary in {told}")
        return ["\n".join(lines)] if lines else []

    def as_dict(self) -> dict[str, Any]:
        """For machines."""
        return {
            "kind": self.kind,
            "verdict": self.verdict,
            "ok": self.ok,
            "schedules": self.schedules,
            "boundaries": [msgspec.to_builtins(each) for each in self.boundaries],
            "violations": [
                {
                    "verdict": each.verdict,
                    "schedule": each.token,
                    "told": each.schedule.told,
                    "differences": msgspec.to_builtins(each.differences),
                    "ended": each.ended,
                    "advice": each.advice,
                    "where": each.where,
                    "is_known": each.is_known,
                    "lanes": msgspec.to_builtins(each.lanes),
                }
                for each in self.violations
            ],
            "held": self.held,
            "declared_risks": [
                {"effect": each.effect, "schedule": str(each.schedule)} for each in self.risks
            ],
            "other_results": [
                {"schedule": str(each.schedule), "wanted": each.wanted, "found": each.found}
                for each in self.other_results
            ],
            "clocks_not_moved": self.clocks,
            "not_tried": self.not_tried,
            "unobserved": self.unobserved,
            "compared": self.compared,
            "generated": self.generated,
            "varying": self.varying,
            "random_names": self.random_names,
            "not_run": self.not_run,
            "gone": self.gone,
            "not_compared": self.not_compared,
            "not_touched": self.not_touched,
            "strict": self.strict,
            "not_deterministic": msgspec.to_builtins(self.unequal),
            "left_out": self.left_out,
            "seconds": round(self.seconds, 3),
            "sentence": self.sentence,
        }


def like_it(others: list[Violation]) -> str:
    """The rest of a group whose first story was told."""
    tokens = " ".join(each.token for each in others)
    return f"and {_count(len(others), 'more schedule')} like it: {tokens}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
