"""The examples of the HTTP API do what they say, each with a real server on each engine."""

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from oncely import Oncely
from oncely.model.push import secret_bytes, sign
from tests.cluster import Cluster
from tests.services import CURL, NODE, programs
from tests.surface.http.server import Client, as_process
from tests.waiting import PATIENCE_SECONDS, wait_until

EXAMPLES = Path(__file__).parents[3] / "examples/http"
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ORDER = {"orderId": "9482", "amountCents": 4999}
PUBLISHERS = ["publish.sh", "publish.py", "publish.mjs"]
RECEIVERS = ["receive.py", "receive.mjs"]


class Served:
    def __init__(self, app: Oncely, url: str) -> None:
        self.app, self.url = app, url
        self.key = app.create_token(["publish", "read", "admin"]).key

    def run(self, name: str, *args: str, **env: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command(name, *args),
            env={
                **os.environ,
                "ONCELY_SERVER": self.url,
                "ONCELY_API_KEY": self.key,
                "ONCELY_PUSH_SECRET": SECRET,
                **env,
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )

    def said(self, name: str, *args: str) -> Any:
        done = self.run(name, *args)
        assert (done.returncode, done.stderr) == (0, ""), done
        return json.loads(done.stdout)


def command(name: str, *args: str) -> list[str]:
    path = EXAMPLES / name
    match path.suffix:
        case ".py":
            program = sys.executable
        case ".mjs":
            [program] = programs(NODE)
        case _:
            programs(CURL)
            program = "sh"
    return [program, str(path), *args]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if request.param == "sqlite":
        store = f"sqlite:///{tmp_path_factory.mktemp('served') / 'jobs.db'}"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        name = f"examples_{uuid4().hex}"
        store = cluster.create_database(name)
    with Oncely(store) as app:
        app.migrate()
        with as_process(store, ONCELY_PUSH_ALLOW="127.0.0.0/8") as server:
            yield Served(app, server.url)
    if request.param == "postgres":
        cluster.drop_later(name)


def test_every_example_is_tested_here() -> None:
    assert sorted([*PUBLISHERS, *RECEIVERS, "push.sh"]) == sorted(os.listdir(EXAMPLES))


def test_every_publisher_may_be_run_again_and_all_mean_the_same_job(served: Served) -> None:
    """They send the same key and content, so whichever comes first makes the job."""
    order = ("9482", "4999")
    answers = [served.said(name, *order) for name in PUBLISHERS * 2]
    assert len({each["id"] for each in answers}) == 1
    assert [each["deduplicated"] for each in answers] == [False, *[True] * (len(answers) - 1)]
    job = served.app.get(answers[0]["id"])
    assert job is not None
    assert (job.queue, job.kind, job.payload) == ("payments", "payments", ORDER)
    assert job.idempotency_key == "order:9482:charge"


@pytest.mark.parametrize("name", PUBLISHERS)
def test_a_publisher_says_what_was_refused(served: Served, name: str) -> None:
    done = served.run(name, "9482", "5000", ONCELY_API_KEY="wrong")
    assert done.returncode != 0
    assert "unauthenticated" in done.stdout + done.stderr


def test_a_publisher_whose_content_changed_is_told_so(served: Served) -> None:
    served.said("publish.py", "9482", "4999")
    done = served.run("publish.py", "9482", "5000")
    assert done.returncode == 1
    assert done.stderr.startswith("idempotency_key_mismatch: ")


def charges_in_database(place: Path) -> dict[str, int]:
    with closing(sqlite3.connect(place)) as db:
        return dict(db.execute("select order_id, cents from charge").fetchall())


def charges_in_folder(place: Path) -> dict[str, int]:
    return {each.stem: json.loads(each.read_text())["cents"] for each in place.iterdir()}


CHARGES: dict[str, Callable[[Path], dict[str, int]]] = {
    "receive.py": charges_in_database,
    "receive.mjs": charges_in_folder,
}


@contextmanager
def receiving(name: str, place: Path) -> Iterator[str]:
    process = subprocess.Popen(
        command(name, str(place), "0"),
        env={**os.environ, "ONCELY_PUSH_SECRET": SECRET},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("name", RECEIVERS)
def test_what_is_published_reaches_the_receiver(served: Served, name: str, tmp_path: Path) -> None:
    place = tmp_path / "charges"
    number = str(uuid4().int % 10**9)
    with receiving(name, place) as url, Client(served.url, served.key) as client:
        assert served.said("push.sh", url)["push"]["url"] == url
        job_id = served.said("publish.py", number, "4999")["id"]

        def ended() -> bool:
            job = client.get(f"/v1/jobs/{job_id}").json()
            assert job["state"] != "failed", job
            return bool(job["state"] == "completed")

        wait_until(ended)
    assert CHARGES[name](place)[number] == 4999
    served.app.set_queue("payments", push=None)


def delivery(body: bytes, *, secret: str = SECRET, ago_seconds: int = 0) -> dict[str, str]:
    sent = int(time.time()) - ago_seconds
    signature = sign([secret_bytes(secret)], "job-1", sent, body)
    return {
        "content-type": "application/json",
        "webhook-id": "job-1",
        "webhook-timestamp": str(sent),
        "webhook-signature": signature,
    }


def job(payload: Any) -> bytes:
    return json.dumps({"id": "job-1", "payload": payload}).encode()


@pytest.mark.parametrize("name", RECEIVERS)
def test_a_receiver_charges_once_and_believes_only_what_is_signed(
    name: str, tmp_path: Path
) -> None:
    place = tmp_path / "charges"
    other = "whsec_" + "A" * 32
    body = job(ORDER)
    with receiving(name, place) as url, httpx2.Client(trust_env=False) as client:

        def post(content: bytes, headers: dict[str, str]) -> int:
            return client.post(url, content=content, headers=headers).status_code

        forged = delivery(body, secret=other)
        assert post(body, forged) == 401
        assert post(body, delivery(body, ago_seconds=3600)) == 401
        assert post(body, {}) == 401
        assert post(job({**ORDER, "amountCents": 1}), delivery(body)) == 401
        assert CHARGES[name](place) == {}
        # While a secret is changed there are two signatures, and one of them is enough.
        both = delivery(body)
        both["webhook-signature"] = f"{forged['webhook-signature']} {both['webhook-signature']}"
        assert [post(body, both) for _ in range(3)] == [204] * 3
        assert CHARGES[name](place) == {"9482": 4999}
        for payload in ({"orderId": None}, {}, None):
            nonsense = job(payload)
            assert post(nonsense, delivery(nonsense)) == 422
        assert CHARGES[name](place) == {"9482": 4999}
