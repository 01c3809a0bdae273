"""For schemathesis: calls that can wait do not."""

from typing import Any

import schemathesis


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not context.operation.path.endswith(("/claim", "/wait")) or not isinstance(body, dict):
        return body
    wait_seconds = body.get("waitSeconds", 0)
    # What is wrong stays wrong: it is to be refused.
    good = type(wait_seconds) in (int, float) and 0 <= wait_seconds <= 20
    return {**body, "waitSeconds": 0} if good else body
