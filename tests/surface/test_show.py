import json
import re

from oncely import Oncely
from oncely.store.deliver import Settlement
from tests.surface.command import Command, deliver, fail

MOMENT = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d\d\d UTC| UTC, (now|\d+ seconds? ago))"


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
        app.enqueue("mail.send", unique_key="welcome:42")
        failure = {"type": "SMTPError", "message": "try\nlater\x1b[0m"}
        error = json.dumps({**failure, "traceback": "Traceback:\n  line 1\x1b[0m"})
        deliver(
            app,
            "mail",
            lambda job: Settlement(
                job.job_id, job.attempt, outcome="retried", attempts=1, error=error
            ),
        )
        fail(app, "mail")
    shown = at("show", job_id).out
    told = re.sub(MOMENT, "TIME", shown)
    assert re.sub(r"after \d\.\d\d\d s", "after T s", told) == (
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
story
  TIME  enqueued      idempotency key call:1, unique key welcome:42
  TIME  deduplicated  at enqueue, by its unique key
  TIME  claimed       epoch 1, attempt 1, by host-1
  TIME  retried       epoch 1, attempt 1, by host-1, after T s, SMTPError: try later\\x1b[0m
    Traceback:
      line 1\\x1b[0m
  TIME  claimed       epoch 2, attempt 2, by host-1
  TIME  failed        epoch 2, attempt 2, by host-1, after T s, SMTPError: mailbox unavailable
  now: failed
"""
    )
    answer = at("show", job_id, "--json").json()
    assert answer["error"]["type"] == "SMTPError"
    assert [run["epoch"] for run in answer["executions"]] == [1, 2]
    assert answer["executions"][0]["started_at"].endswith("Z")
    assert [event["what"] for event in answer["story"]] == [
        "enqueued", "deduplicated", "claimed", "retried", "claimed", "failed",
    ]  # fmt: skip
    assert answer["story"][1].items() >= {"boundary": "enqueue", "key": "unique"}.items()


def test_a_job_that_waits(at: Command, url: str) -> None:
    with Oncely(url) as app:
        job_id = app.enqueue("later", delay=7230).job_id
    shown = at("show", job_id).out
    assert re.search(r"\n  state            scheduled\n", shown)
    assert re.search(r"\n  due              [-0-9]+ [:0-9]+ UTC, in 2 hours\n", shown)
    assert re.search(r"\n  ended            not yet\n", shown)
    assert "payload" not in shown
    assert re.search(r"\n  now: waits, due in 72\d\d s\n$", shown)


def test_an_unknown_job(at: Command) -> None:
    for unknown in ("nonsense", "01a1e167-7239-75cf-8141-9bcd7a8dc380"):
        done = at("show", unknown)
        assert (done.code, done.out) == (1, "")
        assert done.err.startswith(f"oncely: there is no job '{unknown}' in this store")
        assert done.err.count("\n") == 1
    done = at("show", "nonsense", "--json")
    assert (done.code, done.out) == (1, "")
    assert json.loads(done.err)["error"] == "JobNotFound"


def test_secrets_are_hidden(at: Command, url: str) -> None:
    with Oncely(url) as app:
        payload = {"to": "ann", "password": "hunter2", "url": "https://ann:hunter2@example.com/"}
        job_id = app.enqueue("mail.send", payload, queue="mail").job_id
        error = json.dumps(
            {"type": "E", "message": "pwd=hunter2", "traceback": "Authorization: Token hunter2"}
        )
        deliver(
            app,
            "mail",
            lambda job: Settlement(
                job.job_id, job.attempt, outcome="retried", attempts=1, error=error
            ),
        )
    for shown in (at("show", job_id), at("show", job_id, "--json")):
        assert shown.code == 0
        assert "hunter2" not in shown.out
        assert "ann" in shown.out
