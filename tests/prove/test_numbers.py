"""A number in the world: more than one run leaves is doubled, less is lost."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from oncely.prove import prove
from oncely.prove.verdict import differences, judge
from oncely.prove.world import counted


@pytest.mark.parametrize(
    ("before", "wanted", "found", "verdict"),
    [
        (0, 1, 2, "doubled"),
        (0, 2, 1, "lost"),
        (None, "1", "2", "doubled"),
        (100, 95, 90, "doubled"),
        (100, 95, 98, "lost"),
        (100, 95, 105, "diverged"),
        (100, 95, 100, "lost"),
        (3, 3, 4, "doubled"),
        ({"ann": 0, "bob": 7}, {"ann": 1, "bob": 7}, {"ann": 2, "bob": 7}, "doubled"),
        ({}, {"ann": 1}, {"ann": 2}, "doubled"),
        ({}, {"ann": 2}, {"ann": 1}, "lost"),
        ({}, {"mails": {"ann": 1.5}}, {"mails": {"ann": 3.0}}, "doubled"),
        ({}, {"ann": 1, "bob": 2}, {"ann": 2, "bob": 1}, "diverged"),
        ({}, {"ann": 1}, {"bob": 1}, "diverged"),
        ([], [1], [2], "diverged"),
        ([], [{"id": "ann", "n": 5}], [{"id": "ann", "n": 10}], "doubled"),
        ([], [{"id": "ann", "n": 5}], [{"id": "ann", "n": 4}], "diverged"),
        ({}, {"events": ["paid"]}, {"events": ["paid", "paid"]}, "doubled"),
        ({}, {"events": ["paid", "sent"]}, {"events": ["paid"]}, "lost"),
        ({"ann": 1}, {"ann": 1}, {"ann": 1}, "sound"),
    ],
)
def test_numbers_are_judged(before: Any, wanted: Any, found: Any, verdict: str) -> None:
    told = judge({"w": counted(before)}, {"w": counted(wanted)}, {"w": counted(found)})
    assert told == verdict


def test_what_is_said_of_a_number() -> None:
    def lines(wanted: Any, found: Any) -> list[str]:
        [difference] = differences({"w": counted(wanted)}, {"w": counted(found)})
        return difference.lines

    assert lines(1, 2) == ["1 expected, 2 found"]
    assert lines({"mails": {"ann": 1}}, {"mails": {"ann": 2}}) == [
        "mails: ann: 1 expected, 2 found"
    ]
    assert lines(["a"], ["b"]) == ["missing  a", "too many b"]
    assert counted(Counter(a=2)) == Counter(a=2)


def test_a_function_that_counts(tmp_path: Path) -> None:
    path = tmp_path / "shop.log"

    def write() -> None:
        with path.open("a") as file:
            file.write("x\n")

    def count() -> int:
        return len(path.read_text().splitlines()) if path.exists() else 0

    report = prove(write, world=[count], schedule="crash@3")
    assert [each.verdict for each in report.violations] == ["doubled"], str(report)
    assert "1 expected, 2 found" in str(report)


def test_a_number_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("create table mails (address text)")

    def lose() -> None:
        """It marks the mail as sent before it sends it."""
        with closing(sqlite3.connect(path, isolation_level=None)) as db:
            if db.execute("select count(*) from mails").fetchone()[0] == 0:
                db.execute("insert into mails values ('mark')")
                db.execute("insert into mails values ('mail')")

    def counts() -> dict[str, int]:
        with closing(sqlite3.connect(path)) as db:
            (found,) = db.execute("select count(*) from mails").fetchone()
            return {"mails": found}

    report = prove(lose, world=[counts], schedule="crash@3")
    assert [each.verdict for each in report.violations] == ["lost"], str(report)
    assert "mails: 2 expected, 1 found" in str(report)
