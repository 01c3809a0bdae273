"""The examples of the ledger do what they say."""

import subprocess
import sys
from pathlib import Path

pytest_plugins = ["tests.engine.ledger_fixtures"]
EXAMPLES = Path(__file__).parents[2] / "examples"


def run(name: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_celery(tmp_path: Path) -> None:
    path = str(tmp_path / "shop.db")
    assert run("ledger_celery.py", path) == ["charging evt_1", "receipt-evt_1", "receipt-evt_1"]
    assert run("ledger_celery.py", path) == ["receipt-evt_1", "receipt-evt_1"]


def test_rq(tmp_path: Path, redis_url: str) -> None:
    path = str(tmp_path / "shop.db")
    told = "['mailed ann', 'mailed ann']"
    assert run("ledger_rq.py", path, redis_url) == ["mailing ann", told]
    assert run("ledger_rq.py", path, redis_url) == [told]
