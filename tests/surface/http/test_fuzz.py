"""schemathesis against the server's own document: no 5xx, no answer that it does not describe.

A few hundred cases in every run; under $ONCELY_TORTURE more than 10,000 on each engine.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from oncely import Context, Nack, NewJob, Oncely
from oncely.model.token import SCOPES
from oncely.surface.http.table import TABLE
from tests.crash.load import TORTURE
from tests.surface.command import environment
from tests.surface.http.server import Client, as_process

SCRIPT = Path(sys.executable).parent / "schemathesis"
FOLDER = Path(__file__).parent
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection,"
    "ignored_auth,unsupported_method,use_after_free"
)
PHASES = "examples,fuzzing,stateful" if TORTURE == 1 else "examples,coverage,fuzzing,stateful"
EXAMPLES = 5 if TORTURE == 1 else 400
CHANCE = ["--seed", "1"] if TORTURE == 1 else []
LEAST = 100 if TORTURE == 1 else 10_000
SEEDS = 20 if TORTURE == 1 else 600


def test_every_answer_is_as_the_document_says(url: str, app: Oncely, tmp_path: Path) -> None:
    key = app.create_token(SCOPES).key
    pool, told = tmp_path / "pool.json", tmp_path / "answers.json"
    with as_process(url, "--no-access-log") as server:
        with Client(server.url, key) as client:
            pool.write_text(json.dumps(seeded(app, client)))
        done = subprocess.run(
            [
                SCRIPT, "run", f"{server.url}/openapi.json", "--no-color",
                "--header", f"Authorization: Bearer {key}",
                "--checks", CHECKS, "--phases", PHASES, "--max-examples", str(EXAMPLES),
                "--continue-on-failure", "--generation-database", "none",
                "--suppress-health-check", "all", "--request-timeout", "60", *CHANCE,
            ],
            cwd=tmp_path,
            env=environment(
                SCHEMATHESIS_HOOKS="fuzz_hooks",
                PYTHONPATH=str(FOLDER),
                FUZZ_POOL=str(pool),
                FUZZ_ANSWERS=str(told),
            ),
            capture_output=True,
            text=True,
            check=False,
        )  # fmt: skip
        log = server.end(15)[1]
    assert done.returncode == 0, f"{done.stdout}{done.stderr}\n{log[-5_000:]}"
    cases = re.search(r"(\d+) generated", done.stdout)
    assert cases is not None, done.stdout
    print(f"{cases[1]} cases")
    assert int(cases[1]) >= LEAST
    good = Counter[str]()
    for line, count in json.loads(told.read_text()).items():
        call, _, status = line.rpartition(" ")
        good[call] += count if status.startswith("2") else 0
    print("\n".join(f"{count:6} x 2xx  {call}" for call, count in sorted(good.items())))
    calls = {f"{each.method} {each.path}" for each in TABLE}
    assert sorted(calls - {call for call, count in good.items() if count}) == []


def seeded(app: Oncely, client: Client) -> dict[str, Any]:
    """Jobs in every state that a call may need, in queues that no call is likely to name."""

    @app.job("fails", queue="seed-failed")
    def fails(_: Context) -> None:
        raise Nack("seeded", retryable=False)

    @app.job("holds", queue="seed-held")
    def holds(ctx: Context) -> None:
        def send() -> None:
            raise TimeoutError

        ctx.fence("send", send)

    def enqueue(kind: str, queue: str) -> list[str]:
        made = app.enqueue_many(NewJob(kind, n, queue=queue) for n in range(SEEDS))
        return [receipt.job_id for receipt in made.receipts]

    pool: dict[str, Any] = {
        # The newest first: replays of the dead-letter queue begin with the oldest.
        "failed": [(job_id, "") for job_id in enqueue("fails", "seed-failed")[::-1]],
        "held": [(job_id, "") for job_id in enqueue("holds", "seed-held")],
    }
    app.drain()
    app.pause("seed-pending")
    pool["pending"] = [(job_id, "") for job_id in enqueue("k", "seed-pending")]
    enqueue("k", "seed-running")
    running: list[Any] = []
    while len(running) < SEEDS:
        body = {"workerId": "seed", "max": 100, "leaseSeconds": 86_400}
        jobs = client.post("/v1/queues/seed-running/claim", json=body).json()["jobs"]
        running += [(job["id"], job["executionId"]) for job in jobs]
    pool["kept"], pool["running"] = running[:5], running[5:]
    return pool
