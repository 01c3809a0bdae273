"""Payloads: from Python values to JSON text, and to a fingerprint that form does not change."""

from __future__ import annotations

import dataclasses
import math
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import lru_cache
from hashlib import blake2b, sha256
from typing import Any, Final

import msgspec

from oncely.model.errors import InvalidInput

DEPTH_LIMIT: Final = 64
_SHALLOW_BYTES: Final = 2 * DEPTH_LIMIT
"""No deeper than allowed can be what is so short: each level takes two brackets."""
FINGERPRINT_VERSION: Final = "1"
_NAMES: Final = frozenset({str})
_CONSTANTS: Final = (bool, type(None))


def encode(value: Any, *, max_bytes: int) -> str:
    """JSON text of `value`, or a clear error.

    Beside JSON's own types: msgspec structs, dataclasses, attrs and pydantic models become
    objects; dates, times and durations ISO 8601 strings; decimals and UUIDs strings; bytes
    base64; enums their value; sets lists.
    """
    data = _encode(value)
    text = data.decode()
    if len(data) > min(_SHALLOW_BYTES, max_bytes) or "null" in text:
        _check(value, data, max_bytes)
    return text


def encode_all(values: Sequence[Any], *, max_bytes: int) -> list[str]:
    each = [_encode(value) for value in values]
    if max(map(len, each)) > min(_SHALLOW_BYTES, max_bytes) or b"null" in b"".join(each):
        for value, data in zip(values, each, strict=True):
            _check(value, data, max_bytes)
    return [data.decode() for data in each]


def _check(value: Any, data: bytes, max_bytes: int) -> None:
    if len(data) > max_bytes:
        raise InvalidInput(
            f"the payload is {len(data):,} bytes of JSON, more than the {max_bytes:,} allowed: "
            "store the data elsewhere and enqueue a reference to it"
        )
    _refuse_what_json_cannot_say(value, data)


def decode(text: str) -> Any:
    return msgspec.json.decode(text)


def fingerprint(kind: str, value: Any) -> str:
    """Equal for equal content: key order, number forms and Unicode forms do not matter."""
    return _fingerprint(_begun(kind), value)


def fingerprints(kind: str, values: Iterable[Any]) -> list[str]:
    begun = _begun(kind)
    return [_fingerprint(begun, value) for value in values]


def _fingerprint(begun: blake2b, value: Any) -> str:
    # As the list of the two would be written.
    hashed = begun.copy()
    hashed.update(f"{_canonical(value)},]".encode())
    return f"{FINGERPRINT_VERSION}:{hashed.hexdigest()}"


def digest(value: Any) -> str:
    """A hash of the canonical form of any payload, to make keys of."""
    data = _encode(value)
    _refuse_what_json_cannot_say(value, data)
    return sha256(_canonical(value).encode()).hexdigest()


def _hook(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return decode(bytes(value).decode())
    if _is_model(value):
        return value.model_dump(mode="json")
    raise NotImplementedError(
        f"{type(value).__name__} cannot be written where it is, as a value or as the key of a dict"
    )


def _is_model(value: Any) -> bool:
    return callable(getattr(value, "model_dump", None)) and not isinstance(value, type)


_encoder = msgspec.json.Encoder(enc_hook=_hook)


def _encode(value: Any) -> bytes:
    try:
        return _encoder.encode(value)
    except RecursionError:
        raise InvalidInput(_too_deep()) from None
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"the payload has a string with a lone surrogate ({error.object[error.start]!a}), "
            "which is not valid Unicode"
        ) from None
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise InvalidInput(
            f"the payload is not a JSON value: {error}. Expected are None, bool, numbers, str, "
            "lists, dicts, dates, decimals, UUIDs, dataclasses, msgspec structs or pydantic models"
        ) from None


def _too_deep() -> str:
    return (
        f"the payload is nested more than {DEPTH_LIMIT} levels deep (or contains itself): flatten "
        "it, or store it elsewhere and enqueue a reference"
    )


def _refuse_what_json_cannot_say(value: Any, data: bytes) -> None:
    """NaN and infinity would silently become null; the walk is only taken where it could matter."""
    brackets = data.count(b"[") + data.count(b"{")
    if brackets > DEPTH_LIMIT and _depth(decode(data.decode())) > DEPTH_LIMIT:
        raise InvalidInput(_too_deep())
    if b"null" not in data:
        return
    plain = msgspec.to_builtins(value, enc_hook=_hook)
    # What comes back as it went in has lost nothing, and that is found out sooner.
    if plain != msgspec.json.decode(data) and _has_nan(plain):
        raise InvalidInput(
            "the payload contains NaN or infinity, which JSON cannot express: use None or a string"
        )


def _depth(value: Any) -> int:
    deepest = 0
    stack = [(value, 1)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict | list):
            deepest = max(deepest, depth)
            children = item.values() if isinstance(item, dict) else item
            stack.extend((child, depth + 1) for child in children)
    return deepest


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_has_nan, value.values())) or any(map(_has_nan, value))
    if isinstance(value, list | tuple | set | frozenset):
        return any(map(_has_nan, value))
    return False


def _in_order(value: Any) -> Any:
    """Sets as lists, in an order that comes from their content and not from this process."""
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, set | frozenset):
        return sorted(map(_in_order, value), key=_canonical) if value else value
    if isinstance(value, dict):
        return {name: _in_order(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_in_order(item) for item in value]
    if _is_model(value):
        return _ordered_as(value.model_dump(), value.model_dump(mode="json"))
    names, put = _fields(value)
    twin = copy(value) if names else value
    for name in names:
        put(twin, name, _in_order(getattr(value, name)))
    return twin


def _ordered_as(native: Any, plain: Any) -> Any:
    """A model's own JSON, `plain`, has lost which lists were sets; `native` still shows it."""
    match native, plain:
        case ((set() | frozenset()), list()):
            return sorted(plain, key=_canonical)
        case ((list() | tuple()), list()) if len(native) == len(plain):
            return [_ordered_as(*pair) for pair in zip(native, plain, strict=True)]
        case dict(), dict() if len(native) == len(plain):
            pairs = zip(native.values(), plain.items(), strict=True)
            return {name: _ordered_as(twin, item) for twin, (name, item) in pairs}
    return plain


def _fields(value: Any) -> tuple[tuple[str, ...], Callable[[Any, str, Any], None]]:
    """What msgspec writes of an object, and how to set it, also where the object is frozen."""
    if isinstance(value, msgspec.Struct):
        return value.__struct_fields__, msgspec.structs.force_setattr
    fields = getattr(value, "__attrs_attrs__", ())
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
    return tuple(f.name for f in fields if hasattr(value, f.name)), object.__setattr__


def _canonical(value: Any) -> str:
    try:
        return _written(value)
    except _NotPlainError:
        return _written(decode(_encode(_in_order(value)).decode()))


class _NotPlainError(Exception):
    """It would not come back from JSON as it went in."""


def _written(value: Any) -> str:
    kind = type(value)
    if kind is str:
        return _text(value)
    if kind is int:
        return repr(value)
    if kind is dict and _NAMES.issuperset(map(type, value)):
        items = sorted([(_text(name), name) for name in value])
        return f"{{{''.join([f'{text}{_written(value[name])},' for text, name in items])}}}"
    if kind is list:
        return f"[{''.join([f'{_written(item)},' for item in value])}]"
    if kind is float:
        # 1, 1.0 and 1e0 are one number; so are 0 and -0.0.
        return repr(int(value) if value.is_integer() else value)
    if kind not in _CONSTANTS:
        raise _NotPlainError
    return "n" if value is None else "t" if value else "f"


def _text(value: str) -> str:
    text = value if value.isascii() else unicodedata.normalize("NFC", value)
    return f'{len(text)}"{text}'


@lru_cache(1_000)
def _begun(kind: str) -> blake2b:
    """The same few kinds come again and again."""
    return blake2b(f"[{_text(kind)},".encode(), digest_size=16)
