"""The line to a server: one request and its answer, and clear words for every trouble.

A request is repeated only for those who insist: whoever asks knows what a repeat means.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
from msgspec import UNSET, UnsetType

from oncely.model.errors import InvalidInput, JobNotFound, StoreUnavailable
from oncely.model.keys import shown
from oncely.store.engine import StoreClosed
from oncely.store.remote import refusals

_KEY: Final = re.compile(r"[!-~]+")
TIMEOUT: Final = httpx2.Timeout(30.0, connect=5.0)
_WAITS_SECONDS: Final = (0.1, 0.4, 1.0)
T = TypeVar("T")


@cache
def trusted() -> ssl.SSLContext:
    """Made once: to read the certificates takes a while."""
    return httpx2.create_ssl_context()


class Lost(StoreUnavailable):
    """No answer came that says what became of the request: it may be repeated."""


class Server:
    """Safe to share between threads; connections are kept and used again."""

    def __init__(self, url: str, api_key: str | None) -> None:
        self.url = _checked(url)
        self.headers = {"accept": "application/json, application/problem+json"}
        if api_key is not None:
            if not isinstance(api_key, str) or not _KEY.fullmatch(api_key):
                raise InvalidInput(
                    "api_key is not a key; expected the line that `oncely token create` printed"
                )
            self.headers["authorization"] = f"Bearer {api_key}"
        self._closed = False
        self.begin()

    def begin(self) -> None:
        """Also in the child of a fork, which has no right to the parent's connections."""
        self._client = httpx2.Client(headers=self.headers, timeout=TIMEOUT, verify=trusted())

    def close(self) -> None:
        self._closed = True
        self._client.close()

    def insist(self, ask: Callable[[bool], T]) -> T:
        """Ask until there is an answer, a few times. `ask` is told whether it was asked before and
        the answer was lost."""
        again = False
        for seconds in _WAITS_SECONDS:
            try:
                return ask(again)
            except Lost:
                again = True
            time.sleep(seconds)
        return ask(again)

    def get(self, path: str, query: dict[str, Any] | None = None, **known: Any) -> bytes:
        given = {name: value for name, value in (query or {}).items() if value is not None}
        return self._send("GET", path, known, params=given)

    def put(self, path: str, body: Any, **known: Any) -> bytes:
        return self._send("PUT", path, known, **json_body(body))

    def post(
        self, path: str, body: Any, *, traceparent: str | UnsetType = UNSET, **known: Any
    ) -> bytes:
        content = json_body(body)
        if traceparent is not UNSET:
            content["headers"]["traceparent"] = traceparent
        return self._send("POST", path, known, **content)

    def _send(self, method: str, path: str, known: dict[str, Any], **content: Any) -> bytes:
        if self._closed:
            raise StoreClosed()
        try:
            response = self._client.request(method, f"{self.url}{path}", **content)
        except httpx2.HTTPError as error:
            raise self.trouble(error) from error
        except RuntimeError as error:  # closed meanwhile
            raise StoreClosed() from error
        return self.answer(response.status_code, response.content, known)

    def answer(self, status: int, body: bytes, known: dict[str, Any]) -> bytes:
        if status in (200, 201):
            return body
        problem = refusals.read(body)
        if status in (429, 502, 503, 504):
            told = f": {problem.detail}" if problem else ""
            raise Lost(f"the server at {self.url} answered {status}{told}")
        if problem is None:
            raise StoreUnavailable(
                f"what answers at {self.url} ({status}) is not an Oncely server: check the URL"
            )
        raise refusals.raised(problem, known)

    def trouble(self, error: httpx2.HTTPError) -> Lost:
        if isinstance(error, httpx2.TimeoutException):
            return Lost(f"the server at {self.url} did not answer in time")
        told = str(error) or type(error).__name__
        return Lost(f"the server at {self.url} cannot be reached: {told}")

    def found(self, path: str) -> bytes | None:
        try:
            return self.get(path)
        except JobNotFound:
            return None


def json_body(body: Any) -> dict[str, Any]:
    return {
        "content": msgspec.json.encode(body),
        "headers": {"content-type": "application/json"},
    }


def _checked(url: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.hostname and (parts.port is None or parts.port) and url.isprintable()
    except ValueError:
        usable = False
    if not usable or parts.query or parts.fragment or " " in url:
        raise InvalidInput(
            f"the server's URL is {shown(url)}; expected https://host or https://host:port"
        )
    if "@" in parts.netloc:
        raise InvalidInput(
            "the server's URL has a user or password in it; give the key as api_key="
        )
    return url.rstrip("/")
