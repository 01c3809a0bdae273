"""Known violations in a file, and reports that tell like stories once."""

import json
import sqlite3
from contextlib import closing
from copy import deepcopy
from functools import cache
from pathlib import Path

import pytest

from oncely.prove import Report, Table, prove
from oncely.prove.baseline import compare, read_baseline, write_baseline
from oncely.prove.formats import as_github
from tests.surface.command import Command
from tests.surface.conftest import here, oncely

__all__ = ["here", "oncely"]  # fixtures

SHOP = """
import sqlite3

def charge(order):
    db = sqlite3.connect("shop.db")
    db.execute("insert into charges values (?)", (order,))
    db.commit()
    db.close()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("create table charges (id text)")
        db.execute("create table mails (id text)")
        db.execute("create table paid (id text primary key)")
    (tmp_path / "based_shop.py").write_text(SHOP)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def proved(*tables: str) -> Report:
    """Of a function that writes to the tables, each in a transaction of its own."""
    return deepcopy(_proved(*tables))


@cache
def _proved(*tables: str) -> Report:

    def charge(order: str) -> None:
        with closing(sqlite3.connect("shop.db", isolation_level=None)) as db:
            for table in tables:
                db.execute(f"insert or ignore into {table} values (?)", (order,))

    world = [Table("sqlite:///shop.db", table) for table in ("charges", "mails")]
    return prove(charge, args=["a"], world=world, max_faults=1, budget_seconds=float("inf"))


def test_what_moved_is_known_and_what_is_new_is_not(folder: Path) -> None:
    file = folder / "known.json"
    first = proved("charges")
    write_baseline(file, [first])
    known = read_baseline(file)
    assert {each.faults for each in known} >= {("crash before settle",), ("late before settle",)}
    compare(first, known)
    assert first.violations
    assert (first.verdict, first.ok, first.new, first.gone) == ("doubled", True, [], [])
    assert f"{len(first.violations)} of them in the baseline" in first.sentence
    assert "play it again" not in str(first)

    # Another transaction before it: all numbers move, and two of its own boundaries are new.
    moved = proved("paid", "charges")
    compare(moved, known)
    by_name = {moved.boundaries[each.schedule.moves[0].at].name: each for each in moved.violations}
    assert by_name["settle"].is_known

    more = proved("charges", "mails")
    compare(more, known)
    assert more.new
    assert not more.ok
    assert str(more).count("play it again") == len(more.groups())


def test_a_violation_that_is_gone_is_named(folder: Path) -> None:
    file = folder / "known.json"
    write_baseline(file, [proved("charges")])
    report = proved("mails")
    compare(report, read_baseline(file))
    assert "charge doubled, crash before settle (table charges)" in report.gone
    assert "gone since the baseline: charge doubled, crash before settle" in str(report)
    assert "::notice::gone since the baseline: charge doubled" in as_github([report])
    report.is_partial = True  # where not all was played, nothing can be said
    compare(report, read_baseline(file))
    assert report.gone == []
    write_baseline(file, [report])
    assert {each.differs for each in read_baseline(file)} == {("table mails",)}


def test_kinds_that_are_not_proved_stay_in_the_baseline(folder: Path) -> None:
    file = folder / "known.json"
    report = proved("charges")
    write_baseline(file, [report])
    report.kind = "other"
    write_baseline(file, [report])
    assert {each.kind for each in read_baseline(file)} == {"charge", "other"}


def test_the_command_with_a_baseline(oncely: Command, folder: Path) -> None:
    given = ("prove", "based_shop:charge", "--args", '["a"]', "--schedule", "crash@4")
    tables = ("--table", "sqlite:///shop.db#charges")
    done = oncely(*given, *tables, "--baseline", "known.json", "--write-baseline", "--json")
    assert (done.code, done.err) == (0, "")
    [violation] = json.loads(done.out)["violations"]
    assert violation["is_known"] is True
    assert oncely(*given, *tables, "--baseline", "known.json", "--format", "junit").code == 0
    assert oncely(*given, *tables, "--format", "sarif").code == 1


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--baseline", "nowhere.json"], "there is no baseline 'nowhere.json'"),
        (["--baseline", "bad.json"], "the baseline 'bad.json' cannot be read"),
        (["--baseline", "old.json"], "has version 0; expected 1"),
        (["--write-baseline"], "expected --baseline FILE with it"),
        (["--json", "--format", "sarif"], "--json and --format sarif are given"),
        (["--args", "{}"], "--args is {}; expected an array of JSON"),
        (["--kwargs", "["], "--kwargs is not JSON"),
        (["--header", "nothing"], "--header is 'nothing'; expected NAME: VALUE"),
        (["--payloads", "a:b"], "--payloads is for --all"),
        (["--all", "--args", "[]"], "--all proves every kind"),
        (["--all"], "based_shop:charge is a function; --all takes an Oncely app"),
        (["--table", "charges"], "expected the URL of its database before a #"),
    ],
)
def test_bad_input(here: Command, folder: Path, arguments: list[str], told: str) -> None:
    (folder / "bad.json").write_text("[]")
    (folder / "old.json").write_text('{"version": 0, "violations": []}')
    done = here("prove", "based_shop:charge", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
