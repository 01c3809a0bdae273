"""One server on each engine for all tests of a file; each test finds its store empty."""

import shutil
from collections.abc import Iterator
from contextlib import closing

import pytest

from oncely import Oncely
from tests.cluster import Cluster
from tests.engine.steps import Backdoor, engine_of
from tests.spares import Spares
from tests.surface.http.server import Client, Running, running

Served = tuple[str, Running, Client]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def served(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    if request.param == "sqlite":
        path = tmp_path_factory.mktemp("served") / "jobs.db"
        shutil.copyfile(request.getfixturevalue("sqlite_template"), path)
        url = f"sqlite:///{path}"
    else:
        cluster: Cluster = request.getfixturevalue("cluster")
        spares: Spares = request.getfixturevalue("spares")
        name = spares.take()
        url = cluster.url(name)
    with Oncely(url) as app, running(app) as server, Client(server.url) as client:
        yield url, server, client
    if request.param == "postgres":
        spares.give_back(name)


@pytest.fixture(scope="module")
def door(served: Served) -> Iterator[Backdoor]:
    """It stays open from test to test: a new session for each table of each of them would take
    more than the tests."""
    with Oncely(served[0]) as app, closing(Backdoor(app)) as door:
        yield door


@pytest.fixture
def app(served: Served, door: Backdoor) -> Iterator[Oncely]:
    """Not the server's own: what a test declares on it is gone with it. What the server measured in
    the test before comes into the store first, and not in the middle of this one."""
    url, server, _ = served
    with Oncely(url) as app:
        server.store_latencies()
        empty(door, engine_of(app))
        yield app


@pytest.fixture
def client(served: Served, app: Oncely) -> Client:
    return served[2]


def empty(door: Backdoor, engine: str) -> None:
    if engine == "sqlite":
        tables = (
            "select name from sqlite_master where type = 'table' "
            "and name like 'oncely_%' and name not in ('oncely_migration', 'oncely_store')"
        )
    else:
        tables = (
            "select 'oncely.' || tablename from pg_tables "
            "where schemaname = 'oncely' and tablename not in ('migration', 'store')"
        )
    looks = (f"select '{name}' where exists (select 1 from {name})" for (name,) in door.sql(tables))
    for (name,) in door.sql(" union all ".join(looks)):
        door.sql(f"delete from {name}")
