"""How many schedules a test plays that is not about the search for them."""

from tests.crash.load import TORTURE


def one_schedule(token: str) -> str | None:
    """`token` in a usual run; under torture None, which is all of them."""
    return token if TORTURE == 1 else None
