"""The table of all calls. Routing, the document, the docs and the tests of scopes walk it."""

from __future__ import annotations

from typing import Final

from oncely.surface.http import (
    limits,
    look,
    operate,
    publish,
    queues,
    steer,
    work,
    work_effects,
    work_exchange,
)
from oncely.surface.http.endpoint import Endpoint

TABLE: Final[tuple[Endpoint, ...]] = (
    *publish.ENDPOINTS,
    *look.ENDPOINTS,
    *steer.ENDPOINTS,
    *queues.ENDPOINTS,
    *limits.ENDPOINTS,
    *work.ENDPOINTS,
    *work_exchange.ENDPOINTS,
    *work_effects.ENDPOINTS,
    *operate.ENDPOINTS,
)
