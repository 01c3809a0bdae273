import json
import sys
from datetime import UTC, datetime, timedelta
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from oncely import Oncely
from tests.surface.command import Command

CHARGE = ("enqueue", "order.charge", '{"order_id": "9482"}', "--idempotency-key", "order:9482")


def test_a_repeat_is_recognised(at: Command, url: str) -> None:
    first = at(*CHARGE)
    with Oncely(url) as app:
        [job] = app.jobs()
    assert first.out == f"inserted job {job.job_id}, pending\n"
    assert (first.code, first.err) == (0, "")
    again = at(*CHARGE)
    assert again.out == f"deduplicated: job {job.job_id} already there, pending\n"
    assert again.code == 0
    receipt = at(*CHARGE, "--json").json()
    assert receipt == {"job_id": job.job_id, "inserted": False, "state": "pending"}


def test_another_payload_under_the_key_is_refused(at: Command, url: str) -> None:
    job_id = at(*CHARGE, "--json").json()["job_id"]
    done = at("enqueue", "order.charge", "{}", *CHARGE[3:])
    assert done.code == 2
    assert done.err.startswith("oncely: idempotency key 'order:9482' in queue 'default' belongs")
    assert job_id in done.err
    assert done.err.count("\n") == 1
    done = at("enqueue", "order.charge", "{}", *CHARGE[3:], "--json")
    assert json.loads(done.err)["error"] == "KeyConflict"
    assert (done.code, done.out) == (2, "")
    with Oncely(url) as app:
        assert len(app.jobs()) == 1


def test_every_option_arrives(at: Command, url: str) -> None:
    at(
        *("enqueue", "report.make", "[1, 2.5, null]", "--queue", "reports", "--priority", "-3"),
        *("--run-at", "2031-05-06T07:08:09+02:00", "--unique-key", "report:7"),
        *("--idempotency-key", "call:7", "--group-key", "tenant:1", "--max-attempts", "4"),
        *("--timeout", "2.5", "--tag", "a", "--tag", "b c"),
    )
    with Oncely(url) as app:
        [job] = app.jobs()
    assert job.kind == "report.make"
    assert job.queue == "reports"
    assert job.payload == [1, 2.5, None]
    assert job.priority == -3
    assert job.due_at == datetime(2031, 5, 6, 5, 8, 9, tzinfo=UTC)
    assert (job.unique_key, job.idempotency_key, job.group_key) == (
        "report:7",
        "call:7",
        "tenant:1",
    )
    assert (job.max_attempts, job.timeout, job.tags) == (4, 2.5, ["a", "b c"])


def test_a_delay(at: Command, url: str) -> None:
    assert at("enqueue", "later", "--delay", "90").out.endswith(", scheduled\n")
    with Oncely(url) as app:
        [job] = app.jobs()
    assert job.payload is None
    assert job.due_at - job.created_at == timedelta(seconds=90)


@pytest.mark.parametrize("dash", [["-"], ["-", "--json"], ["--json", "-"], ["@-"]])
def test_the_payload_on_standard_input(
    here: Command, sqlite_url: str, dash: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", TextIOWrapper(BytesIO(' {"é": [1]}\n'.encode())))
    assert here("enqueue", "--url", sqlite_url, "k", *dash).code == 0
    with Oncely(sqlite_url) as app:
        assert app.jobs()[0].payload == {"é": [1]}


def test_the_payload_in_a_file(here: Command, sqlite_url: str, folder: Path) -> None:
    (folder / "payload.json").write_text('"from the file"\n')
    assert here("enqueue", "k", f"@{folder}/payload.json", "--url", sqlite_url).code == 0
    with Oncely(sqlite_url) as app:
        assert app.jobs()[0].payload == "from the file"


def test_what_looks_like_an_option_and_is_none(here: Command, sqlite_url: str) -> None:
    assert here("enqueue", "k", "-7", "--group-key=-", "--url", sqlite_url).code == 0
    with Oncely(sqlite_url) as app:
        [job] = app.jobs()
    assert (job.payload, job.group_key) == (-7, "-")


def test_a_doubtful_key_is_one_line_of_warning(at: Command) -> None:
    random_key = "0b5e3a0e-3f0e-4c0e-9d7c-3a8d5a2b1c00"
    done = at("enqueue", "k", "--unique-key", random_key)
    assert done.code == 0
    assert done.out.startswith("inserted job ")
    assert done.err.startswith(f"oncely: warning: unique_key '{random_key}' of kind 'k' looks")
    assert done.err.count("\n") == 1
    done = at("enqueue", "k", "--unique-key", random_key, "--json")
    assert json.loads(done.err)["warning"] == "KeyWarning"
    assert done.json()["inserted"] is False


def test_a_store_without_schema_names_the_command(here: Command, postgres_url: str) -> None:
    done = here("enqueue", "k", "--url", postgres_url)
    assert done.code == 1
    assert done.err.startswith("oncely: the store's schema is missing: run `oncely migrate`")
