"""What goes over the wire, byte by byte."""

import re
from pathlib import Path

import pytest

from oncely import Oncely
from oncely.surface.http import gate
from tests.surface.http.server import in_thread, raw

PUBLISH = b"POST /v1/queues/q/jobs HTTP/1.1\r\nhost: [::1]\r\ncontent-type: application/json\r\n"


def publish(body: bytes, more: bytes = b"") -> bytes:
    return b"%scontent-length: %d\r\n%s\r\n%s" % (PUBLISH, len(body), more, body)


def answers(wire: bytes) -> list[tuple[int, dict[bytes, bytes], bytes]]:
    """The whole of it must be answers, one after the other, each as long as it says."""
    found = []
    while wire:
        head, _, wire = wire.partition(b"\r\n\r\n")
        first, *lines = head.split(b"\r\n")
        assert re.fullmatch(rb"HTTP/1\.1 \d{3} [\w ]+", first), first
        headers = dict(line.split(b": ", 1) for line in lines)
        assert len(headers) == len(lines), lines
        length = int(headers.get(b"content-length", b"0"))
        if headers[b"x-request-id"] == b"head":
            length = 0
        found.append((int(first.split()[1]), headers, wire[:length]))
        wire = wire[length:]
    return found


def test_requests_in_a_row_are_answered_in_their_order(tmp_path: Path) -> None:
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app, in_thread(app) as url:
        wire = raw(
            url,
            publish(b'{"payload": 1, "idempotencyKey": "one"}')
            + publish(b'{"payload": 1, "idempotencyKey": "one"}')
            + b"HEAD /healthz HTTP/1.1\r\nhost: localhost\r\nx-request-id: head\r\n\r\n"
            + b"GET /nowhere HTTP/1.1\r\nhost: localhost\r\n\r\n"
            + publish(b'{"payload": 2}', b"connection: close\r\n")
            + publish(b'{"payload": 3}'),
            hold=True,
        )
        got = answers(wire)
        assert [status for status, _, _ in got] == [201, 200, 200, 404, 201]
        first, repeat, looked, _, last = got
        assert first[1][b"location"].removeprefix(b"/v1/jobs/") in first[2]
        assert repeat[1][b"idempotent-replayed"] == b"true"
        assert looked[1][b"content-length"] != b"0"
        for _, headers, _ in got:
            assert headers[b"x-content-type-options"] == b"nosniff"
            assert headers[b"cache-control"] == b"no-store"
            assert b"date" in headers
        assert last[1][b"connection"] == b"close"
        assert b"connection" not in first[1]
        # What comes after "close" is not taken.
        assert sorted(job.payload for job in app.jobs()) == [1, 2]

        old = publish(b'{"payload": 4}').replace(b"HTTP/1.1", b"HTTP/1.0")
        [(status, headers, _)] = answers(raw(url, old, hold=True))
        assert (status, headers[b"connection"]) == (201, b"close")
        more = b"expect: 100-continue\r\nconnection: close\r\n"
        asked = raw(url, publish(b'{"payload": 5}', more), hold=True)
        assert asked.count(b"HTTP/1.1 100 Continue\r\n\r\n") <= 1
        assert answers(asked.removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n"))[0][0] == 201


def test_a_body_that_does_not_come_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate, "_BODY_SECONDS", 0.1)
    with Oncely(f"sqlite:///{tmp_path / 'jobs.db'}") as app, in_thread(app) as url:
        whole = publish(b'{"payload": 1}')
        for sent in (whole[:-14], whole[:-5]):
            [(status, headers, body)] = answers(raw(url, sent, hold=True))
            assert (status, headers[b"connection"]) == (408, b"close")
            assert b'"body_too_slow"' in body
        assert app.jobs() == []
