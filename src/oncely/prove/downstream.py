"""`Downstream`: the other side of an HTTP call, on loopback, with the faults that others have."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove.loopback import LoopbackServer
from oncely.prove.seams.http import FAULT_HEADER

Keys = Literal["honoured", "ignored", "forgotten"]
_KEYS: Final = ("honoured", "ignored", "forgotten")
_READS: Final = ("GET", "HEAD", "OPTIONS")
_JSON: Final = {"Content-Type": "application/json"}
_BYTES: Final = {"Content-Type": "application/octet-stream"}


class Request(msgspec.Struct, frozen=True):
    """One thing that it was asked to do, and did."""

    method: str
    path: str
    body: str
    key: str | None = None

    def __str__(self) -> str:
        return " ".join(part for part in (self.method, self.path, self.body) if part)


class Reply(msgspec.Struct, frozen=True):
    """What a `Downstream` answers, for clients that read something else than JSON. With a status
    of 400 or more it refuses the request, and does nothing."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""


_UNAVAILABLE: Final = Reply(503, _JSON, b'{"error": "unavailable"}')
_THROTTLED: Final = Reply(429, {**_JSON, "Retry-After": "1"}, b'{"error": "too many requests"}')
_IN_PROGRESS: Final = Reply(409, _JSON, b'{"error": "a request with this key is in progress"}')


class Downstream(LoopbackServer):
    """A service at `url` that does what it is asked, and remembers it.

    `keys`: what the header `key_header` is to it. `honoured`: a repeat is recognised for ever;
    `ignored`: each request is done; `forgotten`: recognised, but not two days later. `replaces`:
    what is sent to a path replaces what was there, as with PUT. `answer(request)` makes the answer
    to what it did: a `Reply`, bytes, or what is sent as JSON. A GET is answered with what was
    done at its path, as JSON. `replays_errors`: a
    refusal is remembered under its key, and given again. `answers_409`: while a request is in
    progress, another one with its key is refused with 409; one whose caller timed out is in
    progress until the caller has asked once more.
    """

    memory = "_done"

    def __init__(
        self,
        *,
        keys: Keys = "ignored",
        key_header: str = "Idempotency-Key",
        replaces: bool = False,
        replays_errors: bool = False,
        answers_409: bool = False,
        answer: Callable[[Request], Any] | None = None,
    ) -> None:
        if keys not in _KEYS:
            raise InvalidInput(f"keys is {keys!r}; expected one of {', '.join(_KEYS)}")
        if answers_409 and keys == "ignored":
            raise InvalidInput(
                "answers_409 is given to a Downstream that ignores keys; expected "
                "keys='honoured' or keys='forgotten' with it"
            )
        self.keys = keys
        self._answers_409 = answers_409
        self._key_header = key_header
        self._replaces = replaces
        self._replays_errors = replays_errors
        self.runs_code = answer is not None
        """Whether a request runs code of the user's in this process."""
        self._answer = answer or (lambda _: {"ok": True})
        self._lock = threading.Lock()
        self.reset()
        super().__init__(ThreadingHTTPServer(("127.0.0.1", 0), self._handler()), "downstream")
        self.host = self.address
        self.url = f"http://{self.host}"

    @property
    def done(self) -> list[Request]:
        """What it did, in order."""
        with self._lock:
            return list(self._done)

    def snapshot(self) -> list[str]:
        with self._lock:
            kept: dict[object, Request] = {}
            for number, request in enumerate(self._done):
                same = self._replaces or request.method in ("PUT", "DELETE")
                kept[request.path if same else number] = request
            return [str(request) for request in kept.values()]

    def reset(self) -> None:
        with self._lock:
            self._done: list[Request] = []
            self._answers: dict[str, Reply] = {}
            self._in_progress: set[str] = set()
            self._refusals_left = 0

    def save(self) -> Any:
        with self._lock:
            return [*self._done], {**self._answers}, {*self._in_progress}, self._refusals_left

    def load(self, saved: Any) -> None:
        done, answers, in_progress, refusals_left = saved
        with self._lock:
            self._done, self._answers = [*done], {**answers}
            self._in_progress, self._refusals_left = {*in_progress}, refusals_left

    def let_days_pass(self) -> None:
        if self.keys == "forgotten":
            with self._lock:
                self._answers.clear()

    def _meet(self, request: Request, fault: str | None) -> Reply | None:
        """None if the answer is lost on its way."""
        with self._lock:
            if request.method in _READS:
                found = [msgspec.structs.asdict(d) for d in self._done if d.path == request.path]
                return _as_reply({"done": found})
            key = request.key if self.keys != "ignored" else None
            if fault == "throttle":
                return _THROTTLED
            if fault == "drop":
                return _UNAVAILABLE  # which its caller does not see: it times out
            if fault == "outage":
                self._refusals_left = 2
            if self._refusals_left:
                self._refusals_left -= 1
                return _UNAVAILABLE
            known = self._known(key)
            if known is not None:
                return None if fault == "lose" else known
            if fault == "refuse":
                if key is not None and self._replays_errors:
                    self._answers[key] = _UNAVAILABLE
                return _UNAVAILABLE
            self._done.append(request)
            if key is not None:
                self._in_progress.add(key)
        # Not under the lock: `answer` may take its time, and others come meanwhile.
        answer = _as_reply(self._answer(request))
        refused = answer.status >= 400
        with self._lock:
            if refused:
                self._done = [each for each in self._done if each is not request]
            if key is not None:
                if not refused or self._replays_errors:
                    self._answers[key] = answer
                if refused or fault != "timeout":
                    self._in_progress.discard(key)
        return None if fault == "lose" else answer

    def _known(self, key: str | None) -> Reply | None:
        """The answer to a repeat."""
        if key is None:
            return None
        answer = self._answers.get(key)
        if key in self._in_progress:
            if answer is not None:
                self._in_progress.discard(key)  # its caller had timed out, and asks again
            if self._answers_409 or answer is None:
                return _IN_PROGRESS
        return answer

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        downstream = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                request = Request(
                    self.command,
                    self.path,
                    body.decode(errors="replace"),
                    self.headers.get(downstream._key_header),
                )
                answer = downstream._meet(request, self.headers.get(FAULT_HEADER))
                if answer is None:
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                self.send_response(answer.status)
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(answer.body)))
                self.end_headers()
                self.wfile.write(answer.body)

            def __getattr__(self, name: str) -> Any:
                if name.startswith("do_"):
                    return self.handle_any
                raise AttributeError(name)

            def log_message(self, *_: Any) -> None: ...

        return Handler


def _as_reply(value: Any) -> Reply:
    if isinstance(value, Reply):
        return value
    if isinstance(value, bytes):
        return Reply(headers=_BYTES, body=value)
    return Reply(headers=_JSON, body=json.dumps(value).encode())
