"""The server as an ASGI app: `make(app)`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.routing import Mount, Route, Router

from oncely.surface.app import Oncely
from oncely.surface.asgi.types import ASGIApp, Receive, Scope, Send
from oncely.surface.dashboard.site import Dashboard
from oncely.surface.http.endpoint import Answer, Call, Endpoint
from oncely.surface.http.gate import Front, Gate
from oncely.surface.http.openapi import document
from oncely.surface.http.paths import Paths
from oncely.surface.http.problem import Refused
from oncely.surface.http.service import Service, Settings
from oncely.surface.http.table import TABLE
from oncely.surface.http.trusted_proxies import TrustedProxies

_DASHBOARD: Final = "/dashboard"


def make(app: Oncely, settings: Settings | None = None) -> ASGIApp:
    """The HTTP API over the store of `app`, for uvicorn or any other ASGI server."""
    return over(Service(app, settings or Settings()))


def over(service: Service) -> ASGIApp:
    described = msgspec.json.encode(document(TABLE))

    async def openapi(_: Call[None, None]) -> Answer:
        return Answer(described)

    table = [*TABLE, Endpoint("GET", "/openapi.json", None, openapi, "This document")]

    @asynccontextmanager
    async def lifespan(_: Any) -> AsyncIterator[None]:
        async with service.running():
            yield

    dashboard = Dashboard(service.app, redact=service.settings.redact, service=service)
    # A router for all that is no call of the API, without Starlette's middleware: errors are ours
    # to answer, in `Front`.
    front = Front(
        Router(
            routes=[
                *(Route(path, _to_dashboard) for path in ("/", _DASHBOARD)),
                Mount(_DASHBOARD, dashboard),
            ],
            default=_nothing_here,
            redirect_slashes=False,
            lifespan=lifespan,
        ),
        _gates(service, table),
    )
    trusted = service.settings.trusted_proxies
    return TrustedProxies(front, trusted) if trusted else front


def _gates(service: Service, table: Iterable[Endpoint]) -> Paths[Gate]:
    paths: dict[str, list[Endpoint]] = {}
    for endpoint in table:
        paths.setdefault(endpoint.path, []).append(endpoint)
    return Paths({path: Gate(service, endpoints) for path, endpoints in paths.items()})


async def _to_dashboard(request: Request) -> RedirectResponse:
    request.scope["oncely.exchange"].status = 303
    return RedirectResponse(f"{request.scope.get('root_path', '')}{_DASHBOARD}/", 303)


async def _nothing_here(scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG001
    raise Refused("not_found", "There is nothing at this path: /openapi.json lists what there is.")
