"""From bytes to checked values, or to a refusal that says what is wrong and where."""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import parse_qsl

import msgspec

from oncely.model.payload import DEPTH_LIMIT
from oncely.surface.http.problem import Detail, Refused

_PLACE: Final = re.compile(r"(.*) - at `(.+)`", re.DOTALL)
_JSON: Final = re.compile(r'application/(?:[\w.+-]+\+)?json(?: *; *charset="?utf-8"?)? *', re.I)
_QUERY_LIMIT: Final = 20


def decode_body(
    data: bytes,
    content_type: str | None,
    decoder: msgspec.json.Decoder[Any],
    *,
    is_optional: bool,
) -> Any:
    """An absent body is an empty object where it `is_optional`, and an error elsewhere."""
    if not data and is_optional:
        data = b"{}"
    elif not data:
        detail = "The body is empty: send a JSON object."
        raise Refused("invalid_request", detail, errors=[Detail(detail)])
    elif content_type is None or not _JSON.fullmatch(content_type):
        raise Refused(
            "unsupported_media_type",
            "Send the body as JSON, with `Content-Type: application/json`.",
        )
    try:
        return decoder.decode(data)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Refused("malformed_json", f"The body is not JSON: {error}.") from None
    except RecursionError:
        detail = f"The body is nested more than {DEPTH_LIMIT} levels deep."
        raise Refused("invalid_request", detail, errors=[Detail(detail)]) from None


def decode_query(query: bytes, kind: Any) -> Any:
    if not query and kind is None:
        return None
    try:
        pairs = parse_qsl(
            query.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(query),
            errors="strict",
            max_num_fields=_QUERY_LIMIT,
        )
    except ValueError:
        raise _query("The query is not of the form `name=value&name=value`, in UTF-8.") from None
    if len({name for name, _ in pairs}) < len(pairs):
        raise _query("A parameter of the query is given twice.")
    if kind is None:
        if pairs:
            raise _query("This call has no parameters in its query.")
        return None
    given = dict(pairs)
    try:
        query = msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    for field in msgspec.structs.fields(kind):
        if field.encode_name in given and getattr(query, field.name) is None:
            raise _query(f"{field.encode_name} is null: leave it out.")
    return query


def told(error: Exception, index: int | None = None) -> Detail:
    match = _PLACE.fullmatch(str(error))
    if match is None:
        return Detail(str(error), index=index)
    return Detail(match[1], match[2], index)


def _invalid(error: msgspec.ValidationError) -> Refused:
    return Refused("invalid_request", f"{error}.", errors=[told(error)])


def _query(detail: str) -> Refused:
    return Refused("invalid_request", detail, errors=[Detail(detail)])
