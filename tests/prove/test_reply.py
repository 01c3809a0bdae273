"""A `Downstream` answers with what its client reads: JSON, bytes, or a status with headers."""

import requests

from oncely.prove import Downstream, Reply
from oncely.prove.downstream import Request
from tests.waiting import PATIENCE_SECONDS

XML = b'<?xml version="1.0"?><CopyObjectResult><ETag>"1"</ETag></CopyObjectResult>'


def post(url: str, key: str = "") -> requests.Response:
    headers = {"Idempotency-Key": key} if key else {}
    return requests.post(url, data=b"x", headers=headers, timeout=PATIENCE_SECONDS)


def test_bytes_are_sent_as_they_are() -> None:
    with Downstream(answer=lambda _: b"\x00\xff") as service:
        answer = post(service.url)
    assert (answer.content, answer.headers["Content-Type"]) == (
        b"\x00\xff",
        "application/octet-stream",
    )


def test_a_reply_has_a_status_and_headers() -> None:
    headers = {"ETag": '"1"', "Content-Type": "application/xml"}
    with Downstream(keys="honoured", answer=lambda _: Reply(201, headers, XML)) as service:
        for _ in range(2):
            answer = post(service.url, "a")
            assert (answer.status_code, answer.content) == (201, XML)
            assert (answer.headers["ETag"], answer.headers["Content-Type"]) == tuple(
                headers.values()
            )
        assert len(service.done) == 1


def test_a_reply_that_refuses_did_nothing() -> None:
    def refuse_first(request: Request) -> Reply:
        asked.append(request)
        return Reply(status=429 if len(asked) == 1 else 200, body=b"{}")

    asked: list[Request] = []
    with Downstream(keys="honoured", answer=refuse_first) as service:
        assert (post(service.url, "a").status_code, service.done) == (429, [])
        assert [post(service.url, "a").status_code for _ in range(2)] == [200, 200]
        assert (len(service.done), len(asked)) == (1, 2)
