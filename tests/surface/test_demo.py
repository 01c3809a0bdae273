import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from oncely import Job, Oncely
from oncely.model.job import Resolution
from tests.crash.checker import check
from tests.crash.load import TORTURE
from tests.surface.command import SCRIPT, Command, environment, on_terminal
from tests.surface.test_cli_page import DEMOS, without_chance
from tests.waiting import PATIENCE_SECONDS, wait_until

NUMBERS = re.compile(r"│ ([a-z ,\d]+?) +│ +([\d,]+) │")


def test_these_are_the_demos_of_the_page() -> None:
    assert set(DEMOS) == {"oncely demo", "oncely demo --json"}


def test_on_postgres_as_json(oncely: Command, folder: Path, postgres_url: str) -> None:
    url = postgres_url
    for run in (1, 2) if TORTURE > 1 else (1,):
        done = oncely("demo", "--url", url, "--json")
        told = without_chance(DEMOS["oncely demo --json"], folder)
        assert without_chance(done.out, folder) == told
        counts = done.json()
        assert counts["orders"] == counts["inserted"] == counts["completed"] == 200
        assert (counts["publishers"], counts["publishers_killed"]) == (5, 1)
        assert (counts["workers"], counts["workers_killed"]) == (11, 7)
        after = [counts[f"killed_after_{what}"] for what in ("intent", "effect", "outcome")]
        assert after == [3, 3, 1]
        assert (counts["lost"], counts["doubled"]) == (0, 0)
        assert counts["charges"] == counts["mails"] == 200
        assert 200 < counts["charges_asked"] <= counts["executions"]
        assert counts["questions"] >= 2
        assert counts["publishes"] == 1000 + counts["unheard"]
        assert counts["publishes"] == counts["inserted"] + counts["deduplicated"]
        assert counts["recovered"] > 0
        assert counts["executions"] >= 200 + counts["recovered"]
        assert 2 <= counts["resolved"] <= counts["held"]
        assert check_store(url, run) == counts["resolved"]


def check_store(url: str, runs: int = 1) -> int:
    """What so many runs leave there; how many doubts were resolved in the last one."""
    check(url)
    with Oncely(url) as app:
        jobs = app.jobs(kind="demo.charge", limit=1000)
    assert [job.state for job in jobs] == ["completed"] * 200 * runs
    assert len({(job.queue, job.idempotency_key) for job in jobs}) == len(jobs)
    assert len({job.queue for job in jobs}) == runs
    answers = resolutions([job for job in jobs if job.queue == jobs[0].queue])
    assert {(answer.by, answer.note) for answer in answers} == {("demo", "looked in the mailbox")}
    assert {answer.happened for answer in answers} == {True, False}
    return len(answers)


def resolutions(jobs: list[Job]) -> list[Resolution]:
    return [answer for job in jobs for effect in job.effects for answer in effect.resolutions]


def test_as_lines(oncely: Command, folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = oncely("demo", TMPDIR=str(scratch), ONCELY_URL="sqlite:///other.db")
    assert (done.code, done.err) == (0, "")
    assert without_chance(done.out, folder) == without_chance(DEMOS["oncely demo"], folder)
    assert "The store: a temporary SQLite file\n" in done.out
    assert re.search(r"\npublisher 2: killed after \d+ publishes\n", done.out)
    lines = done.out.splitlines()
    assert sum(bool(re.fullmatch(r"publisher \d: \d+ publishes", line)) for line in lines) == 4
    killed = r"worker \d+: killed between (intent and effect|effect and outcome) of a charge"
    assert sum(bool(re.fullmatch(killed, line)) for line in lines) == 2
    assert done.out.count(" of a receipt\n") == 5
    assert done.out.count("found not sent, so it will be\n") >= 1
    assert done.out.count("found sent, so it is not sent again\n") >= 1
    assert sum(bool(re.fullmatch(r"worker \d+: \d+ executions", line)) for line in lines) == 4
    numbers = {label: int(count.replace(",", "")) for label, count in NUMBERS.findall(done.out)}
    assert numbers["orders"] == numbers["jobs inserted"] == numbers["completed, once each"] == 200
    assert numbers["publishes, by 5 processes"] == 200 + numbers["deduplicated"]
    assert numbers["workers killed"] == 7
    places = ("intent and effect", "effect and outcome", "outcome and settle")
    assert [numbers[f"  between {place}"] for place in places] == [3, 3, 1]
    executions = numbers["executions, by 11 workers"]
    assert executions >= 200 + numbers["jobs recovered"] > 200
    assert done.out.count("found ") == numbers["resolved"] <= numbers["held in doubt"]
    assert numbers["charges made"] == numbers["mails sent"] == 200 < numbers["charges asked for"]
    assert (numbers["lost"], numbers["doubled"]) == (0, 0)
    told = " ".join(done.out.split())
    assert "Enqueue: 200 orders, 200 jobs." in told
    assert f"{executions} executions for 200 jobs. At least once: {executions - 200} were" in told
    assert f"200 charges, asked for {numbers['charges asked for']} times. Exactly once" in told
    assert f"The service was asked {numbers['mails asked about']} times" in told
    assert f"the doubt is shown. {numbers['held in doubt']} jobs waited" in told
    assert list(folder.iterdir()) == []
    assert list(scratch.iterdir()) == []


def test_on_sqlite_on_a_terminal(folder: Path) -> None:
    done = on_terminal("demo", "--url", "sqlite:///demo.db", cwd=folder)
    assert done.code == 0
    assert "1000/1000" in done.out
    assert "1 publisher killed" in done.out
    assert "200/200" in done.out
    assert "7 workers killed" in done.out
    assert "jobs recovered" in done.out
    assert re.search(r"[2-9] resolved", done.out)
    assert re.search(r"\n  oncely jobs --queue demo-\w{6} --url sqlite:///demo\.db\n", done.out)
    assert done.out.count("\x1b[?25l") == done.out.count("\x1b[?25h")  # the cursor is back
    assert check_store(f"sqlite:///{folder / 'demo.db'}") >= 2


WORKERS = 4
"""They stay to the end; one that is killed is replaced."""


def begun(folder: Path, scratch: Path) -> subprocess.Popen[bytes]:
    """A demo whose processes are all started."""
    scratch.mkdir()
    demo = subprocess.Popen(
        [SCRIPT, "demo", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(TMPDIR=str(scratch)),
        cwd=folder,
    )
    wait_until(lambda: len(processes_with(str(scratch), b"demo.worker")) >= WORKERS)
    return demo


@pytest.mark.parametrize("wait_for_jobs", [False, True], ids=["at its start", "in the middle"])
def test_ctrl_c_leaves_nothing(folder: Path, tmp_path: Path, wait_for_jobs: bool) -> None:
    scratch = tmp_path / "scratch"
    with begun(folder, scratch) as demo:
        if wait_for_jobs:
            until_something_is_completed(scratch)
        demo.send_signal(signal.SIGINT)
        assert demo.wait(PATIENCE_SECONDS) == 130
        assert demo.stdout is not None
        assert demo.stderr is not None
        assert demo.stdout.read() + demo.stderr.read() == b""
    assert list(scratch.iterdir()) == []
    assert processes_with(str(scratch)) == []


def test_a_demo_that_is_killed_leaves_no_processes(folder: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    with begun(folder, scratch) as demo:
        until_something_is_completed(scratch)
        demo.kill()
    wait_until(lambda: not processes_with(str(scratch)), "they are all gone")


def until_something_is_completed(scratch: Path) -> None:
    [file] = scratch.glob("*/demo.db")
    with Oncely(f"sqlite:///{file}") as app:
        wait_until(lambda: app.jobs(state="completed", limit=1))


def processes_with(setting: str, program: bytes = b"") -> list[int]:
    """The processes of a program that have this in their environment, which children inherit."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):
            named = program in path.with_name("cmdline").read_bytes()
            if named and setting.encode() in path.read_bytes():
                found.append(int(path.parent.name))
    return found


def test_a_store_that_is_not_there(oncely: Command) -> None:
    done = oncely("demo", "--url", "postgresql://ann@127.0.0.1:1/db", "--json")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith('{"error":"StoreUnavailable"')
