"""What is accepted by name: the address of a service of this machine, and a program."""

import socket
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncely.model.errors import InvalidInput
from oncely.prove import Report, prove
from tests.waiting import PATIENCE_SECONDS


class Counts:
    """A handler that writes once, and tells of it by what is to be accepted."""

    def __init__(self, path: Path, tell: Any) -> None:
        self._path = path
        self._tell = tell
        with closing(sqlite3.connect(path)) as db:
            db.execute("create table notes (text text primary key)")

    def handler(self) -> None:
        self._tell()
        with closing(
            sqlite3.connect(self._path, timeout=PATIENCE_SECONDS, isolation_level=None)
        ) as db:
            db.execute("insert or ignore into notes values ('x')")

    def prove(self, **options: Any) -> Report:
        return prove(self.handler, schedule="crash@2", **options)


@pytest.mark.parametrize("form", ["sendto", "connect"])
def test_the_address_of_a_service(tmp_path: Path, form: str) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as statsd:
        statsd.bind(("127.0.0.1", 0))
        host, port = statsd.getsockname()

        def count() -> None:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
                if form == "connect":
                    line.connect((host, port))
                    line.send(b"mails:1|c")
                else:
                    line.sendto(b"mails:1|c", (host, port))

        counts = Counts(tmp_path / "shop.db", count)
        named = counts.prove()
        report = counts.prove(accept=[f"{host}:{port}"])
        assert statsd.recv(100) == b"mails:1|c"
    assert named.verdict == "unobserved"
    assert f"accept=['{host}:{port}']" in str(named)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    ("command", "options"),
    [(["true", "--version"], {}), ("true --version", {"shell": True})],
    ids=["program", "shell"],
)
def test_a_program(tmp_path: Path, command: Any, options: dict[str, Any]) -> None:
    counts = Counts(
        tmp_path / "shop.db",
        lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **options),
    )
    program = "sh" if options else "true"
    with pytest.raises(InvalidInput, match=f"accept=\\['{program}'\\]"):
        counts.prove()
    report = counts.prove(accept=[program])
    assert report.ok, str(report)
