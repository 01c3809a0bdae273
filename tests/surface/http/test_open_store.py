"""A store without users and tokens is open to this machine only, wherever the app is mounted."""

import asyncio
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

from oncely import Oncely
from oncely.dashboard import Dashboard
from oncely.surface.asgi.types import ASGIApp
from oncely.surface.http.server import make
from oncely.surface.http.service import Settings
from tests.surface.asgi_driver import until
from tests.surface.http.server import Client, as_process, in_thread

Peer = tuple[str, int]
STRANGER: Peer = ("203.0.113.5", 4711)
FORWARDED = (
    {"forwarded": "for=203.0.113.5"},
    {"x-forwarded-for": "203.0.113.5"},
    {"x-forwarded-for": ""},
    {"X-Forwarded-Host": "127.0.0.1"},
    {"x-forwarded-proto": "https"},
    {"x-real-ip": "127.0.0.1"},
    {"via": "1.1 proxy"},
)


def api_under_fastapi(app: Oncely, *, open_to_everyone: bool = False) -> ASGIApp:
    site = FastAPI()
    site.mount("/jobs", make(app, Settings(open_to_everyone=open_to_everyone)))
    return site


def dashboard_in_own_app(app: Oncely, *, open_to_everyone: bool = False) -> ASGIApp:
    dashboard = Dashboard(app, open_to_everyone=open_to_everyone)
    return Starlette(routes=[Mount("/jobs", dashboard)])


async def post(
    site: ASGIApp, path: str, client: Peer, headers: dict[str, str] | None = None
) -> httpx2.Response:
    transport = httpx2.ASGITransport(site, client=client)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
        return await one.post(path, headers=headers)


MOUNTED: tuple[tuple[Callable[..., ASGIApp], str, int], ...] = (
    (api_under_fastapi, "/jobs/v1/queues/q/pause", 200),
    (dashboard_in_own_app, "/jobs/queues/q/pause", 303),
    (api_under_fastapi, "/jobs/dashboard/queues/q/pause", 303),
)


@pytest.mark.anyio
@pytest.mark.parametrize(("mount", "path", "done"), MOUNTED)
async def test_a_client_of_another_machine_is_refused_wherever_the_app_is_mounted(
    app: Oncely, mount: Callable[..., ASGIApp], path: str, done: int
) -> None:
    site = mount(app)
    for address in ("203.0.113.5", "10.0.0.7", "::ffff:203.0.113.5", "2001:db8::1", "unix", ""):
        answer = await post(site, path, (address, 4711))
        assert answer.status_code == 403, address
    for headers in FORWARDED:
        answer = await post(site, path, ("127.0.0.1", 4711), headers)
        assert answer.status_code == 403, headers
    assert app.queues() == []
    for address in ("127.0.0.1", "127.3.2.1", "::1", "::ffff:127.0.0.1"):
        assert (await post(site, path, (address, 4711))).status_code == done, address


@pytest.mark.anyio
@pytest.mark.parametrize(("mount", "path", "done"), MOUNTED)
async def test_open_to_everyone_is_said_explicitly(
    app: Oncely, mount: Callable[..., ASGIApp], path: str, done: int
) -> None:
    site = mount(app, open_to_everyone=True)
    assert (await post(site, path, STRANGER)).status_code == done
    assert (await post(site, path, ("127.0.0.1", 1), {"via": "1.1 x"})).status_code == done
    named = {"host": "shop.example", "origin": "http://shop.example"}
    assert (await post(site, path, STRANGER, named)).status_code == 403


@pytest.mark.parametrize(
    ("mount", "path"),
    [(api_under_fastapi, "/jobs/v1/queues"), (dashboard_in_own_app, "/jobs/queues")],
)
def test_the_refusal_says_how_a_test_client_gets_in(
    app: Oncely, mount: Callable[..., ASGIApp], path: str
) -> None:
    site = mount(app)
    with TestClient(site) as client:
        refused = client.get(path)
    assert refused.status_code == 403
    text = refused.json()["detail"] if "v1" in path else unescape(refused.text)
    [options] = re.findall(r"TestClient\(app, (.*?)\)\.", text)
    assert options == 'base_url="http://127.0.0.1", client=("127.0.0.1", 50000)'
    with TestClient(site, base_url="http://127.0.0.1", client=("127.0.0.1", 50000)) as client:
        assert client.get(path).status_code == 200


@pytest.mark.anyio
async def test_no_stranger_makes_a_token(app: Oncely) -> None:
    site = dashboard_in_own_app(app)
    transport = httpx2.ASGITransport(site, client=STRANGER)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
        answer = await one.post("/jobs/tokens", data={"name": "mine", "scope": "admin"})
        assert answer.status_code == 403
        assert (await one.get("/jobs/queues")).status_code == 403
        assert (await one.get("/jobs/live?topic=overview-hour")).status_code == 403
    assert app.tokens() == []


@pytest.mark.anyio
async def test_a_key_is_enough_from_anywhere(app: Oncely) -> None:
    key = {"authorization": f"Bearer {app.create_token(['admin']).key}"}
    site = api_under_fastapi(app)
    path = "/jobs/v1/queues/q/pause"
    assert (await post(site, path, STRANGER, key)).status_code == 200
    assert (await post(site, path, STRANGER)).status_code == 401


@pytest.mark.anyio
async def test_a_unix_socket_tells_no_address_and_is_refused(app: Oncely, tmp_path: Path) -> None:
    """Whoever listens on one has a proxy before it, and the proxy's clients are anybody."""
    path = str(tmp_path / "s")
    server = uvicorn.Server(
        uvicorn.Config(dashboard_in_own_app(app), uds=path, lifespan="off", log_config=None)
    )
    serving = asyncio.create_task(server.serve())
    await until(lambda: server.started)
    transport = httpx2.AsyncHTTPTransport(uds=path)
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
        assert (await one.get("/jobs/queues")).status_code == 403
    server.should_exit = True
    await serving


def test_the_server_refuses_what_a_proxy_passes_on(app: Oncely) -> None:
    with in_thread(app) as url, Client(url) as client:
        assert client.publish("q", 1).status_code == 201
        for headers in FORWARDED:
            refused = client.post("/v1/queues/q/jobs", json={"payload": 1}, headers=headers)
            assert refused.status_code == 403
            assert refused.json()["code"] == "not_this_machine"
            assert client.get("/dashboard/queues", headers=headers).status_code == 403
        assert client.get("/healthz", headers=FORWARDED[0]).status_code == 200


def test_a_server_that_is_open_to_everyone_takes_what_a_proxy_passes_on(sqlite_url: str) -> None:
    with (
        as_process(sqlite_url, "--open-to-everyone", "--no-access-log") as server,
        Client(server.url) as client,
    ):
        for headers in FORWARDED:
            told = client.post("/v1/queues/q/jobs", json={"payload": 1}, headers=headers)
            assert told.status_code == 201
