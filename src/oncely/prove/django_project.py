"""Django: the project's settings, the URL of its database, and tasks of `django.tasks`."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from oncely.flow.context import Context
from oncely.model.errors import InvalidInput


def set_up() -> None:
    """As `manage.py` does, if `DJANGO_SETTINGS_MODULE` names the settings."""
    settings = os.environ.get("DJANGO_SETTINGS_MODULE")
    if not settings:
        return
    try:
        import django
    except ModuleNotFoundError:
        raise InvalidInput(
            f"DJANGO_SETTINGS_MODULE is {settings!r}, and Django is not installed here"
        ) from None
    try:
        django.setup()
    except Exception as error:
        raise InvalidInput(
            f"Django cannot be set up with DJANGO_SETTINGS_MODULE={settings}: {error}"
        ) from error


def database_url() -> str | None:
    """Of the default database, if a project is set up and the prover can copy it."""
    if not os.environ.get("DJANGO_SETTINGS_MODULE") or "django.conf" not in sys.modules:
        return None
    from django.conf import settings

    database = settings.DATABASES.get("default", {})
    engine, name = database.get("ENGINE", ""), str(database.get("NAME", ""))
    if engine.endswith("sqlite3"):
        return f"sqlite:///{name}"
    server = engine.rpartition(".")[2]
    if server not in ("postgresql", "mysql"):
        return None
    user, password = quote(database.get("USER") or ""), quote(database.get("PASSWORD") or "")
    login = f"{user}:{password}@" if password else f"{user}@" if user else ""
    port = f":{database['PORT']}" if database.get("PORT") else ""
    host = database.get("HOST") or ""
    if server == "mysql" and host.startswith("/"):
        return f"mysql://{login}localhost/{quote(name)}?unix_socket={quote(host)}"
    host = quote(host, safe="")
    return f"{server}://{login}{host}{port}/{quote(name)}"


def is_django_task(target: Any) -> bool:
    """Of `django.tasks`, or of the package django-tasks, which have the same shape."""
    return hasattr(target, "takes_context") and callable(getattr(target, "call", None))


def run_django_task(task: Any, ctx: Context, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """As a worker of Django does. A redelivery has the id of the first delivery."""
    if not task.takes_context:
        return task.call(*args, **kwargs)
    base = next(
        module
        for parent in type(task).__mro__
        if hasattr(module := sys.modules[parent.__module__], "TaskContext")
    )
    result = base.TaskResult(
        task=task,
        id=ctx.job_id,
        status=base.TaskResultStatus.RUNNING,
        enqueued_at=None,
        started_at=None,
        last_attempted_at=None,
        finished_at=None,
        args=list(args),
        kwargs=dict(kwargs),
        backend=task.backend,
        errors=[],
        worker_ids=["oncely-prove"] * ctx.epoch,
    )
    return task.call(base.TaskContext(task_result=result), *args, **kwargs)
