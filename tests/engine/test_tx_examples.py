"""The examples of `tx=` do what they say."""

import subprocess
import sys
from pathlib import Path

from oncely import Oncely

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, address: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / name, address],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def orders(first: str) -> list[str]:
    return [
        f"order 1: {first}",
        "order 1: was placed before",
        "order 2: rolled back, nothing to charge",
    ]


def test_sqlite3(tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    jobs = "jobs for orders: [1]"
    assert run("tx_sqlite3.py", str(path)) == [*orders("job enqueued"), jobs]
    assert run("tx_sqlite3.py", str(path)) == [*orders("was placed before"), jobs]


def test_psycopg(postgres_url: str) -> None:
    assert run("tx_psycopg.py", postgres_url) == orders("job enqueued")
    assert run("tx_psycopg.py", postgres_url) == orders("was placed before")
    with Oncely(postgres_url) as app:
        assert [job.payload for job in app.jobs()] == [{"order_id": 1, "cents": 990}]


def test_sqlalchemy(url: str) -> None:
    assert run("tx_sqlalchemy.py", url) == orders("job enqueued")
    assert run("tx_sqlalchemy.py", url) == orders("was placed before")
    with Oncely(url) as app:
        assert [job.payload for job in app.jobs()] == [1]


def test_they_are_short() -> None:
    for example in EXAMPLES.glob("tx_*.py"):
        assert len(example.read_text().splitlines()) <= 40, example
