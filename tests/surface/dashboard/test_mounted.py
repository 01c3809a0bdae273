"""The dashboard in an app of somebody else's, at a path of theirs."""

import re
from pathlib import Path

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount

from oncely import Oncely
from oncely.dashboard import Dashboard
from oncely.surface.dashboard.pages import PAGES
from tests.cluster import free_port

LINK = re.compile(r'(?:href|src|action|sse-connect|hx-[a-z]+)="(/[^"]*)"')
PASSWORD = "correct horse battery"


@pytest.mark.anyio
async def test_it_stands_at_any_path(tmp_path: Path) -> None:
    with Oncely(f"sqlite:///{tmp_path}/jobs.db") as app:
        app.create_user("ada", PASSWORD, role="operator")
        job_id = app.enqueue("mail.send", {"to": "ann"}).job_id
        site = Starlette(routes=[Mount("/ops/jobs", Dashboard(app))])
        transport = httpx2.ASGITransport(site)
        async with httpx2.AsyncClient(transport=transport, base_url="http://shop.example") as one:
            asked = await one.get("/ops/jobs/queues")
            assert asked.headers["location"] == "/ops/jobs/sign-in?next=/queues"
            done = await one.post("/ops/jobs/sign-in", data={"name": "ada", "password": PASSWORD})
            assert done.headers["location"] == "/ops/jobs/"
            for cookie in done.headers.get_list("set-cookie"):
                assert "; Path=/ops/jobs; " in cookie
            links: set[str] = set()
            for page in PAGES:
                if page.method == "GET" and not page.public:
                    path = page.path.replace("{queue}", "default").replace("{id}", job_id)
                    answer = await one.get(f"/ops/jobs{path}")
                    assert answer.status_code in (200, 303), path
                    links |= set(LINK.findall(answer.text))
            assert len(links) > 20
            assert [link for link in links if not link.startswith("/ops/jobs/")] == []
            assert (await one.get("/ops/jobs/nothing")).status_code == 404


@pytest.mark.anyio
@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_store_that_is_away_is_not_described(
    tmp_path: Path, engine: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = tmp_path / "secret-place.db"
    broken.write_text("this is no database" * 100)
    address = {
        "sqlite": f"sqlite:///{broken}",
        "postgres": f"postgresql://ann@127.0.0.1:{free_port()}/secret-place",
    }
    with Oncely(address[engine]) as app:
        transport = httpx2.ASGITransport(Dashboard(app))
        async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1") as one:
            for method, path in (("GET", "/"), ("GET", "/queues"), ("POST", "/queues/q/pause")):
                answer = await one.request(method, path)
                assert answer.status_code == 503
                for word in ("secret-place", "127.0.0.1:", "refused", "file is not", "PostgreSQL"):
                    assert word not in answer.text
    assert "secret-place" in caplog.text or "127.0.0.1" in caplog.text
