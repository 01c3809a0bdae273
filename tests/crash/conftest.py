from collections.abc import Iterator

import pytest

from tests.crash.fleet import Fleet


@pytest.fixture(scope="session")
def fleet() -> Iterator[Fleet]:
    """Eight processes, kept for the whole run."""
    with Fleet(8) as fleet:
        yield fleet
