"""Requests to a push target: HTTP/1.1 over connections that go to checked addresses only.

Nothing of an answer is kept but its status and `Retry-After`. Its head is bounded; its body is
passed over so that the connection can be used again, and where it is long or slow the connection
is closed instead. Redirects, proxies and cookies do not exist here.
"""

from __future__ import annotations

import asyncio
import re
import ssl
import time
from collections.abc import Sequence
from typing import Final

import msgspec

from oncely.flow.aside import in_own_thread
from oncely.flow.push_line import Line
from oncely.flow.push_target import Place, Resolve, addresses
from oncely.model.errors import InvalidInput

_CONNECT_SECONDS: Final = 10.0
_IDLE_SECONDS: Final = 3.0
"""Shorter than receivers keep an idle connection: one that they close under our request is a
request of which nobody knows whether it arrived."""
_AGE_SECONDS: Final = 60.0
"""Then the name is resolved again, and checked."""
_BODY_LIMIT: Final = 64 * 1024
_BODY_SECONDS: Final = 1.0
_INTERIM_LIMIT: Final = 5
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: [^\r\n]*)?\r\n")
_TRUSTED: Final[list[ssl.SSLContext]] = []


class NotSent(Exception):
    """Nothing of the request has left."""


class Unanswered(Exception):
    """It was sent, all or in part, and no answer came that could be read."""


class Answer(msgspec.Struct, frozen=True):
    status: int
    retry_after: str | None


class Wire:
    """The connections to one place, used again where the receiver lets them stand."""

    def __init__(self, place: Place, resolve: Resolve | None = None) -> None:
        self.place = place
        self._resolve = resolve
        self._idle: list[Line] = []
        self._lookup: asyncio.Task[list[str]] | None = None
        self._head = (
            f"POST {place.target} HTTP/1.1\r\nHost: {place.authority}\r\n"
            "Content-Type: application/json\r\nAccept: */*\r\nUser-Agent: oncely\r\n"
        )

    async def post(self, headers: Sequence[tuple[str, str]], body: bytes, seconds: float) -> Answer:
        """NotSent or Unanswered, if there is no answer within so many seconds."""
        deadline = time.monotonic() + seconds
        line = self._take() or await self._connect(min(seconds, _CONNECT_SECONDS))
        told = "".join(f"{name}: {value}\r\n" for name, value in headers)
        request = f"{self._head}{told}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body
        keep = False
        try:
            async with asyncio.timeout(deadline - time.monotonic()):
                line.send(request)
                status, head, stays = await _answer(line)
            keep = stays and await _pass_over(line, status, head)
        except TimeoutError:
            raise Unanswered(f"no answer within {seconds:g} seconds") from None
        except (OSError, EOFError, ValueError) as error:
            raise Unanswered(f"no answer that could be read ({_words(error)})") from None
        finally:
            self._give_back(line, keep=keep)
        return Answer(status, head.get(b"retry-after", b"").decode("latin-1") or None)

    def close(self) -> None:
        for line in self._idle:
            line.abort()
        self._idle.clear()

    def _take(self) -> Line | None:
        now = time.monotonic()
        while self._idle:
            line = self._idle.pop()
            if _is_fresh(line, now):
                return line
            line.abort()
        return None

    def _give_back(self, line: Line, *, keep: bool) -> None:
        line.used = time.monotonic()
        if keep and _is_fresh(line, line.used):
            self._idle.append(line)
        else:
            line.abort()

    async def _connect(self, seconds: float) -> Line:
        """To one of the addresses that were just checked; the name is only for the certificate."""
        place = self.place
        loop = asyncio.get_running_loop()
        told = "no connection"
        try:
            async with asyncio.timeout(seconds):
                for address in await self._addresses():
                    try:
                        _, line = await loop.create_connection(
                            Line,
                            address,
                            place.port,
                            ssl=_trusted() if place.tls else None,
                            server_hostname=place.host.removesuffix(".") if place.tls else None,
                        )
                    except OSError as error:
                        told = f"no connection to {address} ({_words(error)})"
                    else:
                        return line
        except TimeoutError:
            told = f"no connection within {seconds:g} seconds"
        except InvalidInput as error:
            told = str(error)
        raise NotSent(told)

    async def _addresses(self) -> list[str]:
        """One lookup at a time: if the name server is silent, one thread waits for it, however
        many requests do."""
        if self._lookup is None:
            self._lookup = asyncio.create_task(in_own_thread(addresses, self.place, self._resolve))
            self._lookup.add_done_callback(self._end_lookup)
        return await asyncio.shield(self._lookup)

    def _end_lookup(self, lookup: asyncio.Task[list[str]]) -> None:
        self._lookup = None
        if not lookup.cancelled():
            lookup.exception()  # seen, also if nobody waits for it any more


def _is_fresh(line: Line, now: float) -> bool:
    return line.is_quiet and now - line.used < _IDLE_SECONDS and now - line.born < _AGE_SECONDS


async def _answer(line: Line) -> tuple[int, dict[bytes, bytes], bool]:
    """Status, headers, and whether the connection may stand after it."""
    for _ in range(_INTERIM_LIMIT):
        raw = await line.until(b"\r\n\r\n")
        first = _STATUS.match(raw)
        if first is None:
            raise ValueError("it is not HTTP/1.1")
        status = int(first[2])
        if status >= 200:
            head = _headers(raw[first.end() :])
            keep = first[1] == b"1" and b"close" not in head.get(b"connection", b"").lower()
            return status, head, keep
        if status == 101:
            break
    raise ValueError("it does not come to its end")


def _headers(raw: bytes) -> dict[bytes, bytes]:
    """The last one counts where a name comes twice; but a length that comes twice is none."""
    found: dict[bytes, bytes] = {}
    for line in raw.split(b"\r\n"):
        name, colon, value = line.partition(b":")
        name = name.lower()
        if colon:
            twice = name in found and name in (b"content-length", b"transfer-encoding")
            found[name] = b"?" if twice else value.strip()
    return found


async def _pass_over(line: Line, status: int, head: dict[bytes, bytes]) -> bool:
    """Read the body and forget it; whether the next answer begins after it. The status was said:
    whatever the body does changes nothing."""
    if status in (204, 304):
        return True
    length = head.get(b"content-length")
    coding = head.get(b"transfer-encoding")
    try:
        async with asyncio.timeout(_BODY_SECONDS):
            if coding is None and length is not None and length.isdigit() and len(length) < 9:
                count = int(length)
                if count <= _BODY_LIMIT:
                    await line.skip(count)
                return count <= _BODY_LIMIT
            return coding == b"chunked" and length is None and await _skip_chunks(line)
    except (OSError, EOFError, ValueError, TimeoutError):
        return False


async def _skip_chunks(line: Line) -> bool:
    left = _BODY_LIMIT
    while left > 0:
        size = int((await line.until(b"\r\n")).split(b";")[0], 16)
        if size == 0:
            return await line.until(b"\r\n") == b"\r\n"  # nobody needs trailers
        left -= size + 64
        if size < 0 or left < 0:
            return False
        await line.skip(size + 2)
    return False


def _trusted() -> ssl.SSLContext:
    """Made once: to read the certificates of the system takes a while."""
    if not _TRUSTED:
        _TRUSTED.append(ssl.create_default_context())
    return _TRUSTED[0]


def _words(error: BaseException) -> str:
    return str(error) or type(error).__name__
