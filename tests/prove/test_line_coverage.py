"""Which lines of a handler no schedule ran, and what else a report says of itself."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from oncely.prove import Table, prove

SHOP = """\
import sqlite3
import threading


def charge(order):
    if order == "never":
        note = "not run"
        raise ValueError(note)
    if known(order):
        return None
    thread = threading.Thread(target=save, args=[order])
    thread.start()
    thread.join()
    return [each for each in (lambda: [])()]


def known(order):
    db = sqlite3.connect("shop.db")
    try:
        return db.execute("select 1 from charges where id = ?", (order,)).fetchone()
    finally:
        db.close()


def save(order):
    db = sqlite3.connect("shop.db")
    db.execute("insert into charges values (?)", (order,))
    db.commit()
    db.close()
    if order == "also never":
        save("again")


def other():
    return "not called, so not asked"
"""


def test_lines_that_no_schedule_ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "covered_shop.py").write_text(SHOP)
    with closing(sqlite3.connect("shop.db")) as db:
        db.execute("create table charges (id text)")
    import covered_shop  # type: ignore[import-not-found]

    report = prove(
        covered_shop.charge, payload="a", max_faults=1, budget_seconds=float("inf"),
        world=[Table("sqlite:///shop.db", "charges")],
    )  # fmt: skip
    # Line 10 runs in a delivery after a crash only.
    assert report.not_run == ["covered_shop.py:7-8", "covered_shop.py:31"]
    told = str(report)
    assert "lines that no schedule ran: covered_shop.py:7-8, covered_shop.py:31" in told
    assert "compared: table charges" in told
    assert report.as_dict()["not_run"] == report.not_run
