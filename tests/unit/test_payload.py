"""From Python values to JSON text: what is taken, in which form, and what is refused."""

import dataclasses
import enum
import math
from collections import OrderedDict, UserDict, deque
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import pydantic
import pytest

from oncely import InvalidInput
from oncely.model.payload import DEPTH_LIMIT, decode, encode

MIB = 1024 * 1024


class Point(msgspec.Struct):
    x: int
    y: float | None = None


class Renamed(msgspec.Struct, rename="camel", omit_defaults=True):
    order_id: str
    note: str = ""


@dataclasses.dataclass
class Order:
    id: UUID
    placed: date
    lines: list[Point]


class Line(pydantic.BaseModel):
    sku: str
    price: Decimal
    at: datetime


class Weight(pydantic.BaseModel):
    kilos: float


class Box(pydantic.BaseModel):
    line: Line
    sizes: tuple[int, ...] = (1, 2)


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Pair(NamedTuple):
    left: int
    right: str


def stored(value: Any) -> Any:
    """What comes back after the payload has been stored."""
    return decode(encode(value, max_bytes=MIB))


JSON_VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    1.5,
    1e-300,
    1e300,
    "",
    "plain",
    "Grüße, 世界 🎉",
    'quote " backslash \\ slash / newline \n tab \t',
    [],
    {},
    [[], {}, [None]],
    {"": 1, "a.b": [1, 2.5, "x"], "nested": {"deep": {"deeper": None}}},
]


@pytest.mark.parametrize("value", JSON_VALUES, ids=ascii)
def test_a_json_value_comes_back_as_it_went_in(value: Any) -> None:
    back = stored(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(
    "value", [2**31, 2**53 + 1, 2**63, 2**64, -(2**63) - 1, 10**40, -(10**40), 10**4000]
)
def test_a_big_integer_keeps_every_digit(value: int) -> None:
    assert stored({"n": value}) == {"n": value}


@pytest.mark.parametrize("value", ["\0", "a\0b", "\x01\x1f\x7f", "\u2028\u2029", "\ufffe\uffff"])
def test_every_valid_character_is_taken_even_nul(value: str) -> None:
    assert stored(value) == value
    assert stored({value: value}) == {value: value}
    assert "\0" not in encode(value, max_bytes=MIB), "written as an escape: no store takes it raw"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Point(1), {"x": 1, "y": None}),
        (Renamed("7"), {"orderId": "7"}),
        (
            Order(UUID("0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e"), date(2026, 2, 28), [Point(1, 2.0)]),
            {
                "id": "0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e",
                "placed": "2026-02-28",
                "lines": [{"x": 1, "y": 2.0}],
            },
        ),
        (
            Box(line=Line(sku="a", price=Decimal("9.90"), at=datetime(2026, 1, 2, tzinfo=UTC))),
            {
                "line": {"sku": "a", "price": "9.90", "at": "2026-01-02T00:00:00Z"},
                "sizes": [1, 2],
            },
        ),
        (
            {"list": [Weight(kilos=1), (Weight(kilos=2),)]},
            {"list": [{"kilos": 1.0}, [{"kilos": 2.0}]]},
        ),
        (date(2024, 2, 29), "2024-02-29"),
        (datetime(2026, 3, 4, 5, 6, 7, 89, tzinfo=UTC), "2026-03-04T05:06:07.000089Z"),
        (
            datetime(2026, 3, 4, 5, tzinfo=timezone(timedelta(hours=5, minutes=30))),
            "2026-03-04T05:00:00+05:30",
        ),
        (datetime(2026, 3, 4, 5), "2026-03-04T05:00:00"),  # noqa: DTZ001
        (time(23, 59, 1), "23:59:01"),
        (timedelta(days=1, seconds=2), "P1DT2S"),
        (timedelta(seconds=-1), "-PT1S"),
        (Decimal("1.10"), "1.10"),
        (Decimal("NaN"), "NaN"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (Colour.RED, "red"),
        (Level.HIGH, 3),
        ({Colour.RED: Level.HIGH}, {"red": 3}),
        (b"\xff\x00", "/wA="),
        (bytearray(b"ab"), "YWI="),
        ({5}, [5]),
        (frozenset({"x"}), ["x"]),
        ((1, (2,)), [1, [2]]),
        (Pair(1, "r"), [1, "r"]),
        (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
        ({1: "one", 2.5: "half", date(2026, 1, 1): "day"}, None),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_the_documented_encodings(value: Any, expected: Any) -> None:
    if expected is None:
        expected = {"1": "one", "2.5": "half", "2026-01-01": "day"}
    assert stored(value) == expected


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf], ids=["nan", "infinity", "minus-infinity"]
)
@pytest.mark.parametrize(
    "wrap",
    [
        lambda x: x,
        lambda x: [1, None, [x]],
        lambda x: {"a": {"b": x}},
        lambda x: (x,),
        lambda x: {x},
        lambda x: Point(1, x),
        lambda x: Weight(kilos=x),
        lambda x: {"raw": msgspec.Raw(b"null"), "x": x},
    ],
    ids=["bare", "list", "dict", "tuple", "set", "struct", "pydantic", "beside-raw-json"],
)
def test_nan_and_infinity_are_refused_and_not_made_null(wrap: Any, value: float) -> None:
    with pytest.raises(InvalidInput, match="NaN or infinity"):
        encode(wrap(value), max_bytes=MIB)


def test_raw_json_is_passed_on() -> None:
    assert stored({"a": msgspec.Raw(b'{"b": null}'), "c": None}) == {"a": {"b": None}, "c": None}


@pytest.mark.parametrize(
    "value",
    ["\ud800", "ok\udfff", {"\ud83d": 1}, ["x", {"y": "\udc00"}], Point.__new__],
    ids=["bare", "at-the-end", "as-key", "nested", "a-function"],
)
def test_what_is_not_unicode_or_not_data_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match=r"lone surrogate|not a JSON value"):
        encode(value, max_bytes=MIB)


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (object(), "object"),
        ({"a": [1j]}, "complex"),
        (UserDict(a=1), "UserDict"),
        ({(1, 2): 3}, "tuple"),
        ({None: 3}, "NoneType"),
        (deque([1]), "deque"),
        (Line, "ModelMetaclass"),
        ((n for n in range(3)), "generator"),
        (Exception("boom"), "Exception"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_error_names_the_type_that_json_has_no_word_for(value: Any, named: str) -> None:
    with pytest.raises(InvalidInput, match=f"not a JSON value.*{named}.*Expected are"):
        encode(value, max_bytes=MIB)


def test_an_integer_too_long_to_write_is_refused() -> None:
    with pytest.raises(InvalidInput, match="digits"):
        encode(10**5000, max_bytes=MIB)


def nested(levels: int, *, as_dicts: bool) -> Any:
    value: Any = {} if as_dicts else []
    for _ in range(levels - 1):
        value = {"a": value} if as_dicts else [value]
    return value


@pytest.mark.parametrize("as_dicts", [False, True])
def test_nesting_up_to_the_limit_is_taken(as_dicts: bool) -> None:
    value = nested(DEPTH_LIMIT, as_dicts=as_dicts)
    assert stored(value) == value


@pytest.mark.parametrize("as_dicts", [False, True])
@pytest.mark.parametrize("levels", [DEPTH_LIMIT + 1, 500, 990, 5_000, 200_000])
def test_deeper_nesting_is_refused(levels: int, as_dicts: bool) -> None:
    with pytest.raises(InvalidInput, match="64 levels"):
        encode(nested(levels, as_dicts=as_dicts), max_bytes=64 * MIB)


def test_many_brackets_side_by_side_are_not_depth() -> None:
    value = [[[n]] for n in range(1000)]
    assert stored(value) == value


def test_a_structure_that_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    around: dict[str, Any] = {"a": [{}]}
    around["a"][0]["b"] = around
    for value in (loop, around):
        with pytest.raises(InvalidInput, match="contains itself"):
            encode(value, max_bytes=MIB)


def test_the_size_limit_counts_the_bytes_of_the_json() -> None:
    assert len(encode("x" * 98, max_bytes=100)) == 100
    with pytest.raises(InvalidInput, match=r"101 bytes.*100 allowed"):
        encode("x" * 99, max_bytes=100)
    with pytest.raises(InvalidInput, match="102 bytes"):
        encode("ü" * 50, max_bytes=100)
