"""Running `oncely` as a person would: the installed script, in a process of its own."""

import os
import pty
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from oncely import Oncely
from oncely.store.claim import Claimed, claim
from oncely.store.deliver import Settlement, settle
from oncely.store.sql import EngineName, Library
from tests.waiting import PATIENCE_SECONDS

LOOKS = (
    *("COLUMNS", "LINES", "TERM", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"),
    *("PYTHONIOENCODING", "PYTHONWARNINGS"),
)
"""What changes how an output looks, whatever the program."""
SCRIPT = Path(sys.executable).parent / "oncely"


class Done(msgspec.Struct, frozen=True):
    code: int
    out: str
    err: str

    def json(self) -> Any:
        """What was answered; it must be one line of JSON and nothing else."""
        assert self.code == 0, self
        assert self.out.endswith("\n")
        assert self.out.count("\n") == 1
        return msgspec.json.decode(self.out)


Command = Callable[..., Done]


def migrations(url: str) -> list[str]:
    """The names of all that a new store needs."""
    engine: EngineName = "sqlite" if url.startswith("sqlite") else "postgres"
    return [migration.label for migration in Library(engine).migrations]


def environment(**more: str) -> dict[str, str]:
    """Nothing that changes the output: no colours, no width, no store of the caller's."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in LOOKS and not name.startswith("ONCELY_")
    }
    return {**kept, "PATH": f"{SCRIPT.parent}{os.pathsep}{kept.get('PATH', '')}", **more}


def run(*args: str, cwd: Path, stdin: str = "", **env: str) -> Done:
    done = subprocess.run(
        [SCRIPT, *args],
        input=stdin,
        cwd=cwd,
        env=environment(**env),
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def on_terminal(*args: str, cwd: Path, columns: int = 80, typed: str = "") -> Done:
    """On a pseudo-terminal of that width; standard error is part of the output."""
    leader, follower = pty.openpty()
    os.set_inheritable(follower, True)
    process = subprocess.Popen(
        ["/bin/sh", "-c", f'stty cols {columns} rows 40; exec "$@"', "sh", str(SCRIPT), *args],
        stdin=follower,
        stdout=follower,
        stderr=follower,
        cwd=cwd,
        env=environment(TERM="xterm-256color"),
    )
    os.close(follower)
    os.write(leader, typed.encode())
    said = b""
    try:
        while select.select([leader], [], [], PATIENCE_SECONDS)[0]:
            try:
                data = os.read(leader, 65_536)
            except OSError:  # Linux says so when the other side is closed
                break
            if not data:
                break
            said += data
        return Done(process.wait(PATIENCE_SECONDS), said.decode().replace("\r\n", "\n"), "")
    finally:
        os.close(leader)
        process.kill()
        process.wait()


def deliver(app: Oncely, queue: str, end: Callable[[Claimed], Settlement]) -> str:
    """One delivery from that queue, ended as `end` says: there is no worker yet."""
    make = {"worker": "host-1", "nonce": 7, "lease_seconds": 60.0, "limit": 1}
    claimed = app._engine.run(lambda _: claim(queue, **make), "transaction")  # type: ignore[arg-type]
    assert len(claimed) == 1
    job = claimed[0]
    done = [end(job).under(job.fence)]
    assert app._engine.run(lambda _: settle(done), "transaction") == []
    return job.job_id


def fail(app: Oncely, queue: str = "default") -> str:
    """Deliver the next job of that queue, and let it fail."""
    error = '{"type":"SMTPError","message":"mailbox unavailable"}'
    return deliver(
        app, queue, lambda job: Settlement(job.job_id, job.attempt, state="failed", error=error)
    )
