"""A task of Celery as a handler: with the request that a worker of Celery would give it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from oncely.flow.context import Context
from oncely.model.errors import InvalidInput
from oncely.model.outcome import Defer
from oncely.surface.app import Oncely


def is_celery_task(target: Any) -> bool:
    celery = sys.modules.get("celery")
    return celery is not None and isinstance(target, celery.Task)


def celery_handler(
    task: Any, app: Oncely, args_of: Callable[[Any], Sequence[Any]], kwargs: Mapping[str, Any]
) -> Callable[[Context, Any], Any]:
    """Each delivery has the same `request.id`, as with `acks_late`; `self.retry()` puts the job
    back for its countdown, and `request.retries` counts these and no others."""

    def call(ctx: Context, payload: Any) -> Any:
        from celery.app.trace import build_tracer

        args = list(args_of(payload))
        retries = _retries(app, ctx.job_id)
        published: list[Any] = []
        publish = task.apply_async

        def apply_async(*given: Any, task_id: str | None = None, **options: Any) -> Any:
            """A retry is published with the id of its task: to our queue, not to a broker."""
            if task_id != ctx.job_id:
                return publish(*given, task_id=task_id, **options)
            published.append((given, options))
            return task.AsyncResult(task_id)

        vars(task)["apply_async"] = apply_async
        request = {
            "id": ctx.job_id,
            "root_id": ctx.job_id,
            "retries": retries,
            "called_directly": False,
            "is_eager": False,
            "delivery_info": {"redelivered": ctx.epoch > retries + 1},
        }
        tracer = build_tracer(task.name, task, eager=True, app=task.app)
        try:
            ended = tracer(ctx.job_id, args, dict(kwargs), request)
        finally:
            del vars(task)["apply_async"]
        if published:
            raise _put_back(task, (args, dict(kwargs)), *published[0])
        if ended.info is None or ended.info.state == "IGNORED":
            return ended.retval
        raise ended.info.retval

    return call


def _retries(app: Oncely, job_id: str) -> int:
    job = app.get(job_id)
    assert job is not None
    return sum(each.outcome == "deferred" for each in job.executions)


def _put_back(
    task: Any, called_with: tuple[list[Any], dict[str, Any]], given: Any, options: dict[str, Any]
) -> Defer:
    if (list(given[0]), dict(given[1] or {})) != called_with:
        raise InvalidInput(
            f"the task {task.name} is retried with other arguments than it was called with, which "
            "a proof cannot deliver; expected self.retry() without args= and kwargs="
        )
    seconds = options.get("countdown") or 0
    if eta := options.get("eta"):
        seconds = max(0.0, (eta - datetime.now(eta.tzinfo or UTC)).total_seconds())
    return Defer(seconds, f"retry {options.get('retries')} of {task.name}")
