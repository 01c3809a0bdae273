"""The payment service of the demo, and what becomes of the books when its handlers are wrong."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from threading import Barrier, Thread

import msgspec
import pytest

from oncely.surface.cli.demo.book import Charge, Mail, read
from oncely.surface.cli.demo.payments import Payments
from oncely.surface.cli.demo.service import Assignment
from tests.surface.command import environment
from tests.waiting import PATIENCE_SECONDS

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "payments.db"


@pytest.fixture
def port(book: Path) -> Iterator[int]:
    command = [sys.executable, "-m", "oncely.surface.cli.demo.service"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as service:
        assert service.stdin is not None
        assert service.stdout is not None
        service.stdin.write(msgspec.json.encode(Assignment(str(book))) + b"\n")
        service.stdin.flush()
        yield int(service.stdout.readline())
        service.stdin.close()
        assert service.wait(PATIENCE_SECONDS) == 0


def test_a_key_is_honoured(port: int, book: Path) -> None:
    payments = Payments(port)
    made = [payments.charge(order, key) for order, key in ((7, "a"), (7, "a"), (7, "b"), (8, "c"))]
    assert made[0] == made[1]
    assert len(set(made)) == 3
    assert read(book).charges == [
        Charge(made[0], 7, "a", 2),
        Charge(made[2], 7, "b", 1),
        Charge(made[3], 8, "c", 1),
    ]


def test_one_key_at_once(port: int, book: Path) -> None:
    start, made = Barrier(8), []

    def ask() -> None:
        start.wait()
        made.append(Payments(port).charge(7, "a"))

    callers = [Thread(target=ask) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(made) == 8
    assert read(book).charges == [Charge(made[0], 7, "a", 8)]


def test_without_a_key_every_call_is_a_charge(port: int, book: Path) -> None:
    for _ in range(2):
        connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE_SECONDS)
        connection.request("POST", "/charges", b'{"order": 7}')
        assert connection.getresponse().status == 200
        connection.close()
    assert [(charge.order, charge.key) for charge in read(book).charges] == [(7, None), (7, None)]


def test_every_call_is_a_mail(port: int, book: Path) -> None:
    payments = Payments(port)
    assert payments.find(7) is None
    first, second = payments.send(7), payments.send(7)
    assert payments.find(7) == first
    assert payments.find(8) is None
    pages = read(book)
    assert pages.mails == [Mail(first, 7), Mail(second, 7)]
    assert (pages.mail_of(7), pages.mail_of(8)) == (first, None)
    assert pages.questions == 3


def test_a_page_that_is_not_there(port: int, book: Path) -> None:
    with pytest.raises(OSError, match="answered 404"):
        Payments(port)._call("POST", "/refunds", {"order": 7})
    with pytest.raises(OSError, match="answered 404"):
        Payments(port)._call("GET", "/charges/7")
    assert read(book).charges == []


CHARGES_WITHOUT_THE_KEY = ("payments.py", '{"Idempotency-Key": key}', "{}")
RESOLVES_WITHOUT_LOOKING = (
    "operator.py",
    "happened=mail is not None, result=mail",
    "happened=True",
)


def test_planted_bugs_are_errors(tmp_path: Path) -> None:
    """In a copy of the source, which the processes of the demo run from. One doubles charges, the
    other loses mails, so that neither hides what the other does."""
    copy = tmp_path / "src"
    shutil.copytree(SOURCE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for name, old, new in (CHARGES_WITHOUT_THE_KEY, RESOLVES_WITHOUT_LOOKING):
        file = copy / "oncely/surface/cli/demo" / name
        text = file.read_text()
        assert text.count(old) == 1
        file.write_text(text.replace(old, new))
    done = subprocess.run(
        [sys.executable, "-m", "oncely.surface.cli", "demo", "--json"],
        env=environment(PYTHONPATH=os.fspath(copy)),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE_SECONDS,
    )
    assert done.returncode == 1, done
    counts = msgspec.json.decode(done.stdout)
    assert counts["charges"] == 200 + counts["doubled"] > 200
    assert counts["mails"] == 200 - counts["lost"] < 200
    for fault in ("lost", "doubled"):
        assert f"{counts[fault]} charges and mails are {fault}" in done.stderr
