"""The payment service as a handler sees it: three calls over HTTP."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from typing import Any, Final

TIMEOUT_SECONDS: Final = 20.0


class Payments:
    def __init__(self, port: int) -> None:
        self._port = port

    def charge(self, order: int, key: str) -> int:
        """May be repeated: the service recognises the key."""
        made: int = self._call("POST", "/charges", {"order": order}, {"Idempotency-Key": key})
        return made

    def send(self, order: int) -> int:
        """Must not be repeated: every call is a mail."""
        made: int = self._call("POST", "/receipts", {"order": order})
        return made

    def find(self, order: int) -> int | None:
        """The mail that was sent for an order."""
        found: int | None = self._call("GET", f"/receipts/{order}")
        return found

    def _call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=TIMEOUT_SECONDS)
        try:
            text = None if body is None else json.dumps(body).encode()
            connection.request(method, path, text, headers or {})
            answer = connection.getresponse()
            if answer.status != 200:
                raise OSError(f"{method} {path}: the payment service answered {answer.status}")
            return json.loads(answer.read())["id"]
        finally:
            connection.close()
