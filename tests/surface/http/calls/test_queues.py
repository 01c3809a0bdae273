"""Queues over HTTP: their policy, set in part, lifted with null; pauses."""

from oncely import Oncely, Retry
from oncely.model.redact import HIDDEN
from tests.surface.http.server import Client


def test_a_policy_is_set_in_parts_and_lifted_with_null(client: Client, app: Oncely) -> None:
    plain = client.get("/v1/queues/q").json()
    assert plain == {
        "name": "q",
        "paused": False,
        "maxAttempts": None,
        "backoff": None,
        "ackTimeout": None,
        "concurrency": None,
        "rate": None,
        "push": None,
        "requireKey": False,
        "waiting": 0,
        "running": 0,
    }
    client.put("/v1/queues/q", json={"maxAttempts": 3, "concurrency": 2, "ackTimeout": 30})
    client.put("/v1/queues/q", json={"backoff": {"type": "fixed", "base": 5, "cap": 50}})
    told = client.put("/v1/queues/q", json={"rate": {"count": 10, "seconds": 60}}).json()
    assert told["backoff"] == {"type": "fixed", "base": 5, "cap": 50}
    assert (told["maxAttempts"], told["concurrency"], told["ackTimeout"]) == (3, 2, 30)
    assert told["rate"] == {"count": 10, "seconds": 60}
    [queue] = app.queues()
    assert queue.retry == Retry(max_attempts=3, backoff="fixed", base=5, cap=50)
    assert (queue.rate, queue.concurrency, queue.timeout) == ((10, 60.0), 2, 30.0)
    assert client.put("/v1/queues/q", json={}).json() == told
    lifted = dict.fromkeys(("maxAttempts", "backoff", "ackTimeout", "concurrency", "rate"))
    assert client.put("/v1/queues/q", json=lifted).json() == plain


def test_a_bad_policy_changes_nothing(client: Client, app: Oncely) -> None:
    before = client.put("/v1/queues/q", json={"maxAttempts": 3}).json()
    for body in (
        {"maxAttempts": 21},
        {"maxAttempts": 0},
        {"concurrency": 0},
        {"concurrency": 5, "rate": {"count": 0, "seconds": 1}},
        {"concurrency": 5, "rate": {"count": 1, "seconds": 5e-324}},
        {"concurrency": 5, "backoff": {"type": "linear"}},
        {"concurrency": 5, "backoff": {"base": -1}},
        {"requireKey": None},
        {"ackTimeout": 0},
        {"paused": True},
    ):
        refused = client.put("/v1/queues/q", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), body
        assert client.get("/v1/queues/q").json() == before
    refused = client.put("/v1/queues/no%20name", json={"maxAttempts": 3})
    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")


def test_a_push_target_that_is_not_public_is_refused(client: Client, app: Oncely) -> None:
    push = {"url": "http://169.254.169.254/latest", "secret": "whsec_" + "A" * 44}
    refused = client.put("/v1/queues/q", json={"push": push, "concurrency": 1})
    assert (refused.status_code, refused.json()["code"]) == (422, "push_target_refused")
    assert client.get("/v1/queues/q").json()["push"] is None
    assert client.get("/v1/queues/q").json()["concurrency"] is None


def test_pause_and_resume(client: Client, app: Oncely) -> None:
    client.publish("q", 1)
    for verb, paused in (("pause", True), ("pause", True), ("resume", False)):
        told = client.post(f"/v1/queues/q/{verb}")
        assert (told.status_code, told.json()["paused"], told.json()["waiting"]) == (200, paused, 1)
    assert [queue["name"] for queue in client.get("/v1/queues").json()["queues"]] == ["q"]


def test_the_secrets_in_a_push_url_are_for_admins_alone(client: Client, app: Oncely) -> None:
    url = "https://93.184.216.34/hooks/aBc123DeF456?token=s3cr3t"
    push = {"url": url, "secret": "whsec_" + "A" * 44}
    keys = {scope: app.create_token([scope]).key for scope in ("read", "admin")}
    admin = {"Authorization": f"Bearer {keys['admin']}"}
    set_by_admin = client.put("/v1/queues/q", json={"push": push}, headers=admin)
    assert set_by_admin.json()["push"]["url"] == url
    for path in ("/v1/queues", "/v1/queues/q", "/v1/limits"):
        read = client.get(path, headers={"Authorization": f"Bearer {keys['read']}"})
        assert f"https://93.184.216.34/hooks/{HIDDEN}?token={HIDDEN}" in read.text
    [entry] = app.audit(about="queue")
    assert "s3cr3t" not in repr(entry)
    assert "aBc123DeF456" not in repr(entry)
