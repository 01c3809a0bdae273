from collections.abc import Iterator
from uuid import uuid4

import pytest

from oncely import Oncely
from tests.cluster import Cluster
from tests.engine.stage import Stage


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Oncely]:
    """One store per engine for a whole file: for tables of cases that leave nothing behind, or
    that keep out of each other's way."""
    if request.param == "sqlite":
        with Oncely(f"sqlite:///{tmp_path_factory.mktemp('shared') / 'jobs.db'}") as app:
            app.migrate()
            yield app
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    name = f"shared_{uuid4().hex}"
    with Oncely(cluster.create_database(name)) as app:
        app.migrate()
        yield app
    cluster.drop_later(name)


@pytest.fixture(params=["async", "def"])
def kind_of_handler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(app: Oncely, kind_of_handler: str) -> Stage:
    return Stage(app, kind_of_handler)
