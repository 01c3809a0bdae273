from collections.abc import Iterator

import pytest

from oncely import Oncely
from tests.surface.http.server import Client, in_thread


@pytest.fixture
def client(app: Oncely) -> Iterator[Client]:
    """A client of a real server over an empty store on each engine in turn; it has no tokens."""
    with in_thread(app) as url, Client(url) as client:
        yield client
