"""What all drivers share: one command line, and one way to take each measure.

    pgqueuer_driver.py drain --url postgresql://… --jobs 20000

prints one line of JSON. A driver says how its system is asked to do things, nothing else. Only the
standard library: each driver runs in the environment of its peer.

- `enqueue`, `bulk`, `keyed`, `bulk_keyed`: the jobs, divided by the time of the calls. Afterwards
  the store is asked how many jobs it has; another number is an error.
- `drain` and `drain2`: the jobs, divided by the time from the first handler's start until the store
  has all of them settled, over one or two processes. Every job must have run.
- `latency`: from before the enqueue call to the handler's start, one job at a time on an idle
  queue, with a pause in between.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tally import Tally

TALLY = "ONCELY_BENCH_TALLY"
PUBLISHING = ("enqueue", "bulk", "keyed", "bulk_keyed")
BULK = 1_000
SAMPLES_SECONDS = 8.0
DRAIN_SECONDS = 120.0
SETTLE_SECONDS = 20.0
_tally: Tally | None = None


def hit(n: int) -> None:
    """What every handler does: nothing but tell that it ran."""
    global _tally
    if _tally is None:
        _tally = Tally(os.environ[TALLY])
    _tally.hit(n)


class Driver:
    """How one system is asked to do things."""

    measures = ("enqueue", "bulk", "keyed", "drain", "drain2", "latency")

    def __init__(self, url: str) -> None:
        self.url = url

    def prepare(self) -> None:
        """Make what the empty store needs."""

    def enqueue(self, first: int, last: int) -> None:
        """The jobs `first` to `last` - 1, one call and one commit each."""
        raise NotImplementedError

    def bulk(self, first: int, last: int) -> None:
        """These jobs in one call. Where there is no such call, one by one."""
        self.enqueue(first, last)

    def keyed(self, first: int, last: int) -> None:
        """One by one, each with a key against duplicates."""
        raise NotImplementedError

    def unsettled(self) -> int:
        """How many jobs the store holds that have not ended."""
        raise NotImplementedError

    def work(self, *, processes: int, mode: str) -> None:
        """Be one of `processes` workers, until ended from outside. The mode is `drain`, `latency`,
        or the measure that asks for it."""
        raise NotImplementedError


class WrongCountError(Exception):
    """The system did not do what it was asked to: there is no figure."""


def main(make: type[Driver]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("measure", choices=[*make.measures, "work"])
    parser.add_argument("--url", required=True)
    parser.add_argument("--jobs", type=int, default=1_000)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--mode", default="drain")
    args = parser.parse_args()
    driver = make(args.url)
    if args.measure == "work":
        driver.work(processes=args.processes, mode=args.mode)
        return
    # Told to stop it still ends its workers: they are not in its group.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to stop"))
    driver.prepare()
    try:
        if args.measure in PUBLISHING:
            found = publish(driver, args.measure, args.jobs)
        elif args.measure == "latency":
            found = latency(driver, args.jobs)
        elif args.measure in ("drain", "drain2"):
            found = drain(driver, args.jobs, processes=2 if args.measure == "drain2" else 1)
        else:
            found = getattr(driver, args.measure)(args.jobs)
    except WrongCountError as error:
        # In one line: the last line of what a driver says is the reason that is shown.
        sys.exit(" ".join(str(error).split()))
    print(json.dumps({"measure": args.measure, "jobs": args.jobs, **found}), flush=True)
    # Some systems leave threads behind that would keep us for seconds.
    os._exit(0)


def publish(driver: Driver, measure: str, jobs: int) -> dict[str, float]:
    call = getattr(driver, measure)
    size = BULK if measure.startswith("bulk") else jobs
    started = time.perf_counter()
    for first in range(0, jobs, size):
        call(first, min(first + size, jobs))
    seconds = time.perf_counter() - started
    stored = driver.unsettled()
    if stored != jobs:
        raise WrongCountError(f"{stored} of {jobs} jobs are in the store after {measure}")
    return {"rate": jobs / seconds}


def fill(driver: Driver, jobs: int) -> None:
    for first in range(0, jobs, BULK):
        driver.bulk(first, min(first + BULK, jobs))


def drain(driver: Driver, jobs: int, *, processes: int) -> dict[str, float]:
    fill(driver, jobs)
    with Crew(driver, jobs, processes=processes) as crew:
        return crew.drained(jobs)


def latency(driver: Driver, samples: int) -> dict[str, float]:
    took: list[float] = []
    with Crew(driver, samples + 1, mode="latency") as crew:
        # The first one waits for the worker to be there; it does not count.
        driver.enqueue(0, 1)
        crew.wait_for(1)
        time.sleep(1.0)
        until = time.monotonic() + SAMPLES_SECONDS
        for n in range(1, samples + 1):
            sent = time.monotonic_ns()
            driver.enqueue(n, n + 1)
            while not crew.tally.started_ns(n):
                crew.look(sent / 1e9 + 30)
                time.sleep(0.0005)
            took.append((crew.tally.started_ns(n) - sent) / 1e6)
            if time.monotonic() > until:
                break
            time.sleep(random.uniform(0.015, 0.03))
    took.sort()
    return {
        "p50_ms": took[len(took) // 2],
        "p99_ms": took[min(len(took) - 1, int(len(took) * 0.99))],
        "samples": len(took),
    }


class Crew:
    """Worker processes, and the tally that they keep."""

    def __init__(
        self, driver: Driver, jobs: int, *, processes: int = 1, mode: str = "drain"
    ) -> None:
        self._driver = driver
        self._folder = tempfile.TemporaryDirectory()
        path = str(Path(self._folder.name, "tally"))
        self.tally = Tally(path, jobs)
        command = [sys.executable, sys.argv[0], "work", "--url", driver.url]
        command += ["--processes", str(processes), "--mode", mode]
        # It stays open for as long as the workers write into it.
        self._log = Path(self._folder.name, "log").open("w+")  # noqa: SIM115
        self.workers = [
            subprocess.Popen(
                command,
                env={**os.environ, TALLY: path},
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
            )
            for _ in range(processes)
        ]

    def __enter__(self) -> Crew:
        return self

    def __exit__(self, *_: object) -> None:
        for sign, seconds in ((signal.SIGTERM, 3.0), (signal.SIGKILL, 3.0)):
            for worker in self.workers:
                try:
                    os.killpg(worker.pid, sign)
                except ProcessLookupError:
                    pass
            for worker in self.workers:
                try:
                    worker.wait(seconds)
                except subprocess.TimeoutExpired:
                    pass
        self._log.close()
        self._folder.cleanup()

    def look(self, deadline: float) -> None:
        over = time.monotonic() > deadline
        if over or any(worker.poll() is not None for worker in self.workers):
            self._log.seek(0)
            ran, _ = self.tally.counts()
            why = "time is over" if over else "a worker ended"
            raise WrongCountError(f"{why} after {ran} jobs: {self._log.read()[-1500:]}")

    def wait_for(self, jobs: int) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while True:
            ran, doubled = self.tally.counts()
            if ran - doubled >= jobs:
                return
            self.look(deadline)
            time.sleep(0.01)

    def drained(self, jobs: int) -> dict[str, float]:
        self.wait_for(jobs)
        settled_ns = self._wait_until_settled()
        times = self.tally.times_ns()
        if len(times) != jobs:
            raise WrongCountError(f"{len(times)} of {jobs} jobs ran")
        return {
            "rate": jobs / ((settled_ns - min(times)) / 1e9),
            "handlers_rate": jobs / ((max(times) - min(times)) / 1e9),
            "doubled": self.tally.counts()[1],
        }

    def _wait_until_settled(self) -> int:
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            asked_ns = time.monotonic_ns()
            left = self._driver.unsettled()
            if not left:
                return asked_ns
            if time.monotonic() > deadline:
                raise WrongCountError(f"{left} jobs ran and were not settled")
            time.sleep(0.01)
