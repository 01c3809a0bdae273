"""The table of all calls. Routing, the document, the docs and the tests of scopes walk it."""

from __future__ import annotations

from typing import Final

from oncely.surface.http import (
    audit,
    limits,
    look,
    operate,
    publish,
    publish_many,
    queues,
    steer,
    traffic,
    work,
    work_effects,
    work_exchange,
)
from oncely.surface.http.endpoint import Endpoint

TABLE: Final[tuple[Endpoint, ...]] = (
    *publish.ENDPOINTS,
    *publish_many.ENDPOINTS,
    *look.ENDPOINTS,
    *steer.ENDPOINTS,
    *queues.ENDPOINTS,
    *limits.ENDPOINTS,
    *work.ENDPOINTS,
    *work_exchange.ENDPOINTS,
    *work_effects.ENDPOINTS,
    *audit.ENDPOINTS,
    *traffic.ENDPOINTS,
    *operate.ENDPOINTS,
)
