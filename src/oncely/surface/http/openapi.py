"""The OpenAPI 3.1 document, made of the table of calls and the types that validate them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from importlib.metadata import version
from typing import Any, Final

import msgspec

from oncely.surface.http.endpoint import Endpoint
from oncely.surface.http.problem import MEDIA_TYPE, PROBLEMS, Detail, ProblemBody
from oncely.surface.http.types import BATCH_LIMIT, JOB_ID, NAME, Publish

_REF: Final = "#/components/schemas/{name}"
_PROBLEM: Final = (ProblemBody.__name__, Detail.__name__)
_PARAMETER: Final = re.compile(r"\{(\w+)\}")
_PATH_PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    "queue": {"description": "The name of a queue", "schema": {"type": "string", **NAME}},
    "id": {"description": "The id of a job", "schema": {"type": "string", **JOB_ID}},
}
_IDEMPOTENCY_KEY: Final = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "The same as `idempotencyKey` in the body",
    "schema": {"type": "string"},
}


def document(table: Iterable[Endpoint]) -> dict[str, Any]:
    endpoints = list(table)
    schemas = _Schemas(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Oncely",
            "version": version("oncely"),
            "description": "A job queue: run it twice, it happens once.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
    }


class _Schemas:
    def __init__(self, endpoints: list[Endpoint]) -> None:
        types = [
            each for e in endpoints for each in (e.answer, e.body, e.query) if each is not None
        ]
        self._types = [*dict.fromkeys([*types, Publish, ProblemBody])]
        made, self.components = msgspec.json.schema_components(self._types, ref_template=_REF)
        self._schemas = dict(zip(map(repr, self._types), made, strict=True))
        for name, schema in self.components.items():
            # An answer has all its fields. Requests are those that take no others.
            if schema.get("additionalProperties") is not False and name not in _PROBLEM:
                schema["required"] = [*schema["properties"]]
        self.components["Batch"]["properties"]["jobs"] = {
            "type": "array",
            "minItems": 1,
            "maxItems": BATCH_LIMIT,
            "items": self.of(Publish),
        }

    def of(self, kind: Any) -> dict[str, Any]:
        return self._schemas[repr(kind)]

    def fields(self, kind: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.components[kind.__name__]["properties"]
        return found


def _operation(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name,
        "summary": endpoint.summary,
        "tags": [endpoint.tag],
        "security": [] if endpoint.scope is None else [{"key": []}],
        "responses": _responses(endpoint, schemas),
    }
    if endpoint.scope is not None:
        operation["description"] = f"Takes a key with scope `{endpoint.scope}`."
    parameters = [
        {"name": name, "in": "path", "required": True, **_PATH_PARAMETERS.get(name, _TEXT)}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    if endpoint.query is not None:
        parameters += [
            {"name": name, "in": "query", "schema": _given(schema)}
            for name, schema in schemas.fields(endpoint.query).items()
        ]
    if endpoint.body is Publish:
        parameters.append(_IDEMPOTENCY_KEY)
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": schemas.of(endpoint.body)}},
        }
    return operation


_TEXT: Final[dict[str, Any]] = {"schema": {"type": "string"}}


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """In a query a parameter is left out, and never null."""
    if "anyOf" not in schema:
        return schema
    kept = [each for each in schema["anyOf"] if each.get("type") != "null"]
    rest = {name: value for name, value in schema.items() if name not in ("anyOf", "default")}
    return {**rest, **kept[0]} if len(kept) == 1 else {**rest, "anyOf": kept}


def _responses(endpoint: Endpoint, schemas: _Schemas) -> dict[str, Any]:
    headers = {
        name: {"description": text, "schema": {"type": "string"}}
        for name, text in endpoint.headers.items()
    }
    found: dict[str, Any] = {}
    for status, text in endpoint.statuses.items():
        found[str(status)] = {
            "description": text,
            "content": {endpoint.media_type: {"schema": schemas.of(endpoint.answer)}},
            **({"headers": headers} if headers else {}),
            **({"links": _links(endpoint)} if endpoint.links else {}),
        }
    codes: dict[int, list[str]] = {}
    for code in endpoint.codes():
        codes.setdefault(PROBLEMS[code].status, []).append(code)
    for status, listed in codes.items():
        found[str(status)] = {
            "description": " · ".join(f"`{code}`: {PROBLEMS[code].title}" for code in listed),
            "content": {MEDIA_TYPE: {"schema": schemas.of(ProblemBody)}},
        }
    return found


def _links(endpoint: Endpoint) -> dict[str, Any]:
    return {
        name: {"operationId": target, "parameters": {"id": "$response.body#/id"}}
        for name, target in endpoint.links.items()
    }
