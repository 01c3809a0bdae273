"""Whether it was the fresh interpreter that broke a schedule, and not something that it lacks."""

from __future__ import annotations

from oncely.prove.play import NotFresh, Play
from oncely.prove.report import Report
from oncely.prove.schedule import Schedule
from oncely.prove.stage import Stage
from oncely.prove.stand_ins import REFERENCES, StandIns
from oncely.prove.verdict import Verdict, differences


def judge_fresh(
    stage: Stage, report: Report, play: Play, verdict: Verdict, stand_ins: StandIns
) -> Verdict:
    """A clean run there shows whether it finds the same world, and what it makes anew."""
    try:
        clean = stage.play(Schedule(), fresh=True)
    except NotFresh as error:
        report.not_tried.append(f"a fresh interpreter: {error}")
        return "sound"
    left = stand_ins.apply(clean.world)
    if clean.job.state != "completed" or not differences(report.before, left):
        report.not_tried.append(
            "a fresh interpreter: the handler does not do its work there, for it needs what "
            "this process has set up"
        )
        return "sound"
    if not differences(report.wanted, left):
        return verdict
    found = stand_ins.apply(play.world)
    more_or_less = {
        found[label].total() - lines.total()
        for label, lines in report.wanted.items()
        if label != REFERENCES
    }
    if verdict == "stuck" or max(more_or_less) > 0:
        return "stuck" if verdict == "stuck" else "doubled"
    if min(more_or_less) < 0:
        return "lost"
    report.not_tried.append(
        "a fresh interpreter: the handler writes other values there in a clean run too; name "
        "them in ignore=[…]"
    )
    return "sound"
