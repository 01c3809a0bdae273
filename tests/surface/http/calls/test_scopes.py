"""Who may do what: the table of calls, walked with every kind of key."""

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from oncely import Oncely
from oncely.model.token import SCOPES, Scope
from oncely.store import listing
from oncely.surface.http.endpoint import Endpoint
from oncely.surface.http.table import TABLE
from tests.surface.http.server import Client, in_thread

UNKNOWN = "01900000-0000-7000-8000-000000000000"
GUARDED = [endpoint for endpoint in TABLE if endpoint.scope is not None]
OPEN = {"healthz", "readyz"}
BODIES: dict[str, Any] = {
    "publish": {"payload": 1},
    "publish_batch": {"jobs": [{"payload": 1}]},
    "publish_to_queues": {"jobs": [{"payload": 1, "queue": "mine"}]},
    "resolve_effect": {"effect": "e", "happened": True},
    "wait_for_jobs": {"waitSeconds": 0},
}
"""Those that do nothing without one; the others take an empty one or refuse it, alike for all."""


@pytest.fixture
def address(app: Oncely) -> Iterator[str]:
    with in_thread(app) as url:
        yield url


def ask(client: Client, endpoint: Endpoint, job_id: str, queue: str = "mine") -> Any:
    path = endpoint.path.replace("{queue}", queue).replace("{id}", job_id)
    body = {} if endpoint.body is None else {"json": BODIES.get(endpoint.name, {})}
    return client.request(endpoint.method, path, **body)


def refused(answer: Any) -> str | None:
    """The code, if the key was the reason."""
    return answer.json()["code"] if answer.status_code in (401, 403) else None


def test_only_what_says_nothing_of_the_store_is_open() -> None:
    assert {endpoint.name for endpoint in TABLE if endpoint.scope is None} == OPEN
    assert {endpoint.scope for endpoint in GUARDED} == set(SCOPES)


def test_each_call_takes_its_scope_and_no_other(app: Oncely, address: str) -> None:
    job_id = app.enqueue("k", queue="mine").job_id
    keys: dict[Scope, str] = {scope: app.create_token([scope]).key for scope in SCOPES}
    for scope, key in keys.items():
        with Client(address, key) as client:
            for endpoint in GUARDED:
                told = refused(ask(client, endpoint, job_id))
                expected = None if endpoint.scope == scope else "scope_missing"
                assert told == expected, (endpoint.method, endpoint.path, scope)


def test_without_a_good_key_nothing_is_answered(app: Oncely, address: str) -> None:
    job_id = app.enqueue("k", queue="mine").job_id
    good = app.create_token(SCOPES)
    revoked, expired = app.create_token(SCOPES), app.create_token(SCOPES, expires_in=0)
    app.revoke_token(revoked.token.token_id)
    token_id, secret = good.key.split("_")[1:]
    wrong = [
        f"oncely_{token_id}_{secret[:-1]}{'a' if secret[-1] != 'a' else 'b'}",
        f"oncely_{'0' * 12}_{secret}",
        f"oncely_{revoked.token.token_id}_{secret}",
        revoked.key,
        expired.key,
        good.key.upper(),
        token_id,
        "x",
    ]
    with Client(address) as client:
        answers = [ask(client, endpoint, job_id) for endpoint in GUARDED]
        for key in wrong:
            client.headers["authorization"] = f"Bearer {key}"
            answers.append(ask(client, GUARDED[0], job_id))
        client.headers["authorization"] = f"Basic {good.key}"
        answers.append(ask(client, GUARDED[0], job_id))
        assert {(a.status_code, a.json()["code"]) for a in answers} == {(401, "unauthenticated")}
        assert {a.headers["www-authenticate"] for a in answers} == {"Bearer"}
        assert len({a.text for a in answers}) == 1
        client.headers["authorization"] = f"bearer {good.key}"
        assert ask(client, GUARDED[0], job_id).status_code == 201
    assert len(app.jobs()) == 2


def test_a_key_for_one_queue_sees_nothing_of_another(app: Oncely, address: str) -> None:
    hidden = app.enqueue("k", {"secret": 1}, queue="other", idempotency_key="i").job_id
    app.set_queue("other", concurrency=3)
    before, queues = app.get(hidden), app.queues()
    key = app.create_token(SCOPES, queues=["mine", "also"]).key
    with Client(address, key) as client:
        for endpoint in GUARDED:
            if "{queue}" in endpoint.path:
                for queue in ("other", "nowhere"):
                    assert refused(ask(client, endpoint, UNKNOWN, queue)) == "queue_forbidden"
            elif "{id}" in endpoint.path:
                there, absent = ask(client, endpoint, hidden), ask(client, endpoint, UNKNOWN)
                assert there.status_code == absent.status_code >= 400, endpoint.path
                assert there.text == absent.text, endpoint.path
            else:
                answer = ask(client, endpoint, UNKNOWN)
                assert hidden not in answer.text, endpoint.path
                assert "other" not in answer.text, endpoint.path
        for path in ("/v1/jobs?queue=other", "/v1/dlq?queue=other"):
            assert refused(client.get(path)) == "queue_forbidden"
        told = client.post("/v1/dlq/replay", json={"queue": "other"})
        assert refused(told) == "queue_forbidden"
        jobs = [{"payload": 1, "queue": queue} for queue in ("mine", "other")]
        assert refused(client.post("/v1/jobs/batch", json={"jobs": jobs})) == "queue_forbidden"
    assert app.get(hidden) == before
    assert [queue for queue in app.queues() if queue.name == "other"] == queues


def test_pages_of_several_queues_are_one_list_without_gaps(
    app: Oncely, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the queues are mixed: a page ends where the first of them was not read further, be it
    that it was full or that enough was looked at."""
    monkeypatch.setattr(listing, "LOOKED", 3)
    monkeypatch.setattr(listing, "LOOKED_JOINED", 3)

    @app.job("k")
    def fail(_: Any) -> None:
        raise ValueError

    queues = "aaaaabcbbbbbbacbabcaaabbacbbbb"
    ids = [app.enqueue("k", queue=queue, max_attempts=1).job_id for queue in queues]
    app.drain()
    mine = [id for id, queue in zip(ids, queues, strict=True) if queue != "c"]
    key = app.create_token(["read"], queues=["a", "b"]).key
    with Client(address, key) as client:
        for path, wanted in (
            ("jobs", mine[::-1]),
            ("jobs?state=failed", mine[::-1]),
            ("dlq", mine),
        ):
            for limit in (1, 2, 7, len(mine) - 1, 100):
                found: list[str] = []
                cursor: str | None = ""
                while cursor is not None:
                    url = httpx2.URL(f"/v1/{path}").copy_merge_params({"limit": limit})
                    page = client.get(url.copy_merge_params({"cursor": cursor} if cursor else {}))
                    told = [job["id"] for job in page.json()["jobs"]]
                    assert len(told) <= limit
                    found += told
                    cursor = page.json()["nextCursor"]
                assert found == wanted, (path, limit)


def test_a_cursor_names_no_job(app: Oncely, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page ends where enough was looked at, which may be at a job of another queue."""
    monkeypatch.setattr(listing, "LOOKED", 2)
    ids = [app.enqueue("k", queue=queue).job_id for queue in ("mine", *["other"] * 5)]
    key = app.create_token(["read"], queues=["mine", "too"]).key
    other = app.create_token(["read"], queues=["other"]).key
    with Client(address, key) as client, Client(address, other) as stranger:
        page = client.get("/v1/jobs?tag=none").json()
        cursor = page["nextCursor"]
        assert cursor is not None
        assert not any(part in cursor for job_id in ids for part in job_id.split("-"))
        assert client.get(f"/v1/jobs?tag=none&cursor={cursor}").status_code == 200
        assert stranger.get(f"/v1/jobs?tag=none&cursor={cursor}").status_code == 200
        flipped = ("A" if cursor[0] != "A" else "B") + cursor[1:]
        for forged in (flipped, cursor[:-4], "", "x", "é", ids[1]):
            answer = client.get("/v1/jobs", params={"tag": "none", "cursor": forged})
            assert answer.status_code in (404, 422), forged
        assert client.get(f"/v1/jobs?cursor={ids[0]}").status_code == 200


@pytest.mark.parametrize("batch", [False, True])
def test_a_unique_key_of_a_limited_token_is_its_queues_own(
    app: Oncely, address: str, batch: bool
) -> None:
    """It finds nothing of other queues, and holds nothing that others want."""
    hidden = app.enqueue("k", queue="other", unique_key="taken").job_id
    key = app.create_token(["publish", "read"], queues=["mine"]).key
    with Client(address, key) as client:

        def publish(unique_key: str) -> dict[str, Any]:
            fields = {"kind": "k", "payload": 1, "uniqueKey": unique_key}
            if not batch:
                return dict(client.post("/v1/queues/mine/jobs", json=fields).json())
            jobs = {"jobs": [{**fields, "queue": "mine"}]}
            return dict(client.post("/v1/jobs/batch", json=jobs).json()["results"][0])

        first = publish("taken")
        assert (first["deduplicated"], first["queue"]) == (False, "mine")
        assert hidden not in str(first)
        again = publish("taken")
        assert (again["deduplicated"], again["id"]) == (True, first["id"])
        publish("wanted")
        assert app.enqueue("k", queue="other", unique_key="wanted").inserted
        assert client.get(f"/v1/jobs/{first['id']}").json()["uniqueKey"] == "queue:mine:taken"


def test_a_refused_replay_names_no_job_of_another_queue(app: Oncely, address: str) -> None:
    @app.job("k")
    def fail(_: Any) -> None:
        raise ValueError

    failed = app.enqueue("k", queue="mine", unique_key="u", max_attempts=1).job_id
    app.drain()
    holder = app.enqueue("k", queue="other", unique_key="u", delay=3600).job_id
    limited, whole = (app.create_token(["admin"], queues=queues).key for queues in (["mine"], []))
    with Client(address, limited) as client:
        answer = client.post(f"/v1/jobs/{failed}/replay")
        assert (answer.status_code, answer.json()["code"]) == (409, "unique_key_taken")
        assert holder not in answer.text
    with Client(address, whole) as client:
        assert holder in client.post(f"/v1/jobs/{failed}/replay").text


def test_a_key_for_one_queue_replays_only_there(app: Oncely, address: str) -> None:
    @app.job("k")
    def fail(_: Any) -> None:
        raise ValueError

    ids = [app.enqueue("k", queue=queue, max_attempts=1).job_id for queue in "aabbcc"]
    app.drain()
    key = app.create_token(["admin"], queues=["a", "b"]).key
    with Client(address, key) as client:
        assert client.post("/v1/dlq/replay", json={"dryRun": True}).json()["matching"] == 4
        assert client.post("/v1/dlq/replay", json={"limit": 3}).json()["replayed"] == 3
        assert client.post("/v1/dlq/replay", json={"all": True}).json()["replayed"] == 1
    assert [app.get(id).state for id in ids] == ["pending"] * 4 + ["failed"] * 2  # type: ignore[union-attr]


def test_a_server_is_closed_from_the_first_token_on(app: Oncely, address: str) -> None:
    """And for good: to revoke the last one opens nothing."""
    with Client(address) as client:
        assert client.publish("q", 1).status_code == 201
        made = app.create_token(["publish"])
        with in_thread(app) as another, Client(another) as stranger:
            assert stranger.publish("q", 1).status_code == 401
            app.revoke_token(made.token.token_id)
            assert stranger.publish("q", 1).status_code == 401
        while client.publish("q", 1).status_code != 401:
            pass


def test_a_revoked_key_is_soon_refused_by_a_server_that_knew_it(app: Oncely, address: str) -> None:
    made = app.create_token(["publish"])
    with Client(address, made.key) as client:
        assert client.publish("q", 1).status_code == 201
        app.revoke_token(made.token.token_id)
        while client.publish("q", 1).status_code != 401:
            pass


def test_a_rotated_key_and_its_heir_are_both_good_for_a_while(app: Oncely, address: str) -> None:
    old = app.create_token(["publish"], queues=["q"])
    new = app.rotate_token(old.token.token_id, overlap=3_600)
    gone = app.rotate_token(new.token.token_id, overlap=0)
    statuses = []
    for key in (old.key, new.key, gone.key):
        with Client(address, key) as client:
            statuses.append([client.publish(queue, 1).status_code for queue in ("q", "x")])
    assert statuses == [[201, 403], [401, 401], [201, 403]]


def test_who_resolved_is_kept(app: Oncely, address: str) -> None:
    @app.job("mail", queue="q")
    def mail(ctx: Any) -> object:
        return ctx.fence("send", timed_out)

    def timed_out() -> None:
        raise TimeoutError

    job_id = app.enqueue("mail").job_id
    app.drain()
    key = app.create_token(["admin"], name="ops").key
    with Client(address, key) as client:
        body = {"effect": "send", "happened": False}
        assert client.post(f"/v1/jobs/{job_id}/resolve", json=body).status_code == 200
    job = app.get(job_id)
    assert job is not None
    assert job.effects == [] or job.effects[0].resolutions[0].by.startswith("token:ops (")
    assert "token:ops" in str(app.explain(job_id))
