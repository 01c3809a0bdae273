"""The count at the end of the demo: what it adds up, and what it complains of."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from oncely import Job
from oncely.model.effect import Source, Verb
from oncely.model.job import Effect, Execution, Resolution
from oncely.surface.cli.demo.book import Charge, Mail, Pages
from oncely.surface.cli.demo.gate import After
from oncely.surface.cli.demo.publisher import Answer
from oncely.surface.cli.demo.record import Record
from oncely.surface.cli.demo.tally import Tally, faults, tally

NOW = datetime.now(UTC)
ORDERS = [1, 2]


def effect(name: str, made: int, source: Source = "returned", *answers: Resolution) -> Effect:
    verb: Verb = "step" if name == "charge" else "fence"
    return Effect(name, verb, "done", source, 7, NOW, NOW, None, made, list(answers))


def job(
    job_id: str,
    order: int,
    publisher: str = "publisher 1",
    *ends: str,
    effects: tuple[Effect, ...] = (),
) -> Job:
    executions = [
        Execution(epoch, 1, outcome, "w", NOW, NOW)
        for epoch, outcome in enumerate(ends or ("completed",), 7)
    ]
    return Job(
        job_id=job_id,
        kind="demo.charge",
        queue="demo",
        state="completed" if "completed" in ends or not ends else "failed",
        payload={"order_id": order},
        result=f"{job_id}.{executions[-1].epoch}.f",
        error=None,
        priority=0,
        attempt=1,
        max_attempts=None,
        timeout=None,
        idempotency_key=f"order:{order}:charge",
        unique_key=None,
        group_key=None,
        tags=[publisher],
        created_at=NOW,
        due_at=NOW,
        ended_at=NOW,
        executions=executions,
        effects=list(effects) or [effect("charge", 10 + order), effect("receipt", 20 + order)],
    )


HELD = ("crashed", "in_doubt", "completed")
LOOKED = Resolution(NOW, True, "demo", "looked in the mailbox")
RESOLVED = (effect("charge", 12), effect("receipt", 22, "resolved", LOOKED))
GOOD_JOBS = [job("j1", 1), job("j2", 2, "publisher 2", *HELD, effects=RESOLVED)]
GOOD_ANSWERS = [Answer(1, "j1", True), Answer(1, "j1", False)]
GOOD_ANSWERS += [Answer(2, "j2", False), Answer(2, "j2", False)]
GOOD_EXECUTIONS = {"j1.7.f", "j2.7.e", "j2.8.e", "j2.9.f"}
GOOD_CHARGES = [Charge(11, 1, "j1:charge", 1), Charge(12, 2, "j2:charge", 2)]
GOOD_MAILS = [Mail(21, 1), Mail(22, 2)]
PLACES: tuple[After, ...] = ("intent", "effect", "effect", "outcome")


def counted(
    jobs: list[Job] = GOOD_JOBS,
    answers: list[Answer] = GOOD_ANSWERS,
    charges: list[Charge] = GOOD_CHARGES,
    mails: list[Mail] = GOOD_MAILS,
    executions: set[str] = GOOD_EXECUTIONS,
    *,
    resolved: tuple[str, ...] = ("j2",),
    publishers_killed: tuple[str, ...] = ("publisher 2",),
    workers_killed: tuple[After, ...] = PLACES,
) -> tuple[Tally, list[str]]:
    record = Record(
        answers=answers,
        publishers=["publisher 1", "publisher 2"],
        publishers_killed=list(publishers_killed),
        executions=executions,
        workers=["worker 1", "worker 2"],
        workers_killed=list(workers_killed),
        resolved=list(resolved),
    )
    pages = Pages(charges, mails, 3)
    result = tally(ORDERS, jobs, pages, record)
    return result, faults(result, jobs, pages, record, ORDERS, times=2)


def test_a_good_count() -> None:
    result, wrong = counted()
    assert wrong == []
    assert msgspec.structs.asdict(result) == {
        "orders": 2,
        "publishers": 2,
        "publishers_killed": 1,
        "publishes": 5,
        "inserted": 2,
        "unheard": 1,
        "deduplicated": 3,
        "workers": 2,
        "workers_killed": 4,
        "killed_after_intent": 1,
        "killed_after_effect": 2,
        "killed_after_outcome": 1,
        "executions": 4,
        "recovered": 1,
        "completed": 2,
        "held": 1,
        "resolved": 1,
        "charges_asked": 3,
        "charges": 2,
        "mails": 2,
        "questions": 3,
        "lost": 0,
        "doubled": 0,
    }


@pytest.mark.parametrize(
    ("found", "numbers"),
    [
        ({"charges": GOOD_CHARGES[:1]}, (1, 0)),
        ({"charges": [], "mails": []}, (4, 0)),
        ({"charges": [*GOOD_CHARGES, Charge(13, 1, None, 1)]}, (0, 1)),
        ({"mails": [*GOOD_MAILS, Mail(23, 2), Mail(24, 2)]}, (0, 2)),
        ({"mails": [Mail(21, 1), Mail(22, 1)]}, (1, 1)),
        ({"charges": [*GOOD_CHARGES, Charge(13, 3, None, 1)]}, (0, 1)),
    ],
    ids=["no charge", "nothing", "two charges", "three mails", "wrong address", "no such order"],
)
def test_lost_and_doubled_are_what_the_book_says(
    found: dict[str, Any], numbers: tuple[int, int]
) -> None:
    result, wrong = counted(**found)
    assert (result.lost, result.doubled) == numbers
    for number, what in zip(numbers, ("lost", "doubled"), strict=True):
        assert (f"{number} charges and mails are {what}" in wrong) == bool(number)


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"jobs": GOOD_JOBS[:1]}, "1 orders have no completed job"),
        ({"jobs": [GOOD_JOBS[0], job("j2", 2, "", "failed")]}, "1 orders have no completed job"),
        ({"jobs": [GOOD_JOBS[0], job("j2", 2, "", "failed")]}, "1 jobs did not complete"),
        ({"jobs": [GOOD_JOBS[0], job("j2", 2, "", *HELD[:2])]}, "1 jobs did not complete"),
        ({"jobs": [*GOOD_JOBS, job("j3", 1)]}, "1 jobs or ends of jobs are doubled"),
        (
            {"jobs": [GOOD_JOBS[0], job("j2", 2, "", "completed", "completed")]},
            "1 jobs or ends of jobs are doubled",
        ),
        ({"answers": GOOD_ANSWERS[:3]}, "1 publishes were never answered"),
        ({"answers": [*GOOD_ANSWERS[:3], Answer(2, "j9", False)]}, "1 receipts name another job"),
        ({"jobs": [job("j1", 1), job("j2", 2)]}, "1 jobs are there that no living"),
        ({"answers": [*GOOD_ANSWERS, GOOD_ANSWERS[0]]}, "0 receipts are missing, not 1"),
        ({"executions": GOOD_EXECUTIONS | {"j1.6.f"}}, "1 executions are not known to the store"),
        ({"executions": GOOD_EXECUTIONS - {"j1.7.f"}}, "1 results are not those of the execution"),
        ({"mails": [Mail(21, 1), Mail(29, 2)]}, "the ledger of 1 jobs is not what"),
        ({"charges": [GOOD_CHARGES[0], Charge(19, 2, "k", 1)]}, "the ledger of 1 jobs is not what"),
        ({"resolved": ("j2", "j1")}, "2 answers were given, and 1 are kept"),
        ({"jobs": [job("j1", 1), job("j2", 2, "publisher 2", "crashed")]}, "no job was held"),
        ({"jobs": [job("j1", 1), job("j2", 2, "publisher 2", *HELD)]}, "no job was resolved"),
        ({"publishers_killed": ()}, "no publisher was killed"),
        ({"workers_killed": PLACES[1:]}, "no worker was killed between intent and effect"),
        ({"workers_killed": ("intent", "outcome")}, "no worker was killed between effect and"),
        ({"workers_killed": PLACES[:3]}, "no worker was killed between outcome and settle"),
    ],
)
def test_a_bad_count(found: dict[str, Any], complaint: str) -> None:
    assert any(text.startswith(complaint) for text in counted(**found)[1])


def test_epochs_that_do_not_rise() -> None:
    done = GOOD_JOBS[1]
    fallen = msgspec.structs.replace(done, executions=[done.executions[2], *done.executions[:2]])
    jobs = [GOOD_JOBS[0], msgspec.structs.replace(fallen, result="j2.8.e")]
    assert "the epochs of 1 jobs do not rise" in counted(jobs)[1]
