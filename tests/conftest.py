from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from oncely import Oncely
from tests.cluster import Cluster


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The PostgreSQL of this run (of this worker, under pytest-xdist). Started when asked for."""
    with Cluster() as cluster:
        yield cluster


@pytest.fixture(scope="session")
def migrated(cluster: Cluster) -> str:
    """The name of a database that has our tables, to be copied: far quicker than making them."""
    name = f"migrated_{uuid4().hex}"
    with Oncely(cluster.create_database(name)) as app:
        app.migrate()
    return name


@pytest.fixture
def postgres_url(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a database of this test's own: empty, or for `app`, which migrates it in any
    case, with the tables in it."""
    name = f"test_{uuid4().hex}"
    if "app" in request.fixturenames:
        yield cluster.create_database(name, request.getfixturevalue("migrated"))
    else:
        yield cluster.create_database(name)
    cluster.drop_later(name)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'jobs.db'}"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """An empty store on each engine in turn: what runs with this runs on both."""
    address: str = request.getfixturevalue(f"{request.param}_url")
    return address


@pytest.fixture
def app(url: str) -> Iterator[Oncely]:
    with Oncely(url) as app:
        app.migrate()
        yield app


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"
