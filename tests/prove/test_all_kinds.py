"""Every kind of an app, on the command line and in a run of pytest."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from tests.surface.command import Command
from tests.surface.conftest import folder, here, oncely

__all__ = ["folder", "here", "oncely"]  # fixtures
pytest_plugins = ["pytester"]

SHOP = """
import sqlite3
from oncely import Context, Oncely
from oncely.prove import Table

app = Oncely("sqlite:///shop.db")
world = [Table("sqlite:///shop.db", "charges")]


def payloads():
    return {"order.once": "a"}


@app.job("order.once")
def once(ctx: Context, order: str) -> None:
    db = sqlite3.connect("shop.db", isolation_level=None)
    db.execute("insert into charges select ? where not exists (select 1 from charges)", (order,))
    db.close()


@app.job("order.twice")
def twice(ctx: Context, order: str) -> None:
    db = sqlite3.connect("shop.db")
    db.execute("insert into charges values (?)", (order,))
    db.commit()
    db.close()
"""


def make_shop(where: Path, *, with_job: bool) -> None:
    (where / "all_shop.py").write_text(SHOP)
    with closing(sqlite3.connect(where / "shop.db")) as db:
        db.execute("create table charges (id text)")
    if with_job:
        from oncely import Oncely

        with Oncely(f"sqlite:///{where}/shop.db") as app:
            app.enqueue("order.twice", "from the store")


def test_every_kind_with_payloads_of_a_function_and_of_the_store(
    oncely: Command, folder: Path
) -> None:
    make_shop(folder, with_job=True)
    done = oncely(
        "prove", "all_shop:app", "--all", "--payloads", "all_shop:payloads", "--world",
        "all_shop:world", "--json", "--budget", "inf", "--max-faults", "1", "--html", "all.html",
    )  # fmt: skip
    told = json.loads(done.out)
    assert (done.code, told["ok"]) == (1, False)
    found = {each["kind"]: each["verdict"] for each in told["reports"]}
    assert found == {"order.once": "sound", "order.twice": "doubled"}
    twice = told["reports"][1]["violations"][0]
    assert twice["differences"][0]["extra"] == ['{"id":"from the store"}']
    assert (folder / "all.html").read_text().count("<h1>") == 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "there is no payload for order.once"),
        (["--payloads", "all_shop:world"], "expected a dict of kind: payload"),
        (["--payloads", "all_shop:nothing"], "module 'all_shop' has no 'nothing'"),
        (["--payloads", "all_shop"], "--payloads is 'all_shop'; expected MODULE:NAME"),
        (["order.once"], "--all proves every kind"),
    ],
)
def test_bad_input(
    here: Command,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    make_shop(tmp_path, with_job=False)
    done = here("prove", "all_shop:app", "--all", *arguments)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert told in done.err


def test_a_test_for_each_kind(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    make_shop(pytester.path, with_job=True)
    options = (
        "-p", "no:oncely", "-p", "oncely.testing", "--oncely-prove", "all_shop:app",
        "--oncely-payloads", "all_shop:payloads", "--oncely-world", "all_shop:world",
    )  # fmt: skip
    result = pytester.runpytest_subprocess(*options)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["*prove?order.twice?*", "order.twice: doubled"])
    result = pytester.runpytest_subprocess(*options, "-k", "order.once", "--collect-only", "-q")
    result.stdout.fnmatch_lines(["*prove?order.once?"])
    result.stdout.no_fnmatch_line("*order.twice*")
    result = pytester.runpytest_subprocess(*options[:6])
    result.stderr.fnmatch_lines(["*--oncely-prove: there is no payload for order.once*"])
