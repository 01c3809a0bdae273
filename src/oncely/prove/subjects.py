"""What a command line or a test run proves: where it is, and the payload that each kind gets."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from oncely.model.errors import InvalidInput
from oncely.prove import django_project
from oncely.prove.world import Table, WorldItem
from oncely.surface.app import Oncely
from oncely.surface.cli.worker import load_object


class Proof(msgspec.Struct, frozen=True):
    """What `prove` is called with, besides options that all have in common."""

    target: Any
    kind: str | None = None
    payload: Any = None
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    headers: dict[str, str] = {}

    def options(self) -> dict[str, Any]:
        return {"args": self.args, "kwargs": self.kwargs, "headers": self.headers}


def load_target(place: str) -> Any:
    """With the settings of a Django project, if the environment names them."""
    sys.path.insert(0, os.getcwd())  # the settings are there too
    django_project.set_up()
    try:
        return load_object(place, "the target")
    except Exception as error:
        if type(error).__name__ in ("ImproperlyConfigured", "AppRegistryNotReady"):
            raise InvalidInput(
                f"{place} needs a Django project: set DJANGO_SETTINGS_MODULE, such as shop.settings"
            ) from error
        raise


def proofs_of_all(target: Any, place: str, payloads: str | None) -> list[Proof]:
    """One for each kind of an app, or task of a Celery app. Payloads come from the function at
    `payloads`, else from the last job of the kind in the store."""
    given = _payloads(payloads)
    if isinstance(target, Oncely):
        kinds = sorted(target._registry._handlers)
        found = [Proof(target, kind, _payload_of(target, kind, given)) for kind in kinds]
    elif isinstance(tasks := getattr(target, "tasks", None), Mapping):
        kinds = sorted(name for name in tasks if not name.startswith("celery."))
        found = [_proof_of_task(tasks[name], name, given) for name in kinds]
    else:
        raise InvalidInput(
            f"{place} is a {type(target).__name__}; --all takes an Oncely app or a Celery app"
        )
    if unknown := sorted(given.keys() - set(kinds)):
        raise InvalidInput(
            f"--payloads has {', '.join(unknown)}, which {place} has not; it has: "
            f"{', '.join(kinds) or 'none'}"
        )
    if not found:
        raise InvalidInput(f"{place} has no handlers: import the modules that declare them")
    return found


def _payload_of(app: Oncely, kind: str, given: Mapping[str, Any]) -> Any:
    if kind in given:
        return given[kind]
    if jobs := app.jobs(kind=kind, limit=1):
        return jobs[0].payload
    handler = app._registry.get(kind)
    if handler is not None and handler.takes_payload:
        raise InvalidInput(
            f"there is no payload for {kind}: the store has no job of it; give one in the "
            "dict of --payloads MODULE:FUNCTION"
        )
    return None


def _proof_of_task(task: Any, name: str, given: Mapping[str, Any]) -> Proof:
    payload = given.get(name)
    if isinstance(payload, Mapping) and payload.keys() <= {"args", "kwargs"}:
        return Proof(task, name, None, payload.get("args", []), payload.get("kwargs", {}))
    return Proof(task, name, payload)


def _payloads(place: str | None) -> Mapping[str, Any]:
    if place is None:
        return {}
    found = load_object(place, "--payloads")
    if callable(found):
        found = found()
    if not isinstance(found, Mapping):
        raise InvalidInput(f"--payloads {place} gives {found!r}; expected a dict of kind: payload")
    return found


def load_world(place: str | None) -> list[WorldItem]:
    if place is None:
        return []
    found = load_object(place, "--world")
    if callable(found):
        found = found()
    return list(found)


def table(target: Any, url: str | None, name: str) -> Table:
    """`name`, or `URL#name`; without a URL in the store of an app or the database of a project."""
    own, mark, bare = name.rpartition("#")
    if mark:
        return Table(own, bare)
    if isinstance(target, Oncely):
        return Table(target.url, bare)
    found = url or django_project.database_url()
    if found is None:
        raise InvalidInput(
            f"--table is {name!r}, and there is no store; expected the URL of its database before "
            f"a #, such as sqlite:///shop.db#{name}"
        )
    return Table(found, bare)
