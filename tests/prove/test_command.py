"""`oncely prove`, and the page it writes."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path

import pytest

from tests.surface.command import Command, environment
from tests.surface.conftest import here, oncely

__all__ = ["here", "oncely"]  # fixtures

SHOP = """
import sqlite3
from contextlib import closing
from oncely import Context, Oncely
from oncely.prove import Table

app = Oncely("sqlite:///shop.db")
world = [Table("sqlite:///shop.db", "charges")]


@app.job("order.charge")
def charge(ctx: Context, order: str) -> None:
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("insert into charges values (?)", (order,))
        db.commit()


@app.job("order.once")
def once(ctx: Context, order: str) -> None:
    with ctx.transaction() as tx:
        tx.execute("insert into charges values (?)", (order,))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "prove_shop.py").write_text(SHOP)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("create table charges (id text)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_handler_that_doubles(oncely: Command, folder: Path) -> None:
    done = oncely(
        "prove", "prove_shop:app", "order.charge", "--payload", '"1"', "--table", "charges",
        "--html", "report.html", "--budget", "inf",
    )  # fmt: skip
    assert done.code == 1
    assert done.out.startswith("order.charge: doubled\n")
    assert "prove_shop.py:" in done.out
    page = (folder / "report.html").read_text()
    assert "<svg" in page
    assert "http://" not in page.replace("http://127.0.0.1", "")
    assert "doubled" in page


def test_the_timeline_is_in_colours_on_a_terminal_only(folder: Path) -> None:
    def shown(**env: str) -> str:
        told = environment(TERM="xterm-256color", COLUMNS="200", **env)
        command = [
            "prove",
            "prove_shop:app",
            "order.charge",
            "--payload",
            '"1"',
            "--table",
            "charges",
        ]
        main, other = os.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "oncely.surface.cli", *command, "--schedule", "crash@4"],
            stdin=subprocess.DEVNULL, stdout=other, stderr=subprocess.DEVNULL, env=told,
        )  # fmt: skip
        os.close(other)
        found = b""
        with suppress(OSError):  # the other side is gone
            while data := os.read(main, 65_536):
                found += data
        os.close(main)
        assert process.wait() == 1
        return found.decode()

    coloured = shown()
    assert "\x1b[1;31mdoubled\x1b[0m" in coloured
    assert "\x1b[1;31m✗ the process ends before: settle" in coloured
    plain = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert plain.startswith("order.charge: doubled")
    assert "31m" not in shown(NO_COLOR="1")


def test_a_handler_that_holds_as_json(oncely: Command, folder: Path) -> None:
    done = oncely(
        "prove", "prove_shop:app", "order.once", "--payload", '"1"', "--world",
        "prove_shop:world", "--json", "--budget", "inf", "--max-faults", "1",
    )  # fmt: skip
    report = json.loads(done.out)
    assert (done.code, report["verdict"], report["ok"]) == (0, "sound", True)
    assert report["violations"] == []


def test_one_schedule_is_played_again(oncely: Command, folder: Path) -> None:
    done = oncely(
        "prove", "prove_shop:app", "order.charge", "--payload", '"1"', "--table", "charges",
        "--schedule", "crash@0",
    )  # fmt: skip
    assert done.code == 0
    assert "No violation in 1 schedule at" in done.out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["order.nix"], "the app has handlers of: order.charge, order.once"),
        (["order.once", "--payload", "{"], "--payload is not JSON"),
        (["order.once", "--schedule", "soon"], "the schedule is 'soon'"),
        (["order.once", "--world", "prove_shop"], "expected MODULE:NAME"),
        (["order.once", "--table", "nowhere"], "the table 'nowhere' cannot be read"),
    ],
)
def test_bad_input(
    here: Command,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "prove_shop", raising=False)
    done = here("prove", "prove_shop:app", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
