"""One connection to the server: where a request ends, and how long a client may take.

uvicorn's protocol and its parser, httptools, do the work. Four things are decided before bytes
reach them, because they decide them otherwise:

- **`Upgrade` is ignored**, as HTTP allows. The parser would skip the body of such a request, and
  take it for the next one. `curl --http2` and Java's client ask for an upgrade by default.
- **A head is read when it is whole**, and has a limit. So have trailers, which are no headers.
- **A head, an answer that is not read and a closed connection have deadlines.**
- **The number of connections has a limit.**
"""

from __future__ import annotations

import asyncio
import math
import re
import resource
from http import HTTPStatus
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from oncely.surface.asgi.exchange import ARRIVAL, Arrival
from oncely.surface.http import problem
from oncely.surface.http.problem import Refused

HEAD_SECONDS = 15.0
"""How long the head of a request may take to arrive."""
STALL_SECONDS = 60.0
"""How long a client may read nothing of an answer."""
CLOSE_SECONDS = 15.0
"""How long the rest of an answer may take to be read when the connection is about to be closed."""
CONNECTION_LIMIT = 10_000
_HEAD_LIMIT_BYTES: Final = 64 * 1024
_FILES_FOR_THE_REST: Final = 128
_END_OF_HEAD: Final = b"\r\n\r\n"
_REQUEST_LINE: Final = re.compile(rb"[!-~]+ [!-~\x80-\xff]+ HTTP/1\.[01]\r\n")
_NO_REQUEST: Final = "The first line is not that of an HTTP/1.1 request."
_UPGRADE: Final = re.compile(rb"\r\nupgrade[ \t]*:[^\r\n]*(?:\r\n[ \t][^\r\n]*)*", re.I)


class Connection(HttpToolsProtocol):
    _is_over_limit = False
    """The server has more connections than its limit. The first request of this one is read before
    it is refused, or its client might not see the answer."""
    _is_head_read = False
    _quiet_bytes = 0
    """What has arrived inside a message since the parser last reported something."""
    _head_since: float = math.inf
    _stalled_since: float = math.inf
    _closing_since: float = math.inf

    def __init__(self, *, app_state: dict[str, Any], **options: Any) -> None:
        self._arrival = Arrival()
        super().__init__(app_state={**app_state, ARRIVAL: self._arrival}, **options)
        self._head = bytearray()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_since = self.loop.time()
        self._is_over_limit = len(self.connections) > _connection_limit()

    def data_received(self, data: bytes) -> None:
        if not self._arrival.is_whole:
            self._quiet_bytes += len(data)
            super().data_received(data)
            if self._quiet_bytes > _HEAD_LIMIT_BYTES:
                self._refuse("headers_too_large", "The trailers are too large.")
        elif self._head:
            looked_at = max(0, len(self._head) - len(_END_OF_HEAD))
            self._head += data
            if self._head.find(_END_OF_HEAD, looked_at) >= 0:
                data = bytes(self._head)
                self._head.clear()
                self._take_head(data)
            else:
                self._check_partial_head()
        elif _END_OF_HEAD in data:
            self._take_head(data)
        else:
            self._head += data
            self._head_since = min(self._head_since, self.loop.time())
            self._check_partial_head()
        if not (self._arrival.is_whole or self._is_head_read):  # it came behind another request
            self._head_since = min(self._head_since, self.loop.time())

    def _take_head(self, data: bytes) -> None:
        """A whole head, and what comes after it."""
        end = data.index(_END_OF_HEAD)
        if self._is_over_limit:
            self._refuse("too_many_connections", "The server has as many connections as it takes.")
            return
        if end > _HEAD_LIMIT_BYTES:
            self._refuse("headers_too_large", "The headers are too large.")
            return
        if data.startswith(b"\r\n"):  # an empty line before a request is allowed
            self.data_received(data.lstrip(b"\r\n"))
            return
        if not _REQUEST_LINE.match(data):
            self._refuse("malformed_request", _NO_REQUEST)
            return
        if b"\r\nupgrade" in data[:end].lower():
            data = _UPGRADE.sub(b"", data[: end + 2]) + data[end + 2 :]
        super().data_received(data)

    def _check_partial_head(self) -> None:
        """Refuse what has arrived of a head if it is too large or cannot become one."""
        if len(self._head) > _HEAD_LIMIT_BYTES:
            self._refuse("headers_too_large", "The headers are too large.")
            return
        line, ended, _ = bytes(self._head).lstrip(b"\r\n").partition(b"\n")
        if ended and not _REQUEST_LINE.match(line + ended):
            self._refuse("malformed_request", _NO_REQUEST)

    def _refuse(self, code: str, detail: str) -> None:
        if self.transport.is_closing():
            return
        refused = Refused(code, detail)
        body = refused.body()
        lines = [
            f"HTTP/1.1 {refused.status} {HTTPStatus(refused.status).phrase}",
            f"content-type: {problem.MEDIA_TYPE}",
            f"content-length: {len(body)}",
            *(f"{name}: {value}" for name, value in refused.headers.items()),
            "connection: close",
        ]
        self.transport.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.transport.close()

    # What the parser calls.

    def on_message_begin(self) -> None:
        self._arrival.is_whole = self._is_head_read = False
        self._quiet_bytes = 0
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head_read:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head_read, self._quiet_bytes, self._head_since = True, 0, math.inf
        if self.parser.should_upgrade():
            # CONNECT, or an upgrade that was sent together with the request before it. The parser
            # would not find its end: the connection is refused.
            raise ValueError("a request whose end cannot be found")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._quiet_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._arrival.is_whole = True
        super().on_message_complete()

    # Deadlines.

    def pause_writing(self) -> None:
        self._stalled_since = self.loop.time()
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stalled_since = math.inf
        super().resume_writing()

    def check_deadlines(self, now: float) -> None:
        if self.transport.is_closing():
            self._closing_since = min(self._closing_since, now)
            if now - self._closing_since > CLOSE_SECONDS:
                self.transport.abort()
        elif now - self._stalled_since > STALL_SECONDS:
            self.transport.abort()
        elif now - self._head_since > HEAD_SECONDS:
            self._refuse("request_too_slow", "The request did not arrive in time.")


def _connection_limit() -> int:
    """No more than there are files for: without one the server could take no connection at all."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return CONNECTION_LIMIT
    return max(1, min(CONNECTION_LIMIT, files - _FILES_FOR_THE_REST))
