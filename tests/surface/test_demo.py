import re
import signal
import subprocess
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from oncely import Job, Oncely
from oncely.surface.cli.demo.crew import Record
from oncely.surface.cli.demo.publisher import Answer
from oncely.surface.cli.demo.tally import faults, tally
from tests.surface.command import SCRIPT, Command, environment, on_terminal

NUMBERS = re.compile(r"│ ([a-z ,5]+?) +│ +([\d,]+) │")


def test_on_a_store(oncely: Command, url: str) -> None:
    for run in (1, 2) if url.startswith("postgresql") else (1,):
        counts = oncely("demo", "--url", url, "--json").json()
        assert counts["orders"] == counts["inserted"] == 200
        assert counts["publishers"] == 5
        assert counts["killed"] == 1
        assert (counts["lost"], counts["doubled"]) == (0, 0)
        assert counts["publishes"] == 1000 + counts["unheard"]
        assert counts["publishes"] == counts["inserted"] + counts["deduplicated"]
        with Oncely(url) as app:
            jobs = app.jobs(queue="demo", limit=1000)
        assert len(jobs) == 200 * run
        assert len({job.idempotency_key for job in jobs}) == len(jobs)


def test_as_lines(oncely: Command, folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = oncely("demo", TMPDIR=str(scratch), ONCELY_URL="sqlite:///other.db")
    assert (done.code, done.err) == (0, "")
    assert "The store: a temporary SQLite file\n" in done.out
    assert re.search(r"\npublisher 2: killed after \d+ of 250 publishes\n", done.out)
    assert done.out.count(" publishes, all answered\n") == 4
    numbers = {label: int(count.replace(",", "")) for label, count in NUMBERS.findall(done.out)}
    assert numbers["orders"] == numbers["jobs inserted"] == 200
    assert numbers["publishes, by 5 processes"] == 200 + numbers["deduplicated"]
    assert (numbers["lost"], numbers["doubled"]) == (0, 0)
    assert "200 orders, 200 jobs: none lost, none doubled." in done.out
    assert list(folder.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_on_a_terminal(folder: Path) -> None:
    done = on_terminal("demo", "--url", "sqlite:///demo.db", cwd=folder)
    assert done.code == 0
    assert "orders with a job" in done.out
    assert "killed" in done.out
    assert "200/200" in done.out
    assert "\n  oncely jobs --queue demo --url sqlite:///demo.db\n" in done.out
    assert done.out.count("\x1b[?25l") == done.out.count("\x1b[?25h")  # the cursor is back


def test_ctrl_c_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    process = subprocess.Popen(
        [SCRIPT, "demo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(scratch)),
        cwd=folder,
    )
    with process:
        deadline = time.monotonic() + 30
        while len(processes_with(str(scratch))) < 5 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 130
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read() + process.stderr.read() == b""
    assert list(scratch.iterdir()) == []
    assert processes_with(str(scratch)) == []


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


def job(job_id: str, order: str, publisher: str = "publisher 1") -> Job:
    now = datetime.now(UTC)
    return Job(
        *(job_id, "demo.charge", "demo", "pending", {"order_id": order}, None, None, 0, 0, None),
        *(None, f"order:{order}:charge", None, None, [publisher], now, now, None),
    )


GOOD_JOBS = [job("j1", "a"), job("j2", "b", "publisher 2")]
GOOD_ANSWERS = [Answer("a", "j1", True), Answer("a", "j1", False)]
GOOD_ANSWERS += [Answer("b", "j2", False), Answer("b", "j2", False)]


def complaints(jobs: list[Job], answers: list[Answer], *, killed: bool = True) -> list[str]:
    record = Record(answers, ["publisher 1", "publisher 2"], ["publisher 2"] if killed else [])
    counted = tally(["a", "b"], jobs, record)
    return faults(counted, jobs, record, ["a", "b"], times=2)


def test_a_good_count() -> None:
    assert complaints(GOOD_JOBS, GOOD_ANSWERS) == []


@pytest.mark.parametrize(
    ("jobs", "answers", "complaint"),
    [
        (GOOD_JOBS[:1], GOOD_ANSWERS, "1 orders have no job"),
        ([*GOOD_JOBS, job("j3", "a")], GOOD_ANSWERS, "1 jobs are doubled"),
        (GOOD_JOBS, GOOD_ANSWERS[:3], "1 publishes were never answered"),
        (GOOD_JOBS, [*GOOD_ANSWERS[:3], Answer("b", "j9", False)], "1 receipts name another job"),
        ([job("j1", "a"), job("j2", "b")], GOOD_ANSWERS, "1 jobs are there that no living"),
        (GOOD_JOBS, [*GOOD_ANSWERS, GOOD_ANSWERS[0]], "0 receipts are missing, not 1"),
    ],
)
def test_a_bad_count(jobs: list[Job], answers: list[Answer], complaint: str) -> None:
    assert any(text.startswith(complaint) for text in complaints(jobs, answers))


def test_a_demo_without_a_death_is_none() -> None:
    assert complaints(GOOD_JOBS, GOOD_ANSWERS, killed=False)[-1] == "no publisher was killed"
