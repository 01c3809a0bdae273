"""The ticks of cron expressions: over clock changes, after an outage, and what is refused."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oncely import InvalidInput
from oncely.model.schedule import CATCH_UP_LIMIT, CatchUp, Cron, tick_key

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata"]
SPRING = datetime(2026, 3, 29, tzinfo=ZoneInfo("Europe/Berlin"))  # 02:00 becomes 03:00
AUTUMN = datetime(2026, 10, 25, tzinfo=ZoneInfo("Europe/Berlin"))  # 03:00 becomes 02:00


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def ticks(cron: Cron, since: datetime, until: datetime) -> list[datetime]:
    found = []
    tick = cron.after(since - SECOND)
    while tick < until:
        found.append(tick)
        tick = cron.after(tick)
    return found


def on_day(expression: str, day: datetime) -> list[str]:
    """The ticks of a day in Berlin, in UTC."""
    following = (day + DAY).astimezone(UTC)
    found = ticks(Cron(expression, "Europe/Berlin"), day.astimezone(UTC), following)
    return [f"{tick:%H:%M:%S}" for tick in found]


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *"])
def test_a_daily_tick_in_the_hour_that_does_not_exist_comes_right_after_it(expression: str) -> None:
    assert on_day(expression, SPRING) == ["01:00:00"]  # 03:00 summer time


@pytest.mark.parametrize("expression", ["30 2 * * *", "0 30 2 * * *"])
def test_a_daily_tick_in_the_hour_that_exists_twice_comes_once(expression: str) -> None:
    assert on_day(expression, AUTUMN) == ["00:30:00"]  # the first 02:30, summer time


def test_seconds_are_counted_within_the_minute_also_where_that_is_moved() -> None:
    assert on_day("15,45 30 2 * * *", SPRING) == ["01:00:15", "01:00:45"]
    assert on_day("15,45 30 2 * * *", AUTUMN) == ["00:30:15", "00:30:45"]


def test_an_hourly_tick_comes_at_every_hour_that_passes() -> None:
    assert len(on_day("0 * * * *", SPRING)) == 23
    assert len(on_day("0 * * * *", AUTUMN)) == 25
    assert len(set(on_day("0 * * * *", AUTUMN - DAY)[:22])) == 22


@pytest.mark.parametrize("minute", range(0, 60, 7))
def test_asked_in_the_second_of_the_two_hours_no_tick_comes_from_before(minute: int) -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    for hour in (0, 1):
        moment = utc("2026-10-25T00:00:00") + timedelta(hours=hour, minutes=minute)
        expected = (
            "2026-10-25T00:30:00"
            if moment < utc("2026-10-25T00:30:00")
            else ("2026-10-26T01:30:00")
        )
        assert cron.after(moment) == utc(expected)


EXPRESSIONS = st.sampled_from(
    ["30 2 * * *", "*/7 * * * *", "0 */5 * * *", "5,35 1-3 * * *", "0 0 1 * *", "59 23 * * SUN",
     "*/20 * * * * *", "10 0 3 L * *", "0 12 * 2 MON#1"]
)  # fmt: skip
MOMENTS = st.floats(0, 3 * 366 * 86_400).map(
    lambda seconds: datetime(2025, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
)


@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS)
def test_ticks_rise_and_do_not_depend_on_when_they_are_asked_for(
    expression: str, zone: str, moment: datetime
) -> None:
    cron = Cron(expression, zone)
    first = cron.after(moment)
    second = cron.after(first)
    assert moment < first < second
    for asked in (first - SECOND, first - timedelta(microseconds=1), moment + (first - moment) / 2):
        assert cron.after(max(moment, asked)) == first
    assert cron.after(first + (second - first) / 2) == second
    assert first.microsecond == 0


@given(EXPRESSIONS, st.sampled_from(ZONES), MOMENTS, st.floats(0, 2 * 86_400))
def test_the_latest_tick_is_the_last_one_that_counting_finds(
    expression: str, zone: str, since: datetime, seconds: float
) -> None:
    cron = Cron(expression, zone)
    until = since + timedelta(seconds=seconds / 10 if expression.startswith("*/20") else seconds)
    counted: list[datetime] = []
    tick = cron.after(since - timedelta(microseconds=1))
    while tick <= until and len(counted) < 3_000:
        counted.append(tick)
        tick = cron.after(tick)
    if len(counted) < 3_000:
        assert cron.latest(since, until) == (counted[-1] if counted else None)
        assert cron.due(since, until, "all") == counted[-CATCH_UP_LIMIT:]


NOW = utc("2026-11-16T12:00:30")


@pytest.mark.parametrize(
    ("expression", "catch_up", "expected"),
    [
        ("0 9 * * *", "latest", ["11-16 09:00:00"]),
        ("0 9 * * *", "skip", []),
        ("0 9 * * *", "all", ["11-14 09:00:00", "11-15 09:00:00", "11-16 09:00:00"]),
        ("0 12 * * *", "skip", ["11-16 12:00:00"]),  # half a minute late is not missed
        ("0 12 * * *", "latest", ["11-16 12:00:00"]),
        ("*/25 * * * * *", "latest", ["11-16 11:59:50", "11-16 12:00:00", "11-16 12:00:25"]),
        ("*/25 * * * * *", "skip", ["11-16 11:59:50", "11-16 12:00:00", "11-16 12:00:25"]),
    ],
)
def test_what_is_fired_after_an_outage(
    expression: str, catch_up: CatchUp, expected: list[str]
) -> None:
    due = Cron(expression, "UTC").due(utc("2026-11-13T12:00:30"), NOW, catch_up)
    assert [f"{tick:%m-%d %H:%M:%S}" for tick in due] == expected


def test_of_a_million_missed_ticks_the_newest_hundred_come() -> None:
    due = Cron("* * * * * *", "Europe/Berlin").due(NOW - 30 * DAY, NOW, "all")
    assert len(due) == CATCH_UP_LIMIT
    assert due[-1] == NOW
    assert {after - before for before, after in pairwise(due)} == {SECOND}


def test_a_tick_has_one_key_whatever_its_zone_is_called() -> None:
    tick = datetime(2026, 11, 16, 10, tzinfo=ZoneInfo("Europe/Berlin"))
    assert tick_key("digest", tick) == "digest@2026-11-16T09:00:00+00:00"
    assert tick_key("digest", tick.astimezone(UTC)) == tick_key("digest", tick)


@pytest.mark.parametrize(
    "expression",
    [None, 5, "", "* * * *", "* * * * * * *", "60 * * * *", "0 24 * * *", "0 0 30 2 *", "0 0 0 * *",
     "@daily", "0 9 * * FUN", "*/0 * * * *", "5-1 * * * *", "0 9 * * MON#6", "0 0 31 4 */2",
     "* " * 5 + " " * 300],
)  # fmt: skip
def test_a_bad_expression_is_refused(expression: object) -> None:
    with pytest.raises(InvalidInput, match=r"^cron is .*expected five fields"):
        Cron(expression, "UTC")


@pytest.mark.parametrize("zone", [None, 5, "", "Mars/Olympus", "Europe", "../UTC", "\0", "é"])
def test_an_unknown_time_zone_is_refused(zone: object) -> None:
    with pytest.raises(InvalidInput, match=r"^timezone is .*expected a name such as"):
        Cron("* * * * *", zone)


@given(st.text("0123456789*/,-#LW MON", max_size=30))
def test_whatever_is_written_it_is_a_schedule_or_a_clear_error(expression: str) -> None:
    try:
        cron = Cron(expression, "America/New_York")
    except InvalidInput:
        return
    assert cron.after(NOW) > NOW
