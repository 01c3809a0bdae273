import json
import re

from oncely import Oncely
from oncely.store.deliver import Settlement
from tests.surface.command import Command, deliver, fail


def test_a_job_whole(at: Command, url: str) -> None:
    with Oncely(url) as app:
        job_id = app.enqueue(
            "mail.send",
            {"to": ["ann", "bob"]},
            queue="mail",
            unique_key="welcome:42",
            idempotency_key="call:1",
            tags=["a", "b"],
            timeout=2.5,
            max_attempts=3,
        ).job_id
        error = '"try\\nlater\\u001b[0m"'
        deliver(
            app,
            "mail",
            lambda job: Settlement(
                job.job_id, job.attempt, outcome="retried", attempts=1, error=error
            ),
        )
        fail(app, "mail")
    shown = at("show", job_id).out
    told = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC, (now|\d+ seconds? ago)", "TIME", shown)
    assert re.sub(r"took \d\.\d\d\d s", "took T", told) == (
        f"""job {job_id}
  kind             mail.send
  queue            mail
  state            failed
  priority         0
  attempts         2, limit 3
  timeout          2.5 seconds
  idempotency key  call:1
  unique key       welcome:42
  group key        none
  tags             a, b
  created          TIME
  due              TIME
  ended            TIME
payload
  {{
    "to": [
      "ann",
      "bob"
    ]
  }}
error
  {{
    "type": "SMTPError",
    "message": "mailbox unavailable"
  }}
executions
  epoch 1, attempt 1: retried by host-1
    started TIME, took T
    try
    later\\x1b[0m
  epoch 2, attempt 2: failed by host-1
    started TIME, took T
    {{
      "type": "SMTPError",
      "message": "mailbox unavailable"
    }}
"""
    )
    answer = at("show", job_id, "--json").json()
    assert answer["error"]["type"] == "SMTPError"
    assert [run["epoch"] for run in answer["executions"]] == [1, 2]
    assert answer["executions"][0]["started_at"].endswith("Z")


def test_a_job_that_waits(at: Command, url: str) -> None:
    with Oncely(url) as app:
        job_id = app.enqueue("later", delay=7230).job_id
    shown = at("show", job_id).out
    assert re.search(r"\n  state            scheduled\n", shown)
    assert re.search(r"\n  due              [-0-9]+ [:0-9]+ UTC, in 2 hours\n", shown)
    assert re.search(r"\n  ended            not yet\n", shown)
    assert "payload" not in shown


def test_an_unknown_job(at: Command) -> None:
    for unknown in ("nonsense", "01a1e167-7239-75cf-8141-9bcd7a8dc380"):
        done = at("show", unknown)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"oncely: there is no job '{unknown}' in this store")
        assert done.err.count("\n") == 1
    done = at("show", "nonsense", "--json")
    assert (done.code, done.out) == (1, "")
    assert json.loads(done.err)["error"] == "JobNotFound"
