"""Keys made of parts, keys of a day, keys of a payload; and which strings can be keys."""

import enum
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncely import InvalidInput, key
from oncely.model.keys import KEY_LIMIT, check_key


class Plan(enum.Enum):
    PRO = "pro"
    FREE = 0
    NONE = None
    YES = True


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (("order", 9482, "charge"), "order:9482:charge"),
        (("one",), "one"),
        ((0,), "0"),
        ((-5, 10**20), "-5:100000000000000000000"),
        (("invoice", date(2026, 6, 1)), "invoice:2026-06-01"),
        ((UUID(int=7), "x"), "00000000-0000-0000-0000-000000000007:x"),
        ((Decimal("9.90"),), "9.90"),
        ((Plan.PRO, Plan.FREE), "pro:0"),
        (("a:b", "c"), "a%3Ab:c"),
        (("100%", "c"), "100%25:c"),
        (("a%3Ab",), "a%253Ab"),
        (("smörgås", "🎉"), "smörgås:🎉"),
        (("inner space",), "inner space"),
    ],
    ids=ascii,
)
def test_parts_are_joined_by_colons(parts: tuple[Any, ...], expected: str) -> None:
    assert key(*parts) == expected


def test_a_moment_as_a_part_has_its_colons_escaped() -> None:
    assert (
        key("slot", datetime(2020, 1, 2, 3, 4, tzinfo=UTC))
        == "slot:2020-01-02T03%3A04%3A00+00%3A00"
    )


@pytest.mark.parametrize(
    "part",
    [None, True, False, "", 1.5, b"x", [], (), {}, Ellipsis, Plan.NONE, Plan.YES],
    ids=repr,
)
def test_a_part_that_names_nothing_is_refused(part: Any) -> None:
    for parts in ((part,), ("order", part), (part, "charge")):
        with pytest.raises(InvalidInput, match="part of a key"):
            key(*parts)


def test_no_parts_at_all_are_refused() -> None:
    with pytest.raises(InvalidInput, match="needs parts"):
        key()
    with pytest.raises(InvalidInput, match="part of a key"):
        key.per_day(None)  # type: ignore[arg-type]


texts = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zs", "Zl", "Zp"]), min_size=1, max_size=10
)


@given(left=st.lists(texts, min_size=1, max_size=5), right=st.lists(texts, min_size=1, max_size=5))
def test_different_parts_never_make_the_same_key(left: list[str], right: list[str]) -> None:
    assert (key(*left) == key(*right)) == (left == right)


@given(parts=st.lists(st.sampled_from(["a", ":", "%", "%3A", "a:", "%25"]), min_size=1, max_size=6))
def test_the_parts_can_be_read_back(parts: list[str]) -> None:
    text = key(*parts)
    assert [p.replace("%3A", ":").replace("%25", "%") for p in text.split(":")] == parts


def test_a_key_that_becomes_too_long_is_refused() -> None:
    assert len(key("x" * 127, "y" * 127)) == KEY_LIMIT
    with pytest.raises(InvalidInput, match=r"256 characters; expected 1 to 255.*key\.of"):
        key("x" * 127, "y" * 128)


def test_per_day_takes_the_day_it_is_given() -> None:
    assert key.per_day("digest", 7, day=date(2026, 2, 28)) == "digest:7:2026-02-28"
    assert key.per_day("digest", timezone="Asia/Tokyo", day=date(2026, 1, 1)) == "digest:2026-01-01"


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Kiritimati", "Pacific/Pago_Pago", "Asia/Kolkata"])
def test_per_day_is_the_day_in_the_time_zone(zone: str) -> None:
    before = datetime.now(ZoneInfo(zone)).date()
    made = key.per_day("digest", 7, timezone=zone)
    after = datetime.now(ZoneInfo(zone)).date()
    assert made in {f"digest:7:{day}" for day in (before, after)}


def test_per_day_far_apart_on_the_globe_is_never_the_same_day() -> None:
    east = key.per_day("d", timezone="Pacific/Kiritimati")  # UTC+14
    west = key.per_day("d", timezone="Pacific/Pago_Pago")  # UTC-11
    assert east > west


@pytest.mark.parametrize(
    "zone", ["Mars/Olympus", "", "../../etc/passwd", "/etc/localtime", None, 5]
)
def test_an_unknown_time_zone_is_refused(zone: Any) -> None:
    with pytest.raises(InvalidInput, match="timezone is"):
        key.per_day("digest", timezone=zone)


@pytest.mark.parametrize("day", [datetime(2026, 1, 1, tzinfo=UTC), "2026-01-01", 20260101])
def test_a_day_with_a_time_is_refused(day: Any) -> None:
    with pytest.raises(InvalidInput, match="expected a date, without a time"):
        key.per_day("digest", day=day)


def test_key_of_hashes_the_content() -> None:
    made = key.of({"b": 1, "a": [1.0, date(2026, 1, 1)]})
    assert made == key.of({"a": [1, "2026-01-01"], "b": 1.0})
    assert made != key.of({"a": [1, "2026-01-02"], "b": 1.0})
    assert check_key(made, "key") == made
    assert len(made) == 64


@pytest.mark.parametrize("value", [float("nan"), "\ud800", object(), {1: {2: [float("inf")]}}])
def test_key_of_refuses_what_is_no_payload(value: Any) -> None:
    with pytest.raises(InvalidInput):
        key.of(value)


@pytest.mark.parametrize(
    "good",
    [
        "k",
        "x" * 255,
        "🎉" * 255,
        "a b",
        "order:9482:charge",
        "a/b?c=d&e",
        "'; drop table jobs; --",
        "%s",
        "ünï",
    ],
    ids=ascii,
)
def test_a_string_of_1_to_255_characters_is_a_key(good: str) -> None:
    assert check_key(good, "unique_key") == good


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        ("", "0 characters"),
        ("x" * 256, "256 characters"),
        ("🎉" * 256, "256 characters"),
        (" k", "white space"),
        ("k ", "white space"),
        ("k\n", "white space"),
        ("\N{NO-BREAK SPACE}k", "white space"),
        (" ", "white space"),
        ("a\0b", "control character"),
        ("a\nb", "control character"),
        ("a\x7fb", "control character"),
        ("a\x85b", "control character"),
        ("a\ud800b", "lone surrogate"),
        (b"k", "expected a string"),
        (5, "expected a string"),
        (True, "expected a string"),
        (None, "expected a string"),
        (["k"], "expected a string"),
        pytest.param(10**5000, "expected a string", id="a-huge-int"),
        pytest.param(list(range(10_000)), "expected a string", id="a-huge-list"),
        pytest.param("k" * 10_000_000, "10000000 characters", id="a-huge-string"),
    ],
)
def test_anything_else_is_not(bad: Any, reason: str) -> None:
    with pytest.raises(InvalidInput, match=f"^unique_key .*{reason}") as caught:
        check_key(bad, "unique_key")
    assert len(str(caught.value)) < 2000, "an error fits the screen"
    str(caught.value).encode()


def test_a_day_in_a_key_is_not_the_day_of_its_retry() -> None:
    """Said in the documentation of per_day: the day is an argument for a reason."""
    today = date(2026, 12, 31)
    assert key.per_day("d", day=today) != key.per_day("d", day=today + timedelta(days=1))
