"""The benchmark's harness: its plan, its ratios, its page, and what it says of who is missing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.environments import DRIVERS, CannotBeHad, command
from bench.peers.goals import NOT_MEASURED, verdicts
from bench.peers.plan import plan
from bench.peers.records import Kept, Record, Records, Step
from bench.peers.report import Facts, write
from bench.peers.roster import (
    BESIDE_OURS,
    BY_NAME,
    OURS,
    OURS_SQLITE,
    PEER_MEASURES,
    PEERS,
    System,
)

FACTS = Facts("2026-01-01", "2 cores", {"server_version": "18.0"}, 1.0, 3, quick=False)


def figure(at: int, round: int, system: str, rate: float, measure: str = "drain") -> Record:
    return Record(at, round, measure, system, 100, {"rate": rate})


def test_a_ratio_is_taken_between_neighbours() -> None:
    # The machine is half as fast in the second round, and for ours also late in the first.
    records = Records(
        [
            figure(0, 1, OURS, 800),
            figure(1, 1, "graphile-worker", 400),
            figure(2, 1, "rq", 10),
            figure(3, 1, OURS, 100),
            figure(4, 2, OURS, 400),
            figure(5, 2, "graphile-worker", 200),
        ]
    )
    assert records.ratio((OURS, "drain"), ("graphile-worker", "drain")) == 2
    assert records.ratio((OURS, "drain"), ("rq", "drain")) == 10
    assert records.ratio((OURS, "drain"), ("celery", "drain")) is None


def test_the_spread_leaves_failures_out() -> None:
    failed = Record(2, 3, "drain", OURS, 100, error="nothing came")
    records = Records([figure(0, 1, OURS, 3), figure(1, 2, OURS, 5), failed])
    found = records.spread(OURS, "drain")
    assert found is not None
    assert (found.median, found.least, found.most) == (4, 3, 5)


def test_every_round_measures_every_peer_with_ours_beside_it() -> None:
    steps = plan(2)
    for peer in PEERS:
        for measure in peer.jobs:
            assert steps.count(Step(2, measure, peer.name)) == 1
    for name in BESIDE_OURS:
        at = steps.index(Step(1, "drain", name))
        assert steps[at + 1].system == (OURS_SQLITE if "sqlite" in name else OURS)
        assert steps[at + 1].measure == "drain"


def test_a_peer_alone_comes_with_ours_and_nobody_else() -> None:
    steps = plan(1, only=["celery"])
    assert {step.system for step in steps} == {"celery", OURS}
    assert {s.measure for s in steps} == set(BY_NAME["celery"].jobs) <= set(PEER_MEASURES)


def test_goals_are_reached_missed_or_not_measured() -> None:
    records = Records(
        [
            figure(0, 1, OURS, 1_000),
            figure(1, 1, "graphile-worker", 700),
            figure(2, 1, "pgqueuer", 500),
        ]
    )
    said = {(v.goal, v.wanted): v for v in verdicts(records)}
    assert said["drain, 1 process", "≥ 1.3 x graphile-worker, tuned"].said == "reached"
    pgqueuer = said["drain, 1 process", "≥ 5 x PgQueuer"]
    assert (pgqueuer.measured, pgqueuer.said) == ("2.00 x", "**missed**")
    assert said["drain, 2 processes", "≥ 1.2 x graphile-worker, tuned"].said == NOT_MEASURED


def test_latency_must_be_below_every_postgres_peer() -> None:
    def latency(at: int, system: str, p50_ms: float) -> Record:
        return Record(at, 1, "latency", system, 1, {"p50_ms": p50_ms, "p99_ms": 9})

    few = [latency(0, OURS, 3), latency(1, "pgqueuer", 4), latency(2, "bullmq", 1)]
    p50 = next(v for v in verdicts(Records(few)) if v.goal.endswith("p50"))
    assert p50.reached
    more = [*few, latency(3, "chancy", 2)]
    p50 = next(v for v in verdicts(Records(more)) if v.goal.endswith("p50"))
    assert (p50.reached, p50.measured) == (False, "3.0 ms, 1.50 x Chancy")


def test_the_page_names_who_is_missing_and_what_failed() -> None:
    failed = Record(2, 1, "bulk", "rq", 10, error="9 of 10 jobs are in the store")
    records = Records([figure(0, 1, OURS, 2_000), figure(1, 1, "rq", 100), failed])
    page = write(records, {"oban-py": "it needs Python 3.12"}, FACTS)
    lines = page.splitlines()
    assert "- oban-py cannot be had: it needs Python 3.12." in lines
    assert any(line.startswith("| oban-py | cannot be had |") for line in lines)
    assert "- RQ, bulk (1,000), failed: 9 of 10 jobs are in the store" in lines
    (row,) = (line for line in lines if line.startswith("| RQ | -") and "x" in line)
    assert "| 20.0 x |" in row


def test_a_run_that_was_cut_short_goes_on_and_a_finished_one_begins_again(tmp_path: Path) -> None:
    steps = [Step(1, "drain", OURS), Step(1, "drain", "rq"), Step(1, "drain", OURS)]
    path = tmp_path / "results.json"
    first = Kept(path, steps, fresh=False)
    first.records.add(figure(0, 1, OURS, 5))
    first.records.add(Record(1, 1, "drain", "rq", 5, error="the machine was busy"))
    first.save()
    second = Kept(path, steps, fresh=False)
    assert second.records.has(0)
    assert not second.records.has(1), "what failed is tried again"
    other = [Step(1, "bulk", OURS), *steps]
    assert not Kept(path, other, fresh=False).records.has(0), "another plan"
    assert not Kept(path, steps, fresh=True).records.has(0)
    second.records.add(figure(1, 1, "rq", 5))
    second.records.add(figure(2, 1, OURS, 5))
    second.save()
    assert not Kept(path, steps, fresh=False).records.has(0), "it was finished"


def test_a_peer_that_needs_a_python_that_is_not_there_is_told_from_others() -> None:
    future = System("future", "Future", "driver.py", "postgres", "python", "", {}, python=(3, 90))
    with pytest.raises(CannotBeHad, match=r"needs Python 3\.90 or newer"):
        command(future)


def test_ours_needs_no_environment() -> None:
    start, env = command(BY_NAME[OURS])
    assert start[0] == sys.executable
    assert "ONCELY_URL" not in env


# A system whose store is a folder: a file for each job that has not ended.
FOLDER_DRIVER = """
import sys, threading
from pathlib import Path
from driving import Driver, hit, main

class FolderDriver(Driver):
    def enqueue(self, first, last):
        for n in range(first, last - {lost}):
            Path(self.url, str(n)).touch()

    def unsettled(self):
        return len(list(Path(self.url).iterdir()))

    def work(self, *, processes, mode):
        for path in sorted(Path(self.url).iterdir())[{skipped}:]:
            hit(int(path.name))
            for _ in range({repeats}):
                hit(int(path.name))
            path.unlink()
        if not {skipped}:
            threading.Event().wait()

main(FolderDriver)
"""


def drive(tmp_path: Path, measure: str, **faults: int) -> subprocess.CompletedProcess[str]:
    driver, store = tmp_path / "folder_driver.py", tmp_path / "store"
    store.mkdir()
    driver.write_text(FOLDER_DRIVER.format(**{"lost": 0, "skipped": 0, "repeats": 0} | faults))
    return subprocess.run(
        [sys.executable, str(driver), measure, "--url", str(store), "--jobs", "20"],
        env={"PYTHONPATH": str(DRIVERS)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("measure", ["enqueue", "drain"])
def test_a_driver_prints_its_figure(tmp_path: Path, measure: str) -> None:
    found = json.loads(drive(tmp_path, measure).stdout)
    assert (found["measure"], found["jobs"]) == (measure, 20)
    assert found["rate"] > 0


def test_there_is_no_figure_if_a_job_was_not_stored(tmp_path: Path) -> None:
    done = drive(tmp_path, "enqueue", lost=1)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "19 of 20 jobs are in the store after enqueue\n"


def test_there_is_no_figure_if_a_job_did_not_run(tmp_path: Path) -> None:
    done = drive(tmp_path, "drain", skipped=1)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("a worker ended after 19 jobs")


def test_jobs_that_run_twice_are_counted_apart(tmp_path: Path) -> None:
    assert json.loads(drive(tmp_path, "drain", repeats=1).stdout)["doubled"] == 20
