"""Steering over HTTP: the same verbs as in Python, and the same refusals."""

from oncely import Context, Nack, Oncely
from tests.surface.http.server import Client

UNKNOWN = "01900000-0000-7000-8000-000000000000"


def fail_some(app: Oncely, client: Client, count: int = 1, queue: str = "q") -> list[str]:
    if "k" not in app._registry._handlers:

        @app.job("k")
        def fail(_: Context) -> None:
            raise Nack("mailbox unavailable", retryable=False)

    ids = [client.publish(queue, n, kind="k").json()["id"] for n in range(count)]
    app.drain()
    return ids


def test_cancel_ends_a_job_and_can_be_repeated(client: Client, app: Oncely) -> None:
    job_id = client.publish("q", 1).json()["id"]
    for _ in range(2):
        told = client.post(f"/v1/jobs/{job_id}/cancel")
        assert (told.status_code, told.json()) == (200, {"id": job_id, "state": "cancelled"})
    [failed] = fail_some(app, client)
    told = client.post(f"/v1/jobs/{failed}/cancel", json={})
    assert (told.status_code, told.json()["code"]) == (409, "wrong_state")
    assert told.json()["jobId"] == failed


def test_replay_puts_a_failed_job_back(client: Client, app: Oncely) -> None:
    [job_id] = fail_some(app, client)
    told = client.post(f"/v1/jobs/{job_id}/replay").json()
    assert told == {"id": job_id, "state": "pending", "forgotten": []}
    again = client.post(f"/v1/jobs/{job_id}/replay")
    assert (again.status_code, again.json()["code"]) == (409, "wrong_state")


def test_replay_names_who_holds_the_unique_key(client: Client, app: Oncely) -> None:
    @app.job("once", queue="q")
    def fail(_: Context) -> None:
        raise Nack("no", retryable=False)

    first = client.publish("q", 1, kind="once", uniqueKey="u").json()["id"]
    app.drain()
    holder = client.publish("q", 1, kind="once", uniqueKey="u").json()["id"]
    told = client.post(f"/v1/jobs/{first}/replay")
    assert (told.status_code, told.json()["code"]) == (409, "unique_key_taken")
    assert told.json()["jobId"] == holder


def test_a_held_job_goes_on_when_its_doubt_is_resolved(client: Client, app: Oncely) -> None:
    @app.job("mail", queue="q")
    def mail(ctx: Context) -> object:
        return ctx.fence("send", timed_out)

    def timed_out() -> None:
        raise TimeoutError("no answer")

    job_id = client.publish("q", 1, kind="mail").json()["id"]
    app.drain()
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["endedAt"]) == ("in_doubt", None)
    wrong = client.post(f"/v1/jobs/{job_id}/resolve", json={"effect": "other", "happened": True})
    assert (wrong.status_code, wrong.json()["code"]) == (404, "effect_not_found")
    for body in ({"effect": "send"}, {"effect": "send", "happened": False, "result": 1}):
        refused = client.post(f"/v1/jobs/{job_id}/resolve", json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request")
    body = {"effect": "send", "happened": True, "result": {"id": 7}, "note": "seen"}
    told = client.post(f"/v1/jobs/{job_id}/resolve", json=body)
    assert (told.status_code, told.json()) == (200, {"id": job_id, "state": "pending"})
    app.drain()
    job = client.get(f"/v1/jobs/{job_id}").json()
    assert (job["state"], job["result"]) == ("completed", {"id": 7})
    [word] = job["effects"][0]["resolutions"]
    assert (word["happened"], word["note"], word["by"]) == (True, "seen", "http")


def test_many_are_replayed_by_filter(client: Client, app: Oncely) -> None:
    ids = fail_some(app, client, 5)
    others = fail_some(app, client, 2, queue="other")
    would = client.post("/v1/dlq/replay", json={"queue": "q", "dryRun": True}).json()
    assert would == {"replayed": 0, "matching": 5}
    assert len(client.get("/v1/dlq").json()["jobs"]) == 7
    told = client.post("/v1/dlq/replay", json={"queue": "q", "error": "mailbox", "limit": 2})
    assert told.json() == {"replayed": 2, "matching": 2}
    assert [app.get(id).state for id in ids] == ["pending"] * 2 + ["failed"] * 3  # type: ignore[union-attr]
    assert client.post("/v1/dlq/replay", json={"kind": "other"}).json()["replayed"] == 0
    for unclear in ({}, {"queue": None}, {"all": False}, {"all": True, "queue": "q"}):
        refused = client.post("/v1/dlq/replay", json=unclear)
        assert (refused.status_code, refused.json()["code"]) == (422, "invalid_request"), unclear
    assert client.post("/v1/dlq/replay").status_code == 422
    assert client.post("/v1/dlq/replay", json={"all": True}).json()["replayed"] == 5
    assert {app.get(id).state for id in ids + others} == {"pending"}  # type: ignore[union-attr]


def test_no_such_job(client: Client) -> None:
    for verb, body in (
        ("cancel", {}),
        ("replay", {}),
        ("resolve", {"effect": "e", "happened": True}),
    ):
        for job_id in (UNKNOWN, "nonsense"):
            told = client.post(f"/v1/jobs/{job_id}/{verb}", json=body)
            assert (told.status_code, told.json()["code"]) == (404, "job_not_found")
