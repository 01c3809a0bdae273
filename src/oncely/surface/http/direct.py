"""Short cuts where uvicorn is the server. What it does for any app costs a request a good part of
its time, and is not needed for ours.

- Its `send` takes head and body apart, and looks through every header for what must not be in it.
- Its `receive` can wait, so a body that is there already would be read under a time limit as well.

Each of them says whether it can be taken. If not, the ASGI way always works.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

from oncely.surface.asgi.types import Receive, Send

_CLOSE: Final = b"connection: close\r\n\r\n"


def is_whole(receive: Receive) -> bool:
    """Whether the body has arrived, so that nothing will be waited for."""
    cycle = getattr(receive, "__self__", None)
    return type(cycle) is RequestResponseCycle and not cycle.more_body


def answered(send: Send, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
    """Send the whole answer in one write. The headers give the length of the body, and say nothing
    of the connection."""
    cycle = getattr(send, "__self__", None)
    if (
        type(cycle) is not RequestResponseCycle
        or cycle.response_started
        or cycle.disconnected
        or cycle.access_log
        or cycle.flow.write_paused
        or cycle.scope["method"] == "HEAD"
    ):
        return False
    lines = [b"%s: %s\r\n" % header for header in (*cycle.default_headers, *headers)]
    head = b"".join(lines)
    if head.count(b"\n") != len(lines) or head.count(b"\r") != len(lines):
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.chunked_encoding = cycle.waiting_for_100_continue = False
    end = b"\r\n" if cycle.keep_alive else _CLOSE
    cycle.transport.write(b"".join((STATUS_LINE[status], head, end, body)))
    cycle.message_event.set()
    if not cycle.keep_alive:
        cycle.transport.close()
    cycle.on_response()
    return True
