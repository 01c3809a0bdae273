import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from oncely import Oncely
from tests.cluster import Cluster
from tests.engine.stage import Stage
from tests.spares import Spares


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def shared_app(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Oncely]:
    """One store per engine for a whole file: for tables of cases that leave nothing behind, or
    that keep out of each other's way."""
    if request.param == "sqlite":
        template: Path = request.getfixturevalue("sqlite_template")
        with Oncely(f"sqlite:///{shutil.copy(template, tmp_path_factory.mktemp('shared'))}") as app:
            yield app
        return
    cluster: Cluster = request.getfixturevalue("cluster")
    spares: Spares = request.getfixturevalue("spares")
    name = spares.take()
    with Oncely(cluster.url(name)) as app, spares.sessions_for(app):
        yield app
    spares.give_back(name)


@pytest.fixture(params=["async", "def"])
def kind_of_handler(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stage(app: Oncely, kind_of_handler: str) -> Stage:
    return Stage(app, kind_of_handler)
