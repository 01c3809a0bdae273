"""Outgoing HTTP: http.client (urllib, requests), httpcore (httpx, httpx2) and aiohttp.

A fault travels to the other side as a header, so that it strikes exactly this request; what only
the caller can see, a time-out, is made here, after the answer came.
"""

from __future__ import annotations

import http.client
import importlib
import sys
from typing import Any, Final

from oncely.prove.copies import Copies
from oncely.prove.watch import Action, Watch, knowing

BY_HTTP: Final = "http"
FAULT_HEADER: Final = "Oncely-Prove-Fault"
TOLD: Final = ("refuse", "lose", "timeout", "drop", "outage", "throttle")
"""The faults that the other side takes part in."""
_TIMES_OUT: Final = ("timeout", "drop")
_READS: Final = ("GET", "HEAD", "OPTIONS")


def install(watch: Watch, _: Copies) -> None:
    _http_client(watch)
    for name in ("httpcore", "httpcore2"):
        if name in sys.modules:
            _httpcore(watch, name)
    if "aiohttp" in sys.modules:
        _aiohttp(watch)


def _meet(watch: Watch, method: str, host: str, path: str) -> Action | None:
    judged = host in watch.hosts.judged
    reading = method.upper() in _READS
    if not judged and not watch.hosts.may_be_called(host.rpartition(":")[0].strip("[]")):
        watch.refuse(
            f"the handler sends {method} to {host}, which is not on this machine: it would be "
            "done there for real, many times. Let it send to a Downstream, or name the host in "
            "allow_hosts=[…]"
        )
    if not judged and not reading and host not in watch.hosts.accepted:
        watch.note(
            "unobserved",
            f"{method} http://{host}{path}: its other side is not in world=, so what it did there "
            "was not compared",
            [BY_HTTP],
        )
    return watch.pass_by("http", f"{method} http://{host}{path}", judged=judged, repeatable=reading)


def _tell_answer(watch: Watch, fault: Action | None, status: int) -> None:
    if fault != "drop":
        watch.tell_answer(status)


def _http_client(watch: Watch) -> None:
    connection: Any = http.client.HTTPConnection
    putrequest, getresponse = connection.putrequest, connection.getresponse

    def watched_putrequest(self: Any, method: str, url: str, *args: Any, **options: Any) -> Any:
        fault = _meet(watch, method, f"{self.host}:{self.port}", url)
        self._oncely_fault = fault
        value = putrequest(self, method, url, *args, **options)
        if fault in TOLD:
            self.putheader(FAULT_HEADER, fault)
        return value

    def watched_getresponse(self: Any, *args: Any, **options: Any) -> Any:
        answer = getresponse(self, *args, **options)
        fault = getattr(self, "_oncely_fault", None)
        _tell_answer(watch, fault, answer.status)
        if fault in _TIMES_OUT:
            self._oncely_fault = None
            answer.close()
            self.close()
            raise TimeoutError("timed out")
        return answer

    connection.putrequest = watched_putrequest
    connection.getresponse = watched_getresponse


def _target(url: Any) -> tuple[str, str]:
    host = bytes(url.host).decode()
    port = url.port or (443 if bytes(url.scheme) == b"https" else 80)
    return f"{host}:{port}", bytes(url.target).decode()


def _httpcore(watch: Watch, name: str) -> None:
    core: Any = importlib.import_module(name)

    def before(request: Any) -> Action | None:
        fault = _meet(watch, bytes(request.method).decode(), *_target(request.url))
        if fault in TOLD:
            request.headers = [*request.headers, (FAULT_HEADER.encode(), fault.encode())]
        return fault

    def after(fault: Action | None, answer: Any) -> None:
        _tell_answer(watch, fault, answer.status)
        if fault in _TIMES_OUT:
            raise core.ReadTimeout("timed out")

    pool, async_pool = core.ConnectionPool, core.AsyncConnectionPool
    handle, ahandle = pool.handle_request, async_pool.handle_async_request

    def handle_request(self: Any, request: Any) -> Any:
        fault = before(request)
        with knowing():
            answer = handle(self, request)
        after(fault, answer)
        return answer

    async def handle_async_request(self: Any, request: Any) -> Any:
        fault = before(request)
        with knowing():
            answer = await ahandle(self, request)
        after(fault, answer)
        return answer

    pool.handle_request = handle_request
    async_pool.handle_async_request = handle_async_request


def _aiohttp(watch: Watch) -> None:
    import aiohttp
    from yarl import URL

    session: Any = aiohttp.ClientSession
    request = session._request

    async def watched(self: Any, method: str, url: Any, **options: Any) -> Any:
        target = self._build_url(url) if hasattr(self, "_build_url") else URL(url)
        fault = _meet(watch, method, f"{target.host}:{target.port}", target.path_qs)
        if fault in TOLD:
            options["headers"] = {**(options.get("headers") or {}), FAULT_HEADER: fault}
        with knowing():
            answer = await request(self, method, url, **options)
        _tell_answer(watch, fault, answer.status)
        if fault in _TIMES_OUT:
            answer.close()
            raise aiohttp.ServerTimeoutError("timed out")
        return answer

    session._request = watched
