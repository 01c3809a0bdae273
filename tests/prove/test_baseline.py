"""Known violations in a file, and reports that tell like stories once."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.surface.command import Command
from tests.surface.conftest import here, oncely

__all__ = ["here", "oncely"]  # fixtures

SHOP = """
import sqlite3

def charge(order):
    db = sqlite3.connect("shop.db")
    for table in TABLES:
        db.execute(f"insert or ignore into {table} values (?)", (order,))
        db.commit()
    db.close()
"""
TABLES = ("--table", "sqlite:///shop.db#charges", "--table", "sqlite:///shop.db#mails")
PROVE = ("prove", "based_shop:charge", "--args", '["a"]', "--budget", "inf", *TABLES)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as db:
        db.execute("create table charges (id text)")
        db.execute("create table mails (id text)")
        db.execute("create table paid (id text primary key)")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(folder: Path, *tables: str) -> None:
    (folder / "based_shop.py").write_text(f"{SHOP}\nTABLES = {tables!r}\n")


def test_known_violations_do_not_fail_the_run_and_new_ones_do(
    oncely: Command, folder: Path
) -> None:
    write(folder, "charges")
    done = oncely(*PROVE, "--baseline", "known.json", "--write-baseline")
    assert (done.code, done.err) == (0, "")
    known = json.loads((folder / "known.json").read_text())["violations"]
    assert {each["faults"][0] for each in known} >= {"crash before settle", "late before settle"}
    assert {each["differs"][0] for each in known} == {"table charges"}

    # Lines and numbers move: it is the same violation.
    (folder / "based_shop.py").write_text(f"# moved\n{SHOP}\nTABLES = ['paid', 'charges']\n")
    done = oncely(*PROVE, "--baseline", "known.json", "--json")
    report = json.loads(done.out)
    assert (done.code, report["verdict"], report["ok"]) == (1, "doubled", False)
    states = {each["schedule"]: each["is_known"] for each in report["violations"]}
    assert states["crash@7"] is True

    write(folder, "charges", "mails")
    done = oncely(*PROVE, "--baseline", "known.json")
    assert done.code == 1
    assert "too many" in done.out


def test_a_violation_that_is_gone_is_named(oncely: Command, folder: Path) -> None:
    write(folder, "charges")
    assert oncely(*PROVE, "--baseline", "known.json", "--write-baseline").code == 0
    write(folder, "mails")
    done = oncely(*PROVE, "--baseline", "known.json", "--format", "github")
    assert done.code == 1
    assert "::notice::gone since the baseline: charge doubled, crash before settle" in done.out
    assert "::error file=based_shop.py,line=8,title=charge%3A doubled::" in done.out


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
        (["--all"], "--all proves every kind"),
        (["--table", "charges"], "expected the URL of its database before a #"),
    ],
)
def test_bad_input(here: Command, folder: Path, arguments: list[str], told: str) -> None:
    write(folder, "charges")
    (folder / "bad.json").write_text("[]")
    (folder / "old.json").write_text('{"version": 0, "violations": []}')
    done = here("prove", "based_shop:charge", "--args", '["a"]', *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
