"""The suite under hardships, again and again: `make flaky N=10`.

Each run has one hardship: a single core, busy neighbours, signals that are ignored, a machine that
has just booted, another user, a strange environment, no shared memory, a second run beside it. A
test that passes only where nothing else happens is found here. Every run's output stays in .flaky.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import works

ROOT = Path(__file__).parents[1]
LOGS = ROOT / ".flaky"
SUITE = (sys.executable, "-m", "pytest", "-n", "4", "--dist", "worksteal", "-q")
BUSY_LOOP = ("sh", "-c", "while :; do :; done")


@dataclass(frozen=True)
class Hardship:
    """`prefix` runs the suite's command."""

    name: str
    prefix: tuple[str, ...] = ()
    environment: tuple[tuple[str, str | None], ...] = ()
    busy_loops: int = 0
    at_once: int = 1


def hardships() -> list[Hardship]:
    return [
        Hardship("none"),
        Hardship("one core", ("taskset", "-c", "0")),
        Hardship("two busy loops beside it", busy_loops=2),
        Hardship("SIGINT and SIGHUP ignored", _shell('trap "" INT QUIT HUP')),
        Hardship("the machine has just booted", _just_booted()),
        Hardship(
            "another user, who is not root",
            ("unshare", "--user", "--map-user=65534", "--map-group=65534"),
        ),
        Hardship(
            "no HOME, umask 077, other zone and locale",
            _shell("umask 077"),
            environment=(
                ("HOME", None),
                ("TZ", "Asia/Kathmandu"),
                ("LC_ALL", "C"),
                ("PYTHONHASHSEED", "7"),
            ),
        ),
        Hardship(
            "one megabyte of /dev/shm",
            ("unshare", "--mount", *_shell("mount -t tmpfs -o size=1m tmpfs /dev/shm")),
        ),
        Hardship("two runs in one clone", at_once=2),
    ]


def _shell(first: str) -> tuple[str, ...]:
    return ("sh", "-c", f'{first} && exec "$@"', "sh")


def _just_booted() -> tuple[str, ...]:
    """Two seconds after the boot, by the monotonic clock."""
    seconds = int(time.clock_gettime(time.CLOCK_MONOTONIC)) - 2
    return ("unshare", "--time", "--fork", f"--monotonic=-{seconds}")


@dataclass(frozen=True)
class Result:
    number: int
    hardship: str
    passed: int
    skipped: int
    failed: tuple[str, ...]
    seconds: float
    problem: str = ""

    @property
    def is_green(self) -> bool:
        return not (self.failed or self.problem)


def run(number: int, hardship: Hardship, arguments: Sequence[str]) -> Result:
    if not works(hardship.prefix):
        told = f"cannot be had here: {' '.join(hardship.prefix)} fails"
        return Result(number, hardship.name, 0, 0, (), 0.0, told)
    with ExitStack() as stack:
        for _ in range(hardship.busy_loops):
            stack.enter_context(_process(BUSY_LOOP))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="oncely-flaky-")))
        folder.chmod(0o777)
        begun = time.monotonic()
        codes = _suites(number, hardship, folder, arguments)
        seconds = time.monotonic() - begun
        cases = [case for file in folder.glob("*.xml") for case in ET.parse(file).iter("testcase")]
    failed = tuple(_name(case) for case in cases if _has(case, "failure", "error"))
    skipped = sum(_has(case, "skipped") for case in cases)
    bad = [code for code in codes if code not in (0, 1)]
    problem = f"pytest ended with {bad[0]}" if bad else "" if cases else "no test ran"
    passed = len(cases) - len(failed) - skipped
    return Result(number, hardship.name, passed, skipped, failed, seconds, problem)


def _suites(
    number: int, hardship: Hardship, folder: Path, arguments: Sequence[str]
) -> list[int | None]:
    environment = {**os.environ, **{k: v for k, v in hardship.environment if v is not None}}
    for name, value in hardship.environment:
        if value is None:
            environment.pop(name, None)
    with ExitStack() as stack:
        suites = []
        for n in range(hardship.at_once):
            log = stack.enter_context((LOGS / f"run-{number}-{n}.log").open("wb"))
            report = f"--junitxml={folder / f'{n}.xml'}"
            command = (*hardship.prefix, *SUITE, report, *arguments)
            suites.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                )
            )
        return [suite.wait() for suite in suites]


@contextmanager
def _process(command: Sequence[str]) -> Iterator[None]:
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def _has(case: ET.Element, *tags: str) -> bool:
    return any(case.find(tag) is not None for tag in tags)


def _name(case: ET.Element) -> str:
    return f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}"


def table(results: Sequence[Result]) -> str:
    lines = ["run  hardship                                    passed  skipped  failed  seconds"]
    for one in results:
        lines.append(
            f"{one.number:3}  {one.hardship:42} {one.passed:7} {one.skipped:8} "
            f"{len(one.failed):7} {one.seconds:8.0f}" + (f"  {one.problem}" if one.problem else "")
        )
        lines += [f"       {name}" for name in one.failed]
    green = sum(one.is_green for one in results)
    return "\n".join([*lines, f"{green} of {len(results)} green"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.flaky", description=__doc__)
    parser.add_argument("runs", type=int, help="number of runs; the hardships take turns")
    parser.add_argument("--only", help="only the hardships with this in their name")
    asked, arguments = parser.parse_known_args()
    names = [one.name for one in hardships() if not asked.only or asked.only in one.name]
    if not names or asked.runs < 1:
        parser.error(f"one run at least, of: {', '.join(one.name for one in hardships())}")
    shutil.rmtree(LOGS, ignore_errors=True)
    LOGS.mkdir()
    results: list[Result] = []
    for number in range(1, asked.runs + 1):
        name = names[(number - 1) % len(names)]
        hardship = next(one for one in hardships() if one.name == name)
        print(f"run {number} of {asked.runs}: {hardship.name}", flush=True)
        results.append(run(number, hardship, arguments))
        print(table(results[-1:]).split("\n", 1)[1], flush=True)
    print(table(results))
    return 0 if all(one.is_green for one in results) else 1


if __name__ == "__main__":
    sys.exit(main())
