"""Every command once as the script that people run, on each engine."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from oncely import InvalidInput, Ledger, Oncely
from tests.surface.command import Command, environment, fail, migrations


def test_as_a_module(tmp_path: Path) -> None:
    """`python -m oncely` is the same program."""
    done = subprocess.run(
        [sys.executable, "-m", "oncely", "migrate", "--url", "sqlite:///jobs.db"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("applied 0001_jobs\n")
    refused = subprocess.run(
        [sys.executable, "-m", "oncely", "no-such-command"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (refused.returncode, refused.stdout) == (2, "")


def test_the_url_of_sqlalchemy(here: Command, postgres_url: str) -> None:
    """`postgresql+psycopg://` everywhere a store is named."""
    url = postgres_url.replace("postgresql:", "postgresql+psycopg:", 1)
    assert here("migrate", "--url", url).code == 0
    job_id = here("enqueue", "k", "--url", url, "--json").json()["job_id"]
    with Oncely(url) as app, Oncely(postgres_url) as same, Ledger(url) as ledger:
        assert app.get(job_id) == same.get(job_id)
        assert same.get(job_id) is not None
        ledger.migrate()
        assert ledger.step("k:1", lambda: 7) == 7
    with Ledger(postgres_url) as ledger:
        assert ledger.step("k:1", lambda: 8) == 7
    for refused in (
        "postgresql+asyncpg://h/db",
        "postgresql+psycopg2://h/db",
        "sqlite+aiosqlite://",
    ):
        for opened in (Oncely, Ledger):
            with pytest.raises(
                InvalidInput, match=r"oncely connects with .*: write \w+://… instead"
            ):
                opened(refused)


def test_a_day_at_the_store(oncely: Command, url: str) -> None:
    applied = "".join(f"applied {name}\n" for name in migrations(url))
    assert oncely("migrate", "--url", url).out == applied
    assert oncely("migrate", ONCELY_URL=url).out == "nothing to do: the schema is up to date\n"
    first = oncely("enqueue", "k", "-", "--unique-key", "u", ONCELY_URL=url, stdin="[1]")
    assert (first.code, first.err) == (0, "")
    again = oncely("enqueue", "k", "--unique-key", "u", "--json", "--url", url).json()
    assert again["inserted"] is False
    job_id = again["job_id"]
    assert first.out == f"inserted job {job_id}, pending\n"
    assert job_id in oncely("jobs", "--url", url).out
    assert oncely("show", job_id, "--url", url).out.startswith(f"job {job_id}\n")
    with Oncely(url) as app:
        assert fail(app) == job_id
    assert oncely("replay", job_id, "--url", url).out == f"replayed job {job_id}, pending\n"
    assert oncely("cancel", job_id, "--url", url).out == f"cancelled job {job_id}\n"
    wrong = oncely("replay", job_id, "--url", url, "--json")
    assert (wrong.code, wrong.out) == (1, "")
    assert json.loads(wrong.err)["error"] == "WrongState"
    bad = oncely("enqueue", "k", "{", "--url", url)
    assert (bad.code, bad.out) == (2, "")
    assert oncely("doctor", "--url", url).code == 0
