"""The peers beside us, in one run.

    make bench                                  the lot: all of them, three rounds
    python -m bench.peers --quick --only rq     try one out: little to do, one round

Writes `bench/RESULTS.md`; a quick or partial run writes `.bench/RESULTS.md` instead. What has come
in is kept in `.bench/results.json`: a run that was cut short goes on from there.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from bench.peers.environments import BENCH, ROOT, CannotBeHad, command
from bench.peers.plan import plan
from bench.peers.records import Kept, Record, Step
from bench.peers.report import Facts, write
from bench.peers.roster import BY_NAME, LONG, PEERS, System
from bench.peers.stores import Stores

STEP_SECONDS: Final = 240.0
LONG_SECONDS: Final = 1_800.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--quick", action="store_true", help="little to do, one round")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", choices=sorted(BY_NAME))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--long", action="store_true", help="also what takes 10 minutes or more")
    parser.add_argument("--fresh", action="store_true", help="do not go on with a cut-short run")
    args = parser.parse_args()
    rounds = 1 if args.quick else args.rounds
    whole = not (args.quick or args.only)
    steps = plan(rounds, only=args.only, long=args.long)
    name = "results.json" if whole else "results-part.json"
    kept = Kept(BENCH / name, steps, fresh=args.fresh or not whole)
    with Stores() as stores:
        runner = _Runner(stores, kept, quick=args.quick)
        for system in PEERS:
            if not args.only or system.name in args.only:
                runner.make_ready(system)
        started = time.monotonic()
        for at, step in enumerate(steps):
            runner.take(at, step, f"{at + 1}/{len(steps)}")
        minutes = (time.monotonic() - started) / 60
        facts = Facts.of_this_machine(stores.versions(), minutes, rounds, quick=args.quick)
    path = (ROOT / "bench" if whole else BENCH) / "RESULTS.md"
    path.write_text(write(kept.records, kept.absent, facts))
    print(f"\n{minutes:.0f} minutes; written: {path.relative_to(ROOT)}")
    return 0


class _Runner:
    def __init__(self, stores: Stores, kept: Kept, *, quick: bool) -> None:
        self._stores = stores
        self._kept = kept
        self._quick = quick

    def make_ready(self, system: System) -> None:
        """Before the first figure: an install beside a measure would spoil it."""
        try:
            command(system)
            if system.store == "redis":
                self._stores.fresh("redis")
        except CannotBeHad as error:
            self._kept.absent[system.name] = str(error)
            print(f"{system.label} cannot be had: {error}", flush=True)

    def take(self, at: int, step: Step, place: str) -> None:
        if self._kept.records.has(at):
            return
        system = BY_NAME[step.system]
        reason = self._kept.absent.get(step.system)
        if reason is not None:
            record = Record(at, step.round, step.measure, step.system, 0, error=reason)
        else:
            record = self._measure(at, step, system)
            said = record.error or _shown(record.found)
            name = f"{step.measure} {system.name}"
            print(f"[{place:>9}] round {step.round}  {name:<32} {said}", flush=True)
        self._kept.records.add(record)
        self._kept.save()

    def _measure(self, at: int, step: Step, system: System) -> Record:
        long = step.measure in LONG
        jobs = LONG[step.measure] if long else system.jobs_for(step.measure, quick=self._quick)
        start, env = command(system)
        url = self._stores.fresh(system.store)
        arguments = [*start, step.measure, "--url", url, "--jobs", str(jobs)]
        try:
            found = _driven(arguments, env, LONG_SECONDS if long else STEP_SECONDS)
        except _Failed as error:
            return Record(at, step.round, step.measure, step.system, jobs, error=str(error))
        return Record(at, step.round, step.measure, step.system, jobs, found)


class _Failed(Exception):
    """A driver that did not bring a figure; its last words."""


def _driven(arguments: list[str], env: dict[str, str], seconds: float) -> dict[str, float]:
    driver = subprocess.Popen(
        arguments,
        env=env,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        out, err = driver.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        # In order first: it ends its workers.
        driver.send_signal(signal.SIGTERM)
        try:
            driver.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            driver.kill()
            driver.communicate()
        raise _Failed(f"no figure within {seconds:.0f} s") from None
    lines = out.strip().splitlines()
    if driver.returncode or not lines:
        said = (err or out).strip().splitlines()
        raise _Failed(_without_paths(said[-1] if said else f"exit {driver.returncode}")[:300])
    found = json.loads(lines[-1])
    return {k: v for k, v in found.items() if k not in ("measure", "jobs")}


def _without_paths(text: str) -> str:
    return text.replace(str(ROOT), ".").replace(str(Path.home()), "~")


def _shown(found: dict[str, float]) -> str:
    if "rate" in found:
        return f"{found['rate']:>10,.0f}/s"
    if "p50_ms" in found:
        return f"{found['p50_ms']:>10.1f} / {found['p99_ms']:.1f} ms"
    return f"{found['megabytes']:>10.0f} MB"


if __name__ == "__main__":
    # Nothing of the caller's terminal goes to the drivers.
    os.environ.pop("ONCELY_URL", None)
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("\ncut short; a whole run goes on where it stopped when it is started again")
