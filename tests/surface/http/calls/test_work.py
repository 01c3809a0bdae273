"""Workers over HTTP, in any language: claim, ack, nack, defer, heartbeat."""

import json
import socket
import threading
from typing import Any

import httpx2
import pytest

from oncely import NewJob, Oncely, Retry
from oncely.model.token import SCOPES
from tests.engine.steps import let_days_pass, run_out, sql
from tests.surface.http import server
from tests.surface.http.server import Client, in_thread
from tests.waiting import PATIENCE_SECONDS, wait_until


def claim(client: Client, queue: str = "default", **fields: Any) -> list[dict[str, Any]]:
    answer = client.post(f"/v1/queues/{queue}/claim", json={"workerId": "w", **fields})
    assert answer.status_code == 200, answer.text
    jobs: list[dict[str, Any]] = answer.json()["jobs"]
    return jobs


def say(client: Client, verb: str, job: dict[str, Any], **fields: Any) -> httpx2.Response:
    body = {"executionId": job["executionId"], **fields}
    return client.post(f"/v1/jobs/{job['id']}/{verb}", json=body)


def state(app: Oncely, job: dict[str, Any]) -> str:
    found = app.get(job["id"])
    assert found is not None
    return found.state


def test_a_claimed_job_says_all_that_is_needed_to_run_it(client: Client, app: Oncely) -> None:
    app.enqueue("k", {"a": [1, "ü"]}, group_key="g", max_attempts=3, timeout=5)
    [job] = claim(client, max=10)
    found = app.get(job["id"])
    assert found is not None
    assert found.state == "running"
    assert job == {
        "id": found.job_id,
        "executionId": job["executionId"],
        "epoch": job["epoch"],
        "attempt": 1,
        "maxAttempts": 3,
        "kind": "k",
        "queue": "default",
        "groupKey": "g",
        "payload": {"a": [1, "ü"]},
        "timeout": 5.0,
        "traceparent": None,
    }


def test_several_jobs_of_one_claim_are_settled_one_by_one(client: Client, app: Oncely) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(4))
    jobs = claim(client, max=3, leaseSeconds=30)
    assert len(jobs) == 3
    assert say(client, "ack", jobs[0], result={"n": 0}).json()["state"] == "completed"
    assert say(client, "nack", jobs[1], reason="no", retryable=False).json()["state"] == "failed"
    assert say(client, "defer", jobs[2], retryAfter=60).json()["state"] == "scheduled"
    assert app.result(jobs[0]["id"]) == {"n": 0}
    failed = app.get(jobs[1]["id"])
    assert failed is not None
    assert failed.error == {"type": "Nack", "message": "no", "traceback": None}
    [left] = claim(client, max=10)
    assert left["payload"] == 3


def test_defers_are_bounded_from_the_first_of_them_not_by_the_age_of_the_job(
    client: Client, app: Oncely
) -> None:
    app.enqueue("k", delay=15 * 86_400)
    let_days_pass(app, 15)
    for days, left in ((13, "scheduled"), (2, "scheduled"), (0, "failed")):
        [job] = claim(client)
        assert say(client, "defer", job, retryAfter=60).json()["state"] == left
        let_days_pass(app, days)


@pytest.mark.parametrize(
    ("verb", "fields"),
    [
        ("ack", {"result": 1}),
        ("nack", {"reason": "x", "retryAfter": 60}),
        ("defer", {"retryAfter": 60}),
    ],
)
def test_the_same_again_is_200_and_changes_nothing(
    client: Client, app: Oncely, verb: str, fields: dict[str, Any]
) -> None:
    app.enqueue("k")
    [job] = claim(client)
    first = say(client, verb, job, **fields)
    before = app.get(job["id"])
    again = say(client, verb, job, **fields)
    assert (first.status_code, again.status_code) == (200, 200)
    assert app.get(job["id"]) == before


def test_only_the_holder_may_speak_for_a_job(client: Client, app: Oncely) -> None:
    app.enqueue("k")
    [old] = claim(client)
    run_out(app)
    [new] = claim(client)
    assert new["epoch"] > old["epoch"]
    for verb, fields in (
        ("ack", {}),
        ("nack", {}),
        ("defer", {"retryAfter": 1}),
        ("heartbeat", {}),
    ):
        refused = say(client, verb, old, **fields)
        assert (refused.status_code, refused.json()["code"]) == (409, "lease_lost"), verb
        assert refused.json()["jobId"] == old["id"]
    assert say(client, "heartbeat", new, extendSeconds=90).status_code == 200
    assert say(client, "ack", new).status_code == 200


@pytest.mark.parametrize(
    ("verb", "fields", "left"),
    [
        ("ack", {}, "completed"),
        ("nack", {"retryAfter": 60}, "scheduled"),
        ("defer", {"retryAfter": 60}, "scheduled"),
        ("heartbeat", {}, "running"),
    ],
)
def test_what_comes_late_is_accepted_while_nobody_else_holds_the_job(
    client: Client, app: Oncely, verb: str, fields: dict[str, Any], left: str
) -> None:
    app.enqueue("k")
    [job] = claim(client)
    run_out(app)
    assert say(client, verb, job, **fields).status_code == 200
    assert state(app, job) == left


def test_a_nack_goes_by_the_policy_of_the_queue(client: Client, app: Oncely) -> None:
    app.set_queue("q", retry=Retry(max_attempts=2, backoff="fixed", base=0, jitter=False))
    app.enqueue("k", queue="q")
    for attempt, left in ((1, "pending"), (2, "failed")):
        [job] = claim(client, "q")
        assert (job["attempt"], job["maxAttempts"]) == (attempt, 2)
        assert say(client, "nack", job, reason="again").json()["state"] == left


def test_a_defer_burns_no_attempt(client: Client, app: Oncely) -> None:
    app.enqueue("k", max_attempts=1)
    for _ in range(3):
        [job] = claim(client)
        assert job["attempt"] == 1
        say(client, "defer", job, retryAfter=0)
    assert state(app, job) == "pending"


def test_a_repeated_request_gets_the_same_claim_from_any_server(
    client: Client, app: Oncely
) -> None:
    app.enqueue_many(NewJob("k", n) for n in range(4))
    first = claim(client, max=2, requestId="r1")
    with in_thread(app) as url, Client(url) as other:
        assert claim(other, max=2, requestId="r1") == first
        assert len(claim(other, max=10)) == 2


def is_listened_for(app: Oncely, queue: str) -> bool:
    """Whether somebody waits for jobs of this queue, by the app's own engine."""
    ears = app._engine._listener._ears  # type: ignore[attr-defined]
    return any(f"queue:{queue}" in ear.topics for ear in tuple(ears))


def test_a_claim_waits_until_there_is_a_job(app: Oncely) -> None:
    got: list[list[dict[str, Any]]] = []
    with in_thread(app) as url, Client(url) as client:
        assert claim(client, waitSeconds=0) == []
        waiting = threading.Thread(target=lambda: got.append(claim(client, waitSeconds=20)))
        waiting.start()
        wait_until(lambda: is_listened_for(app, "default") or not waiting.is_alive())
        app.enqueue("k", 7)
        waiting.join(PATIENCE_SECONDS)
    assert [job["payload"] for job in got[0]] == [7]


def test_a_job_that_falls_due_during_the_wait_is_given_out(client: Client, app: Oncely) -> None:
    app.enqueue("k", delay=0.5)
    assert len(claim(client, waitSeconds=20)) == 1


def test_a_claim_that_nobody_waits_for_any_more_takes_nothing(app: Oncely) -> None:
    body = b'{"workerId": "gone", "waitSeconds": 20}'
    head = (
        "POST /v1/queues/default/claim HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with server.running(app) as served:
        port = int(served.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as impatient:
            impatient.sendall(head.encode() + body)
            wait_until(lambda: is_listened_for(app, "default"))
        wait_until(
            lambda: not served.server.server_state.connections, "the server saw that it is gone"
        )
        job = {"id": app.enqueue("k").job_id}
        wait_until(lambda: not is_listened_for(app, "default"))
        assert state(app, job) == "pending"


def test_limits_hold_for_claims_over_http(client: Client, app: Oncely) -> None:
    app.set_queue("default", concurrency=2)
    app.enqueue_many(NewJob("k", n, group_key=f"g{n}") for n in range(5))
    jobs = claim(client, max=5)
    assert len(jobs) == 2
    say(client, "ack", jobs[0])
    assert len(claim(client, max=5)) == 1


BAD: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/queues/q/claim", {}, "workerId"),
    ("/v1/queues/q/claim", {"workerId": "w", "max": 0}, "max"),
    ("/v1/queues/q/claim", {"workerId": "w", "max": 101}, "max"),
    ("/v1/queues/q/claim", {"workerId": "w", "waitSeconds": 21}, "waitSeconds"),
    ("/v1/queues/q/claim", {"workerId": "w\x00"}, "workerId"),
    ("/v1/queues/q/claim", {"workerId": "w", "requestId": "\x00"}, "requestId"),
    ("/v1/jobs/{id}/ack", {}, "executionId"),
    ("/v1/jobs/{id}/ack", {"executionId": "nonsense"}, "executionId"),
    ("/v1/jobs/{id}/defer", {"executionId": "{e}"}, "retryAfter"),
    ("/v1/jobs/{id}/heartbeat", {"executionId": "{e}", "extendSeconds": 0}, "extendSeconds"),
    ("/v1/jobs/{id}/nack", {"executionId": "{e}", "retryAfter": -1}, "retryAfter"),
]


@pytest.fixture
def running(client: Client, app: Oncely) -> dict[str, Any]:
    app.enqueue("k", queue="r")
    return claim(client, "r")[0]


def test_bad_input_is_one_clear_answer(
    client: Client, app: Oncely, running: dict[str, Any]
) -> None:
    for path, body, named in BAD:
        sent = {
            name: running["executionId"] if value == "{e}" else value
            for name, value in body.items()
        }
        answer = client.post(path.replace("{id}", running["id"]), json=sent)
        assert answer.status_code == 422, (path, body, answer.text)
        assert named in answer.json()["detail"], answer.text
    assert state(app, running) == "running"


def test_a_report_may_speak_of_a_place_twice_or_say_nothing(client: Client, app: Oncely) -> None:
    sample = {"measure": "ran", "queue": "q", "kind": "k", "buckets": {"3": 2}}
    report: dict[str, Any] = {"workerId": "w", "running": 0, "samples": [sample, sample]}
    told = client.post("/v1/worker/report", json=report)
    assert told.status_code == 200, told.text
    report["samples"] = [{**sample, "buckets": {}}]
    assert client.post("/v1/worker/report", json=report).status_code == 200
    [taken] = app.traffic().taken
    assert list(taken.steps.values()) == [{3: 4}]


EFFECT = {"executionId": "{e}", "name": "n", "verb": "fence", "fingerprint": "f"}
EXCHANGE = {"workerId": "w", "leaseSeconds": 60, "nonce": 1}
SPEAKING: list[tuple[str, dict[str, Any]]] = [
    ("/v1/jobs/{id}/ack", {"executionId": "{e}"}),
    ("/v1/jobs/{id}/nack", {"executionId": "{e}"}),
    ("/v1/jobs/{id}/defer", {"executionId": "{e}", "retryAfter": 1}),
    ("/v1/jobs/{id}/heartbeat", {"executionId": "{e}"}),
    ("/v1/jobs/{id}/effects/begin", EFFECT),
    ("/v1/jobs/{id}/effects/retake", EFFECT),
    ("/v1/jobs/{id}/effects/done", EFFECT),
    ("/v1/jobs/{id}/effects/clear", EFFECT),
    ("/v1/jobs/{id}/cancel", {}),
    ("/v1/jobs/{id}/replay", {}),
    ("/v1/jobs/{id}/resolve", {"effect": "n", "happened": True}),
    (
        "/v1/worker/exchange",
        {**EXCHANGE, "done": [{"executionId": "{e}", "attempt": 1, "state": "completed"}]},
    ),
    (
        "/v1/worker/exchange",
        {**EXCHANGE, "done": [{"executionId": "{e}", "attempt": 1, "repeats": ["n"]}]},
    ),
    ("/v1/worker/renew", {"workerId": "w", "leaseSeconds": 3_600, "leases": ["{lease}"]}),
]
"""All that can be said of a delivery by whoever knows it: `{e}`."""


def filled(body: dict[str, Any], job: dict[str, Any]) -> Any:
    told = json.dumps(body).replace("{e}", job["executionId"])
    return json.loads(told.replace('"{lease}"', json.dumps(lease(job))))


def lease(job: dict[str, Any]) -> dict[str, int]:
    nonce = job["executionId"].rpartition(".")[2]
    return {"epoch": job["epoch"], "nonce": int(nonce, 16)}


def test_a_key_for_other_queues_sees_neither_the_queue_nor_its_jobs(app: Oncely) -> None:
    mine = app.create_token(SCOPES, queues=["mine"]).key
    every = app.create_token(["work"]).key
    app.enqueue("k", queue="theirs")
    own = app.enqueue("k", queue="mine").job_id
    with in_thread(app) as url, Client(url, mine) as client, Client(url, every) as other:
        refused = client.post("/v1/queues/theirs/claim", json={"workerId": "w"})
        assert (refused.status_code, refused.json()["code"]) == (403, "queue_forbidden")
        refused = client.post("/v1/worker/exchange", json={**EXCHANGE, "queues": ["theirs"]})
        assert (refused.status_code, refused.json()["code"]) == (403, "queue_forbidden")
        [job] = claim(other, "theirs")
        before = everything(app, job)
        for path, body in SPEAKING:
            told = client.post(path.replace("{id}", job["id"]), json=filled(body, job))
            if path.startswith("/v1/jobs"):
                assert (told.status_code, told.json()["code"]) == (404, "job_not_found"), path
            elif "done" in body:
                assert told.json()["refused"] == [job["executionId"]], body
            else:
                assert told.json() == {"held": []}
            assert everything(app, job) == before, path
        [mine_too] = claim(client, "mine")
        ends = [
            {"executionId": each["executionId"], "attempt": 1, "state": "completed"}
            for each in (job, mine_too)
        ]
        told = client.post("/v1/worker/exchange", json={**EXCHANGE, "done": ends, "limit": 5})
        assert (told.json()["refused"], told.json()["claimed"]) == ([job["executionId"]], [])
        assert state(app, {"id": own}) == "completed"
        assert everything(app, job) == before
        assert say(other, "ack", job).status_code == 200


def everything(app: Oncely, job: dict[str, Any]) -> Any:
    lease = sql(app, f"select expires_at from oncely.lease where epoch = {job['epoch']}")
    return app.get(job["id"]), str(app.explain(job["id"])), lease


def test_no_key_can_speak_for_the_workers_of_another(app: Oncely) -> None:
    """The name of a worker is no secret: every reader sees it. A lease and a claim are of a key."""
    one, two = (app.create_token(["work"], queues=["default"]).key for _ in range(2))
    app.enqueue_many(NewJob("k", n) for n in range(2))
    with in_thread(app) as url, Client(url, one) as client, Client(url, two) as other:
        [job] = claim(client, requestId="r")
        before = everything(app, job)
        renew = {"workerId": "w", "leaseSeconds": 3_600, "leases": [lease(job)]}
        assert other.post("/v1/worker/renew", json=renew).json() == {"held": []}
        for name in (f"w@{one.split('_')[1]}", f"w@{one.split('_')[1]}@"):
            stolen = other.post("/v1/worker/renew", json={**renew, "workerId": name})
            assert stolen.json() == {"held": []}
        assert everything(app, job) == before
        [another] = claim(other, requestId="r")
        assert another["id"] != job["id"]
        assert claim(client, requestId="r") == [job]
        held = client.post("/v1/worker/renew", json=renew).json()["held"]
        assert held == [{**lease(job), "id": job["id"]}]
        assert everything(app, job) != before
        unknown = {"epoch": job["epoch"], "nonce": lease(job)["nonce"] ^ 1}
        for leases in ([], [unknown]):
            told = client.post("/v1/worker/renew", json={**renew, "leases": leases})
            assert told.json() == {"held": []}


def test_how_long_they_took_is_known_though_the_worker_tells_nothing(app: Oncely) -> None:
    app.enqueue_many([NewJob("k", n, queue="q") for n in range(3)])
    with in_thread(app) as url, Client(url) as client:
        first, second, third = claim(client, "q", max=3, requestId="r")
        assert claim(client, "q", max=3, requestId="r") == [first, second, third]
        for _ in range(2):  # what is told twice is counted once
            assert say(client, "ack", first).status_code == 200
            assert say(client, "nack", second).status_code == 200
            assert say(client, "defer", third, retryAfter=60).status_code == 200
    # The server has stopped, and told what it saw.
    found = app.traffic()
    assert [(each.measure, each.queue, each.kind) for each in found.taken] == [
        ("ran", "q", "k"),
        ("waited", "q", "k"),
    ]
    for measure in ("waited", "ran"):
        took = found.latency(measure)
        assert took is not None
        assert took.count == 3
