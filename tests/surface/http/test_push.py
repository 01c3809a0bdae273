"""Push through the server: set over HTTP, delivered by it, acknowledged over HTTP."""

from typing import Any

import pytest

from oncely import Oncely, Push, PushRefused, PushTarget
from tests.engine.push_receiver import Receiver, receiver, status
from tests.surface.http.server import Client, in_thread
from tests.waiting import wait_until

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"


@pytest.fixture(autouse=True)
def _loopback_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONCELY_PUSH_ALLOW", "127.0.0.0/8")


def put(client: Client, there: Receiver, mode: str = "sync", **policy: Any) -> Any:
    push = {"url": there.url, "secret": SECRET, "mode": mode}
    return client.put("/v1/queues/hooks", json={"push": push, **policy})


def state_of(client: Client, job_id: str) -> str:
    return str(client.get(f"/v1/jobs/{job_id}").json()["state"])


def test_what_is_published_arrives(client: Client) -> None:
    with receiver() as there:
        told = put(client, there, concurrency=5)
        assert told.status_code == 200
        assert told.json()["push"] == {"url": there.url, "mode": "sync"}
        assert SECRET not in client.get("/v1/queues/hooks").text + client.get("/v1/queues").text
        job_id = client.publish("hooks", {"n": 1}, kind="order.paid").json()["id"]
        wait_until(lambda: there.requests)
        [request] = there.requests
        assert request.job["id"] == request.headers["webhook-id"] == job_id
        assert request.job["payload"] == {"n": 1}
        wait_until(lambda: state_of(client, job_id) == "completed")


REFUSED: list[tuple[Any, str]] = [
    ({"url": "http://10.0.0.1/", "secret": SECRET}, "push_target_refused"),
    ({"url": "http://0x7f000001/", "secret": SECRET}, "push_target_refused"),
    ({"url": "ftp://127.0.0.1/", "secret": SECRET}, "push_target_refused"),
    ({"url": "http://127.0.0.1/"}, "invalid_request"),
    ({"url": "http://127.0.0.1/", "secret": "short"}, "invalid_request"),
    ({"url": "http://127.0.0.1/", "secret": SECRET, "mode": "later"}, "invalid_request"),
    ({"secret": SECRET}, "invalid_request"),
    ("http://127.0.0.1/", "invalid_request"),
]


def test_a_target_that_cannot_be_is_refused_and_nothing_is_set(client: Client) -> None:
    for push, code in REFUSED:
        told = client.put("/v1/queues/hooks", json={"push": push, "concurrency": 3})
        assert (told.status_code, told.json()["code"]) == (422, code), push
        assert SECRET not in told.text
    assert client.get("/v1/queues").json() == {"queues": []}


def accepted(client: Client, there: Receiver, number: int = 1) -> Any:
    """The request of an execution that the server knows to be accepted."""
    wait_until(lambda: len(there.requests) == number)
    return there.requests[-1].job


ENDS: list[tuple[str, dict[str, Any], str]] = [
    ("ack", {"result": {"paid": True}}, "completed"),
    ("nack", {"retryable": False, "reason": "no such order"}, "failed"),
    ("nack", {"retryable": True, "retryAfter": 3600}, "scheduled"),
    ("defer", {"retryAfter": 3600}, "scheduled"),
]


def test_a_receiver_in_mode_ack_says_later_how_it_ended(client: Client) -> None:
    with receiver(status(202)) as there:
        put(client, there, "ack", ackTimeout=600)
        for n, (verb, body, state) in enumerate(ENDS, 1):
            job_id = client.publish("hooks").json()["id"]
            says = {"executionId": accepted(client, there, n)["executionId"], **body}
            for _ in range(2):  # the same again is 200 too
                told = client.post(f"/v1/jobs/{job_id}/{verb}", json=says)
                assert told.status_code == 200, told.text
                assert state_of(client, job_id) == state


def test_how_long_it_took_is_counted_once_though_two_see_it(app: Oncely) -> None:
    """The pusher sees that a job was accepted, the server that it has ended."""
    with receiver(status(202)) as there, in_thread(app) as url, Client(url) as client:
        put(client, there, "ack", ackTimeout=600)
        job_id = client.publish("hooks").json()["id"]
        says = {"executionId": accepted(client, there)["executionId"]}
        assert client.post(f"/v1/jobs/{job_id}/ack", json=says).status_code == 200
    for measure in ("waited", "ran"):
        took = app.traffic().latency(measure, queue="hooks")
        assert took is not None
        assert took.count == 1, measure


def test_a_target_is_set_from_python_through_the_server(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the server that says which addresses may be."""
    with receiver() as there, Oncely(str(client.base_url)) as far:
        far.set_queue("hooks", push=Push(there.url, secret=[SECRET, SECRET], mode="ack"))
        [queue] = far.queues()
        assert queue.push == PushTarget(there.url, "ack")
        monkeypatch.delenv("ONCELY_PUSH_ALLOW")
        with pytest.raises(PushRefused, match="not a public address"):
            far.set_queue("hooks", push=Push(there.url))
        far.set_queue("hooks", push=None)
        assert [queue.push for queue in far.queues()] == [None]
