"""Enqueue over HTTP: once, however often it is sent; a batch whole or not at all."""

import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oncely import Oncely
from tests.surface.http.server import Client, in_thread

ORDER = {"orderId": "9482", "amountCents": 4999}
KEY = "order:9482:charge"


def test_the_curl_call_of_the_guide_works_as_it_stands_there(app: Oncely) -> None:
    """The same arguments in the same order; only host and key are ours."""
    key = app.create_token(["publish"]).key
    with in_thread(app) as url:
        call = [
            "curl", "-s", "-w", "\n%{http_code}",
            "-X", "POST", f"{url}/v1/queues/payments/jobs",
            "-H", f"Authorization: Bearer {key}",
            "-H", "Content-Type: application/json",
            "-d", '{\n "payload": { "orderId": "9482", "amountCents": 4999 },\n'
            ' "idempotencyKey": "order:9482:charge"\n }',
        ]  # fmt: skip
        said = [
            subprocess.run(call, capture_output=True, text=True, check=True).stdout
            for _ in range(2)
        ]
    assert [text.rpartition("\n")[2] for text in said] == ["201", "200"]
    [job] = app.jobs()
    assert (job.kind, job.queue, job.payload) == ("payments", "payments", ORDER)
    assert all(job.job_id in text for text in said)


def test_the_first_is_201_and_a_repeat_200_with_the_same_job(client: Client, app: Oncely) -> None:
    first = client.publish("payments", ORDER, idempotencyKey=KEY)
    again = client.publish("payments", ORDER, idempotencyKey=KEY, delay=60)
    assert (first.status_code, again.status_code) == (201, 200)
    assert "idempotent-replayed" not in first.headers
    assert again.headers["idempotent-replayed"] == "true"
    assert {**first.json(), "deduplicated": True} == again.json()
    assert set(first.json()) == {"id", "kind", "queue", "state", "createdAt", "deduplicated"}
    assert first.headers["location"] == f"/v1/jobs/{first.json()['id']}"
    assert client.get(first.headers["location"]).json()["createdAt"] == first.json()["createdAt"]
    app.job("payments", queue="payments")(lambda _: "done")
    app.drain()
    late = client.publish("payments", ORDER, idempotencyKey=KEY)
    assert (late.status_code, late.json()["state"]) == (200, "completed")
    assert len(app.jobs()) == 1


def test_another_payload_or_kind_under_the_key_is_422_and_names_the_first(client: Client) -> None:
    first = client.publish("q", {"a": 1}, idempotencyKey="k:1").json()["id"]
    for other in ({"payload": {"a": 2}}, {"payload": {"a": 1}, "kind": "other"}):
        refused = client.post("/v1/queues/q/jobs", json={**other, "idempotencyKey": "k:1"})
        assert refused.status_code == 422
        assert refused.headers["content-type"] == "application/problem+json"
        told = refused.json()
        assert (told["code"], told["jobId"]) == ("idempotency_key_mismatch", first)
        assert told["retryable"] is False
    assert client.publish("elsewhere", {"a": 2}, idempotencyKey="k:1").status_code == 201


def test_the_key_may_come_in_the_header(client: Client) -> None:
    for queue, header in (("plain", KEY), ("quoted", f'"{KEY}"')):
        check_header(client, f"/v1/queues/{queue}/jobs", {"idempotency-key": header})


def check_header(client: Client, url: str, sent: dict[str, str]) -> None:
    first = client.post(url, json={"payload": 1}, headers=sent)
    both = client.post(url, json={"payload": 1, "idempotencyKey": KEY}, headers=sent)
    assert (first.status_code, both.status_code) == (201, 200)
    assert both.json()["id"] == first.json()["id"]
    differ = client.post(url, json={"payload": 1, "idempotencyKey": "other"}, headers=sent)
    assert (differ.status_code, differ.json()["code"]) == (400, "idempotency_key_differs")
    bad = client.post(url, json={"payload": 1}, headers={"idempotency-key": '"unclosed'})
    assert (bad.status_code, bad.json()["code"]) == (400, "invalid_header")


def test_all_options_arrive(client: Client, app: Oncely) -> None:
    made = client.publish(
        "q",
        [1, "ä", None],
        kind="k.1",
        uniqueKey="u",
        groupKey="g",
        runAt="2200-01-01T12:00:00+02:00",
        priority=-3,
        maxAttempts=7,
        timeout=1.5,
        tags=["a", "b"],
    )
    assert (made.status_code, made.json()["state"]) == (201, "scheduled")
    job = app.get(made.json()["id"])
    assert job is not None
    assert (job.payload, job.kind, job.unique_key, job.group_key) == (
        [1, "ä", None],
        "k.1",
        "u",
        "g",
    )
    assert (job.priority, job.max_attempts, job.timeout, job.tags) == (-3, 7, 1.5, ["a", "b"])
    assert job.due_at.isoformat() == "2200-01-01T10:00:00+00:00"
    shown = client.get(f"/v1/jobs/{job.job_id}").json()
    assert (shown["maxAttempts"], shown["groupKey"], shown["payload"]) == (7, "g", [1, "ä", None])


def test_a_unique_key_is_held_by_a_job_that_may_be_in_another_queue(client: Client) -> None:
    first = client.publish("one", 1, kind="k", uniqueKey="u").json()
    again = client.publish("two", 2, kind="k", uniqueKey="u")
    assert (again.status_code, again.json()) == (200, {**first, "deduplicated": True})


BAD: list[tuple[Any, str]] = [
    ({}, "payload"),
    ({"payload": 1, "idempotencykey": "k"}, "idempotencykey"),
    ({"payload": 1, "kind": 7}, "$.kind"),
    ({"payload": 1, "kind": "no spaces"}, "kind"),
    ({"payload": 1, "idempotencyKey": ""}, "idempotencyKey"),
    ({"payload": 1, "uniqueKey": "x" * 256}, "uniqueKey"),
    ({"payload": 1, "delay": -1}, "delay"),
    ({"payload": 1, "delay": "60"}, "$.delay"),
    ({"payload": 1, "runAt": "2026-01-01T00:00:00"}, "time zone"),
    ({"payload": 1, "runAt": "tomorrow"}, "$.runAt"),
    ({"payload": 1, "delay": 1, "runAt": "2200-01-01T00:00:00Z"}, "delay and runAt"),
    ({"payload": 1, "priority": 1 << 20}, "priority"),
    ({"payload": 1, "maxAttempts": 21}, "maxAttempts"),
    ({"payload": 1, "timeout": 0}, "timeout"),
    ({"payload": 1, "tags": "a"}, "$.tags"),
    ([], "object"),
]


def test_bad_input_is_one_clear_refusal_and_nothing_is_stored(client: Client, app: Oncely) -> None:
    for body, where in BAD:
        refused = client.post("/v1/queues/q/jobs", json=body)
        told = refused.json()
        assert (refused.status_code, told["code"]) == (422, "invalid_request"), told
        assert where in str(told["errors"])
        assert app.jobs() == [], body


def test_a_queue_can_insist_on_keys(client: Client) -> None:
    assert client.publish("strict", 1).status_code == 201
    assert client.put("/v1/queues/strict", json={"requireKey": True}).json()["requireKey"] is True
    for answer in (
        client.publish("strict", 1),
        client.publish("strict", 1, uniqueKey="u"),
        client.post("/v1/queues/strict/jobs/batch", json={"jobs": [{"payload": 1}]}),
        client.post(
            "/v1/jobs/batch",
            json={"jobs": [{"payload": 1, "queue": queue} for queue in ("lax", "strict")]},
        ),
    ):
        assert (answer.status_code, answer.json()["code"]) == (400, "idempotency_key_missing")
    assert client.publish("strict", 1, idempotencyKey="k:1").status_code == 201
    assert client.publish("lax", 1).status_code == 201


def test_a_batch_of_several_queues_is_stored_whole_or_not_at_all(
    client: Client, app: Oncely
) -> None:
    def send(*jobs: dict[str, Any]) -> Any:
        return client.post("/v1/jobs/batch", json={"jobs": jobs})

    a = {"payload": 1, "queue": "a", "idempotencyKey": "i"}
    b = {"payload": 2, "queue": "b", "idempotencyKey": "i", "kind": "k"}
    told = send(a, b, a).json()
    assert (told["inserted"], told["skipped"]) == (2, 1)
    assert [each["queue"] for each in told["results"]] == ["a", "b", "a"]
    assert [each["kind"] for each in told["results"]] == ["a", "k", "a"]
    new = {"payload": 3, "queue": "c"}
    for wrong, code, place in (
        ({**b, "payload": 3}, "idempotency_key_mismatch", {"index": 1}),
        ({**new, "maxAttempts": 21}, "invalid_request", {"index": 1}),
        ({**new, "priority": "x"}, "invalid_request", {"path": "$.jobs[1].priority"}),
        ({**new, "queue": "no name"}, "invalid_request", {}),
        ({"payload": 3}, "invalid_request", {"path": "$.jobs[1]"}),
    ):
        refused = send(a, wrong, new)
        assert (refused.status_code, refused.json()["code"]) == (422, code), refused.text
        [error] = refused.json()["errors"]
        assert place.items() <= error.items(), error
    assert send().status_code == 422
    assert len(app.jobs()) == 2


def test_a_batch_is_answered_in_its_order(client: Client, app: Oncely) -> None:
    first = client.publish("q", 0, idempotencyKey="k:0").json()["id"]
    jobs = [{"payload": n // 2, "idempotencyKey": f"k:{n // 2}"} for n in range(6)]
    answer = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs, "atomic": True})
    told = answer.json()
    assert (answer.status_code, told["inserted"], told["skipped"]) == (200, 2, 4)
    assert [each["deduplicated"] for each in told["results"]] == [
        True,
        True,
        False,
        True,
        False,
        True,
    ]
    ids = [each["id"] for each in told["results"]]
    assert ids[0] == ids[1] == first
    assert ids[2] == ids[3] != ids[4] == ids[5]
    payloads = {job.job_id: job.payload for job in app.jobs()}
    assert [payloads[id] for id in ids] == [0, 0, 1, 1, 2, 2]


def test_a_bad_item_is_named_and_nothing_of_its_batch_is_stored(
    client: Client, app: Oncely
) -> None:
    jobs: list[Any] = [{"payload": n, "idempotencyKey": f"k:{n}"} for n in range(10)]
    jobs[3] = {"payload": 3, "kid": "typo"}
    jobs[7] = {"payload": 7, "maxAttempts": "many"}
    told = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs})
    assert told.status_code == 422
    assert [each["index"] for each in told.json()["errors"]] == [3, 7]
    jobs[3], jobs[7] = {"payload": 3, "maxAttempts": 99}, {"payload": 7}
    told = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs})
    assert (told.status_code, [e["index"] for e in told.json()["errors"]]) == (422, [3])
    assert app.jobs() == []


def test_a_conflict_in_a_batch_is_named_and_nothing_of_it_is_stored(
    client: Client, app: Oncely
) -> None:
    first = client.publish("q", "first", idempotencyKey="k:2").json()["id"]
    jobs = [{"payload": n, "idempotencyKey": f"k:{n}"} for n in range(4)]
    told = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs}).json()
    assert (told["code"], told["jobId"]) == ("idempotency_key_mismatch", first)
    assert [each["index"] for each in told["errors"]] == [2]
    assert [job.job_id for job in app.jobs()] == [first]


def test_a_batch_that_is_none_is_refused(client: Client, app: Oncely) -> None:
    wrong: list[Any] = [[], [{"payload": 1}] * 1_001, None, {}, ["text"]]
    for jobs in wrong:
        told = client.post("/v1/queues/q/jobs/batch", json={"jobs": jobs})
        assert (told.status_code, told.json()["code"]) == (422, "invalid_request")
        assert app.jobs() == []


def test_many_at_once_each_get_their_own_answer(app: Oncely) -> None:
    """Requests that come together are written together; a bad one and a conflict among them are
    only their own caller's."""
    with in_thread(app) as url, Client(url) as client:
        client.publish("q", "first", idempotencyKey="k:taken")

        def publish(n: int) -> tuple[int, Any]:
            match n % 4:
                case 0:
                    answer = client.publish("q", n, idempotencyKey="k:taken")
                case 1:
                    answer = client.publish("q", n, priority=1 << 20)
                case 2:
                    answer = client.publish("q", "same", idempotencyKey="k:same")
                case _:
                    answer = client.publish("q", n, idempotencyKey=f"k:{n}")
            return answer.status_code, answer.json()

        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(publish, range(200)))
    payloads = {job.job_id: job.payload for job in app.jobs(limit=1_000)}
    for n, (status, told) in enumerate(answers):
        match n % 4:
            case 0:
                assert (status, told["code"]) == (422, "idempotency_key_mismatch")
            case 1:
                assert (status, told["code"]) == (422, "invalid_request")
            case 2:
                assert payloads[told["id"]] == "same"
            case _:
                assert status == 201
                assert payloads[told["id"]] == n
    assert [status for status, _ in answers[2::4]].count(201) == 1
    assert len(payloads) == 52


def test_requests_that_come_together_share_a_write(app: Oncely) -> None:
    """Else every one of them would wait for a commit of its own."""
    writes: list[int] = []
    admit = app._enqueuer._company._write

    def counted(drafts: Any) -> Any:
        writes.append(len(drafts))
        return admit(drafts)

    app._enqueuer._company._write = counted
    with in_thread(app) as url, Client(url) as client, ThreadPoolExecutor(32) as pool:
        answers = list(pool.map(lambda n: client.publish("q", n).status_code, range(300)))
    assert answers == [201] * 300
    assert sum(writes) == 300
    assert len(writes) < 300
