"""A NUL in any text of a request: PostgreSQL cannot store it, and it is the client's mistake."""

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from msgspec import inspect

from oncely import Oncely
from oncely.surface.http.endpoint import Endpoint
from oncely.surface.http.table import TABLE
from tests.engine.steps import engine_of
from tests.surface.http.server import Client

NUL = "a\0b"
PATH = {"{queue}": "q", "{key}": "k", "{name}": "n"}


def sample(kind: Any) -> Any:
    """A value that the type allows."""
    match kind:
        case inspect.Metadata(type=inner):
            return sample(inner)
        case inspect.UnionType(types=types):
            return sample(types[0])
        case inspect.StructType(fields=fields):
            return {each.encode_name: sample(each.type) for each in fields if each.required}
        case inspect.IntType() | inspect.FloatType():
            return max(kind.ge or 0, (kind.gt or 0) + 1)
        case inspect.BoolType():
            return True
        case inspect.ListType(item_type=item):
            return [sample(item)]
        case inspect.DictType():
            return {}
        case inspect.LiteralType(values=values):
            return values[0]
        case inspect.DateTimeType():
            return "2026-01-01T00:00:00Z"
        case inspect.AnyType() | inspect.NoneType():
            return None
    return "x"


def with_nul(kind: Any) -> Iterator[Any]:
    """Values of the type, each with a NUL in one of its texts."""
    match kind:
        case inspect.Metadata(type=inner):
            yield from with_nul(inner)
        case inspect.UnionType(types=types):
            for each in types:
                yield from with_nul(each)
        case inspect.StructType(fields=fields):
            for field in fields:
                for value in with_nul(field.type):
                    yield {**sample(kind), field.encode_name: value}
        case inspect.ListType(item_type=item):
            for value in with_nul(item):
                yield [value]
        case inspect.StrType() | inspect.AnyType():
            yield NUL


def calls(endpoint: Endpoint, job_id: str) -> Iterator[dict[str, Any]]:
    for name, kind in (("json", endpoint.body), ("params", endpoint.query)):
        if kind is not None:
            for value in with_nul(inspect.type_info(kind)):
                fields = {} if endpoint.body is None else {"json": sample_of(endpoint.body)}
                yield {**fields, name: value}
    for part in PATH:
        if part in endpoint.path:
            fields = {} if endpoint.body is None else {"json": sample_of(endpoint.body)}
            yield {"path": endpoint.path.replace(part, "a%00b").replace("{id}", job_id), **fields}


def sample_of(kind: Any) -> Any:
    return sample(inspect.type_info(kind))


@pytest.mark.parametrize("endpoint", TABLE, ids=lambda each: f"{each.method} {each.path}")
def test_a_nul_is_never_a_fault_of_the_server(
    client: Client, app: Oncely, endpoint: Endpoint
) -> None:
    job_id = app.enqueue("k", queue="q").job_id
    path = endpoint.path.replace("{id}", job_id)
    for part, value in PATH.items():
        path = path.replace(part, value)
    for fields in calls(endpoint, job_id):
        answer = client.request(endpoint.method, fields.pop("path", path), **fields)
        assert answer.status_code < 500, (engine_of(app), fields, answer.text)


def test_a_nul_in_what_a_worker_says_of_itself_is_refused(client: Client) -> None:
    for field in ("workerId", "host", "version"):
        told = client.post("/v1/worker/report", json={"workerId": "w", field: NUL})
        assert (told.status_code, told.json()["code"]) == (422, "invalid_request"), field
    assert msgspec.json.decode(client.get("/v1/workers").content) == {"workers": []}
