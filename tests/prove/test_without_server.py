"""`oncely[prove]` brings nothing of the server: a proof runs where none of it can be imported."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROOF = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import smtplib, sqlite3, urllib.request
from oncely.prove import Downstream, Mailbox, Table, prove

service, mails = Downstream(), Mailbox()
db = sqlite3.connect("shop.db")
db.execute("create table charges (id text)")
db.close()

def charge(order):
    urllib.request.urlopen(service.url, order.encode(), timeout=30).close()
    with smtplib.SMTP(mails.host, mails.port) as server:
        server.sendmail("shop@example.org", ["ann@example.org"], f"Subject: {order}")
    db = sqlite3.connect("shop.db")
    db.execute("insert into charges values (?)", (order,))
    db.commit()
    db.close()

world = [service, mails, Table("sqlite:///shop.db", "charges")]
report = prove(charge, args=["a"], world=world, schedule="crash@6")
print(report.verdict, [each.label.split()[0] for each in report.violations[0].differences])
"""


def test_a_proof_runs_without_the_libraries_of_other_extras(tmp_path: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    assert extras["prove"] == []
    absent = {
        "argon2", "celery", "cryptography", "django", "httptools", "httpx2", "jinja2",
        "opentelemetry", "prometheus_client", "psycopg", "redis", "sqlalchemy",
        "standardwebhooks", "starlette", "uvicorn", "uvloop",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", f"ABSENT = {absent!r}\n{PROOF}"],
        cwd=tmp_path, env={**os.environ, "ONCELY_URL": ""}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "doubled ['downstream', 'mailbox', 'table']\n"
