import re
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from oncely import Job, Oncely
from oncely.model.job import Execution
from oncely.surface.cli.demo.publisher import Answer
from oncely.surface.cli.demo.record import Record
from oncely.surface.cli.demo.tally import faults, tally
from oncely.surface.cli.demo.worker import Charge
from tests.crash.checker import check
from tests.surface.command import SCRIPT, Command, environment, on_terminal

NUMBERS = re.compile(r"│ ([a-z ,58]+?) +│ +([\d,]+) │")


def test_on_a_store(oncely: Command, url: str) -> None:
    for run in (1, 2) if url.startswith("postgresql") else (1,):
        counts = oncely("demo", "--url", url, "--json").json()
        assert counts["orders"] == counts["inserted"] == counts["completed"] == 200
        assert (counts["publishers"], counts["publishers_killed"]) == (5, 1)
        assert (counts["workers"], counts["workers_killed"]) == (8, 4)
        assert (counts["lost"], counts["doubled"]) == (0, 0)
        assert counts["publishes"] == 1000 + counts["unheard"]
        assert counts["publishes"] == counts["inserted"] + counts["deduplicated"]
        assert counts["recovered"] > 0
        assert counts["executions"] >= 200 + counts["recovered"]
        assert 200 < counts["charges"] <= counts["executions"]
        check(url)
        with Oncely(url) as app:
            jobs = app.jobs(kind="demo.charge", limit=1000)
        assert [job.state for job in jobs] == ["completed"] * 200 * run
        assert len({(job.queue, job.idempotency_key) for job in jobs}) == len(jobs)
        assert len({job.queue for job in jobs}) == run


def test_as_lines(oncely: Command, folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = oncely("demo", TMPDIR=str(scratch), ONCELY_URL="sqlite:///other.db")
    assert (done.code, done.err) == (0, "")
    assert "The store: a temporary SQLite file\n" in done.out
    assert re.search(r"\npublisher 2: killed after \d+ publishes\n", done.out)
    lines = done.out.splitlines()
    assert sum(bool(re.fullmatch(r"publisher \d: \d+ publishes", line)) for line in lines) == 4
    assert done.out.count(": killed in the middle of its charge ") == 4
    assert sum(bool(re.fullmatch(r"worker \d: \d+ charges", line)) for line in lines) == 4
    numbers = {label: int(count.replace(",", "")) for label, count in NUMBERS.findall(done.out)}
    assert numbers["orders"] == numbers["jobs inserted"] == numbers["completed, once each"] == 200
    assert numbers["publishes, by 5 processes"] == 200 + numbers["deduplicated"]
    assert numbers["workers killed"] == 4
    executions = numbers["executions, by 8 workers"]
    assert executions >= 200 + numbers["jobs recovered"] > 200
    assert (numbers["lost"], numbers["doubled"]) == (0, 0)
    told = " ".join(done.out.split())
    assert "200 orders, 200 jobs, 200 completed: none lost, none doubled." in told
    again = f"{executions} executions for 200 jobs: {executions - 200} were delivered again"
    assert again in told
    assert list(folder.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_on_a_terminal(folder: Path) -> None:
    done = on_terminal("demo", "--url", "sqlite:///demo.db", cwd=folder)
    assert done.code == 0
    assert "1000/1000" in done.out
    assert "1 publisher killed" in done.out
    assert "200/200" in done.out
    assert "4 workers killed" in done.out
    assert "jobs recovered" in done.out
    assert re.search(r"\n  oncely jobs --queue demo-\w{6} --url sqlite:///demo\.db\n", done.out)
    assert done.out.count("\x1b[?25l") == done.out.count("\x1b[?25h")  # the cursor is back


PUBLISHERS_AND_WORKERS = 8


def begun(folder: Path, scratch: Path, processes: int) -> subprocess.Popen[bytes]:
    """A demo that has so many processes under way."""
    scratch.mkdir()
    demo = subprocess.Popen(
        [SCRIPT, "demo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(scratch)),
        cwd=folder,
    )
    deadline = time.monotonic() + 30
    while len(processes_with(str(scratch))) < 1 + processes:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return demo


@pytest.mark.parametrize("wait_for_jobs", [False, True], ids=["at its start", "in the middle"])
def test_ctrl_c_leaves_nothing(folder: Path, tmp_path: Path, wait_for_jobs: bool) -> None:
    scratch = tmp_path / "scratch"
    with begun(folder, scratch, PUBLISHERS_AND_WORKERS) as demo:
        if wait_for_jobs:
            until_something_is_completed(scratch)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(30) == 130
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert demo.stdout.read() + demo.stderr.read() == b""
    assert list(scratch.iterdir()) == []
    assert processes_with(str(scratch)) == []


def test_a_demo_that_is_killed_leaves_no_processes(folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with begun(folder, scratch, PUBLISHERS_AND_WORKERS) as demo:
        until_something_is_completed(scratch)
        demo.kill()
    deadline = time.monotonic() + 30
    while left := processes_with(str(scratch)):
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)


def until_something_is_completed(scratch: Path) -> None:
    [file] = scratch.glob("*/demo.db")
    deadline = time.monotonic() + 30
    with Oncely(f"sqlite:///{file}") as app:
        while not app.jobs(state="completed", limit=1):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def processes_with(setting: str) -> list[int]:
    """The processes that have this in their environment, which children inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            if setting.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_store_that_is_not_there(oncely: Command) -> None:
    done = oncely("demo", "--url", "postgresql://ann@127.0.0.1:1/db", "--json")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith('{"error":"StoreUnavailable"')


def job(job_id: str, order: int, publisher: str = "publisher 1", *ends: str) -> Job:
    now = datetime.now(UTC)
    executions = [
        Execution(epoch, 1, outcome, "w", now, now)
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
        created_at=now,
        due_at=now,
        ended_at=now,
        executions=executions,
    )


GOOD_JOBS = [job("j1", 1), job("j2", 2, "publisher 2", "crashed", "completed")]
GOOD_ANSWERS = [Answer(1, "j1", True), Answer(1, "j1", False)]
GOOD_ANSWERS += [Answer(2, "j2", False), Answer(2, "j2", False)]
GOOD_CHARGES = [Charge(1, "j1.7.f"), Charge(2, "j2.7.e"), Charge(2, "j2.8.f")]


def complaints(
    jobs: list[Job] = GOOD_JOBS,
    answers: list[Answer] = GOOD_ANSWERS,
    charges: list[Charge] = GOOD_CHARGES,
    *,
    publishers_killed: tuple[str, ...] = ("publisher 2",),
    workers_killed: tuple[str, ...] = ("worker 1",),
) -> list[str]:
    record = Record(
        answers=answers,
        publishers=["publisher 1", "publisher 2"],
        publishers_killed=list(publishers_killed),
        charges=charges,
        workers=["worker 1", "worker 2"],
        workers_killed=list(workers_killed),
    )
    counted = tally([1, 2], jobs, record)
    return faults(counted, jobs, record, [1, 2], times=2)


def test_a_good_count() -> None:
    assert complaints() == []


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        ({"jobs": GOOD_JOBS[:1]}, "1 orders have no completed job"),
        ({"jobs": [GOOD_JOBS[0], job("j2", 2, "", "failed")]}, "1 orders have no completed job"),
        ({"jobs": [GOOD_JOBS[0], job("j2", 2, "", "failed")]}, "1 jobs did not complete"),
        ({"jobs": [*GOOD_JOBS, job("j3", 1)]}, "1 jobs or ends of jobs are doubled"),
        (
            {"jobs": [GOOD_JOBS[0], job("j2", 2, "", "completed", "completed")]},
            "1 jobs or ends of jobs are doubled",
        ),
        ({"answers": GOOD_ANSWERS[:3]}, "1 publishes were never answered"),
        ({"answers": [*GOOD_ANSWERS[:3], Answer(2, "j9", False)]}, "1 receipts name another job"),
        ({"jobs": [job("j1", 1), job("j2", 2)]}, "1 jobs are there that no living"),
        ({"answers": [*GOOD_ANSWERS, GOOD_ANSWERS[0]]}, "0 receipts are missing, not 1"),
        ({"charges": [*GOOD_CHARGES, Charge(1, "j1.6.f")]}, "1 charges were made by executions"),
        ({"charges": [*GOOD_CHARGES, GOOD_CHARGES[0]]}, "1 executions charged twice"),
        ({"charges": GOOD_CHARGES[:2]}, "1 results are not those of the execution"),
        ({"publishers_killed": ()}, "no publisher was killed"),
        ({"workers_killed": ()}, "no worker was killed"),
    ],
)
def test_a_bad_count(found: dict[str, Any], complaint: str) -> None:
    assert any(text.startswith(complaint) for text in complaints(**found))


def test_epochs_that_do_not_rise() -> None:
    done = job("j2", 2, "publisher 2", "crashed", "completed")
    fallen = msgspec.structs.replace(done, executions=[done.executions[1], *done.executions[:1]])
    jobs = [GOOD_JOBS[0], msgspec.structs.replace(fallen, result="j2.7.e")]
    assert "the epochs of 1 jobs do not rise" in complaints(jobs)
