"""The audit trail and the filters of lists through a server: the same as at the store itself."""

from datetime import UTC, datetime, timedelta

from oncely import NewJob, Oncely
from tests.surface.http.server import Client


def test_the_trail_has_the_token_that_acted(client: Client, app: Oncely) -> None:
    made = app.create_token(["admin"], name="ops")
    limited = app.create_token(["admin"], queues=["q"])
    job_id = app.enqueue("k", queue="q").job_id
    with Oncely(str(client.base_url), api_key=made.key) as remote:
        remote.cancel(job_id)
        remote.pause("q")
        remote.set_queue("q", concurrency=3)
        assert remote.audit() == app.audit()
        assert remote.audit(about="job", name=job_id, limit=1) == app.audit(name=job_id)
        last = remote.audit(limit=2)[-1].id
        assert [entry.act for entry in remote.audit(before=last)][:1] == ["cancel"]
    who = f"token:ops ({made.token.token_id})"
    assert [(entry.act, entry.by) for entry in app.audit(limit=3)] == [
        ("set_queue", who),
        ("pause", who),
        ("cancel", who),
    ]
    headers = {"authorization": f"Bearer {made.key}"}
    page = client.get("/v1/audit?limit=1", headers=headers).json()
    assert page["entries"][0]["act"] == "set_queue"
    assert page["nextCursor"] == page["entries"][0]["id"]
    for wrong in ("limit=0", "cursor=x", "about=x", "name=", "by=%00"):
        assert client.get(f"/v1/audit?{wrong}", headers=headers).status_code == 422, wrong
    refused = client.get("/v1/audit", headers={"authorization": f"Bearer {limited.key}"})
    assert (refused.status_code, refused.json()["code"]) == (403, "queue_forbidden")


def test_lists_are_filtered(client: Client, app: Oncely) -> None:
    app.enqueue_many(
        NewJob(
            "k", n, queue=f"q{n % 3}", group_key=f"g{n % 2}", tags=[f"t{n}"], idempotency_key="k"
        )
        for n in range(3)
    )
    limited = app.create_token(["read"], queues=["q0", "q1"]).key
    with Oncely(str(client.base_url), api_key=limited) as few:
        assert [job.payload for job in few.jobs(key="k")] == [1, 0]
        assert [job.payload for job in few.jobs(tag="t2")] == []
    key = app.create_token(["read"]).key
    with Oncely(str(client.base_url), api_key=key) as remote:
        tomorrow = datetime.now(UTC) + timedelta(days=1)
        for filters in (
            {"group_key": "g0"},
            {"tag": "t1"},
            {"key": "k"},
            {"key": "none"},
            {"created_from": tomorrow},
            {"created_until": tomorrow},
        ):
            there, here = ([job.job_id for job in each.jobs(**filters)] for each in (remote, app))
            assert there == here, filters
        assert len(remote.jobs(created_until=tomorrow)) == 3
