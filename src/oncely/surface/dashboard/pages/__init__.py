"""The pages, in the order in which the navigation shows them."""

from __future__ import annotations

from typing import Final

from oncely.surface.dashboard.ask import Page
from oncely.surface.dashboard.live import Topic
from oncely.surface.dashboard.pages import (
    audit,
    dead,
    doors,
    doubt,
    groups,
    job,
    jobs,
    overview,
    queues,
    schedules,
    sign_in,
    tokens,
    users,
    workers,
)

_MODULES: Final = (
    overview,
    doors,
    jobs,
    job,
    doubt,
    dead,
    queues,
    groups,
    schedules,
    workers,
    tokens,
    users,
    audit,
    sign_in,
)
PAGES: Final[tuple[Page, ...]] = tuple(page for module in _MODULES for page in module.PAGES)
TOPICS: Final[tuple[Topic, ...]] = tuple(
    topic for module in _MODULES for topic in getattr(module, "TOPICS", ())
)
