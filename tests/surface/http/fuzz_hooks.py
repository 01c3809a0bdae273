"""For schemathesis: calls that can wait do not, some of them find a job that is as they need it,
and what was answered is counted."""

import atexit
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import schemathesis

POOL: dict[str, list[Any]] = json.loads(Path(os.environ["FUZZ_POOL"]).read_text())
"""Ids of jobs in a certain state; of the running ones with their `executionId`."""
NEEDED = {
    "/v1/jobs/{id}/replay": "failed",
    "/v1/jobs/{id}/resolve": "held",
    "/v1/jobs/{id}/cancel": "pending",
    **{f"/v1/jobs/{{id}}/{verb}": "running" for verb in ("ack", "nack", "defer")},
    **{f"/v1/jobs/{{id}}/effects/{verb}": "kept" for verb in ("begin", "retake", "done", "clear")},
    "/v1/jobs/{id}/heartbeat": "kept",
    "/v1/jobs/{id}": "kept",
    "/v1/jobs/{id}/story": "kept",
}
ANSWERS: Counter[str] = Counter()
TURNS: Counter[str] = Counter()


@schemathesis.hook
def map_body(context: Any, body: Any) -> Any:
    if not context.operation.path.endswith(("/claim", "/wait")) or not isinstance(body, dict):
        return body
    wait_seconds = body.get("waitSeconds", 0)
    # What is wrong stays wrong: it is to be refused.
    good = type(wait_seconds) in (int, float) and 0 <= wait_seconds <= 20
    return {**body, "waitSeconds": 0} if good else body


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Every other good case is about a job that is in the right state for it."""
    if case.meta is None or case.meta.generation.mode.is_negative:
        return
    path, body = case.operation.path, case.body
    if path == "/v1/dlq/replay":
        # The rest is for others.
        case.body = {**body, "limit": 1} if isinstance(body, dict) else {"limit": 1}
        case.media_type = "application/json"
    found = POOL.get(NEEDED.get(path, ""))
    if not found:
        return
    TURNS[path] += 1
    if TURNS[path] % 2 == 0:
        return
    job_id, execution_id = found[0]
    found[:] = [*found[1:], *(found[:1] if NEEDED[path] == "kept" else [])]
    case.path_parameters["id"] = job_id
    if isinstance(body, dict):
        if "executionId" in body:
            body["executionId"] = execution_id
        if "effect" in body:
            body["effect"] = "send"


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    ANSWERS[f"{case.operation.label} {response.status_code}"] += 1


atexit.register(lambda: Path(os.environ["FUZZ_ANSWERS"]).write_text(json.dumps(ANSWERS)))
