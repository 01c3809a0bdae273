"""The other side of an effect: a real HTTP server on loopback that remembers what it was asked."""

import http.client
import json
import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, Self


class OtherSide:
    """Does what it is asked to, once per key; without a key, each time. `done` counts by name,
    `last` is what was done last. The next requests meet the `faults`, each one of them."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.last: str | None = None
        self.faults: list[Literal["refuse", "lose the answer"]] = []
        self.asked: Counter[str] = Counter()
        self._answers: dict[str, Any] = {}
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def ask(self, name: str, key: str | None) -> Any:
        with self._lock:
            self.asked[name] += 1
            if key is not None and key in self._answers:
                return self._answers[key]
            self.done[name] += 1
            self.last = name
            answer = {"name": name, "number": self.done[name]}
            if key is not None:
                self._answers[key] = answer
            return answer

    def forget_keys(self) -> None:
        with self._lock:
            self._answers.clear()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        other = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                name = self.rfile.read(int(self.headers["Content-Length"])).decode()
                fault = other.faults.pop(0) if other.faults else None
                if fault == "refuse":
                    self.send_error(503)
                    return
                answer = other.ask(name, self.headers.get("Idempotency-Key"))
                if fault is None:
                    self._answer(answer)

            def do_GET(self) -> None:
                self._answer(other.done[self.path.removeprefix("/")] or None)

            def _answer(self, value: Any) -> None:
                body = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None: ...

        return Handler


def post(port: int, name: str, key: str | None = None) -> Any:
    headers = {} if key is None else {"Idempotency-Key": key}
    return _call(port, "POST", "/", name, headers)


def look(port: int, name: str) -> Any:
    return _call(port, "GET", f"/{name}", None, {})


def _call(port: int, verb: str, path: str, body: str | None, headers: dict[str, str]) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(verb, path, body, headers)
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()
