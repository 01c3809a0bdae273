"""The model as it travels: `camelCase`, and `id` for `job_id`."""

from __future__ import annotations

from functools import cache, reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec
from msgspec import NODEFAULT, Meta

JobId = Annotated[str, Meta(description="The id of a job", extra_json_schema={"format": "uuid"})]


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)


@cache
def mirrored(model: type[msgspec.Struct]) -> type[msgspec.Struct]:
    """A struct of the model as it travels: the same fields, `camelCase`, and `id` for `job_id`."""
    fields: list[Any] = []
    hints = get_type_hints(model, include_extras=True)
    in_code_only = getattr(model, "IN_CODE_ONLY", ())
    for field in msgspec.structs.fields(model):
        if field.name in in_code_only:
            continue
        hint = hints[field.name]
        kind = JobId if field.name == "job_id" and hint is str else _mirrored_type(hint)
        if field.default is not NODEFAULT:
            fields.append((field.name, kind, field.default))
        elif field.default_factory is not NODEFAULT:
            made = field.default_factory
            fields.append((field.name, kind, msgspec.field(default_factory=made)))
        else:
            fields.append((field.name, kind))
    return msgspec.defstruct(
        f"{model.__name__}Told",
        fields,
        module=__name__,
        rename=lambda name: "id" if name == "job_id" else camel(name),
        frozen=True,
        kw_only=True,
        namespace={"__doc__": model.__doc__},
    )


def _mirrored_type(kind: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return mirrored(kind)
    if get_origin(kind) is list:
        return list[_mirrored_type(get_args(kind)[0])]  # type: ignore[misc]
    if isinstance(kind, UnionType):
        return reduce(or_, map(_mirrored_type, get_args(kind)))
    return kind


def mirror(value: msgspec.Struct) -> msgspec.Struct:
    """As it travels."""
    return msgspec.convert(value, mirrored(type(value)), from_attributes=True)
