"""Which keys look like a mistake. The first rows are the table of good and bad keys that the
documents give."""

import time
from base64 import urlsafe_b64encode
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid1, uuid3, uuid4, uuid5

import pytest

from oncely.model.keys import suspicion
from tests.seed import dice

NOW = datetime(2026, 6, 15, 12, 30, 45, 123456, tzinfo=UTC)
SECONDS = NOW.timestamp()
CLOCK = "looks like a clock reading"
RANDOM = "looks random"
UUID4 = UUID("0b0b1d3a-96a6-4d5c-8f49-5a3f4b1c2d3e")


@pytest.mark.parametrize(
    "good",
    [
        "order:9482:charge",
        "invoice:2026-06:user-771",
        "webhook:evt_abc123",
        "user-771",  # too coarse, but that cannot be seen
        "digest:7:2026-06-15",
        "evt_1OqX2eLkdIwHu7ixZQ3KfGrT",
        "ch_3MmlLrLkdIwHu7ix0snN0B15",
        f"order:{UUID4}:charge",
        f"user-{UUID4}",
        str(uuid5(UUID4, "order")),
        str(uuid3(UUID4, "order")),
        "5f4dcc3b5aa765d61d8327deb882cf99" * 2,
        "2024-01-01T00:00:00Z",
        "report:2025-06-15T12:30",
        "order:1234567890",
        "order:1700000000",
        "phone:4915112345678",
        f"order{int(SECONDS)}",
        f"{int(SECONDS)}9",
        f"x{int(SECONDS * 1000)}",
        "1781526645x",
        "12345",
        "a",
        "order-charge-for-customer-9482",
        "Order-9482-Charge-Customer-77",
        "Invoice_2026_06_User_771",
        "20260615",
        "card 4111111111111111",
        "9999-99-99T99:99",
    ],
)
def test_a_key_with_a_meaning_is_left_alone(good: str) -> None:
    assert suspicion(good, SECONDS) is None


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (str(UUID4), RANDOM),
        (str(UUID4).upper(), RANDOM),
        (UUID4.hex, RANDOM),
        ("5b2a4f0e-4a1d-11f0-9cd2-0242ac120002", RANDOM),  # version 1
        ("01977420-9c5f-7000-8000-3b2a1c9d8e7f", RANDOM),  # version 7
        ("1f04a1c2-9c5f-6abc-8000-3b2a1c9d8e7f", RANDOM),  # version 6
        ("dGhpc0lzMVJhbmRvbVRva2Vu-_A", RANDOM),
        ("V1StGXR8Z5jdHi6BmyT9k", RANDOM),
        ("V1StGXR8Z5jdHi6BmyT9kQ==", RANDOM),
        (str(int(SECONDS)), CLOCK),
        (str(SECONDS), CLOCK),
        (str(int(SECONDS * 1000)), CLOCK),  # Date.now().toString()
        (str(int(SECONDS * 1_000_000)), CLOCK),
        (str(int(SECONDS) * 1_000_000_000 + 123_456_789), CLOCK),
        (f"order:9482:{int(SECONDS * 1000)}", CLOCK),
        (f"{int(SECONDS)}:order", CLOCK),
        (f"order_{int(SECONDS)}", CLOCK),
        (f"order{int(SECONDS)}:{int(SECONDS)}", CLOCK),
        (f"1234567890:{int(SECONDS)}", CLOCK),
        (NOW.isoformat(), CLOCK),
        (str(NOW), CLOCK),
        (f"charge {NOW:%Y-%m-%d %H:%M}", CLOCK),
        (f"a:{NOW - timedelta(hours=30):%Y-%m-%dT%H:%M:%S}:b", CLOCK),
        (f"2024-01-01T00:00 {NOW:%Y-%m-%dT%H:%M}", CLOCK),
    ],
)
def test_a_key_that_no_retry_would_come_with_again_is_flagged(bad: str, reason: str) -> None:
    found = suspicion(bad, SECONDS)
    assert found is not None
    assert reason in found


def test_what_python_makes_now_is_flagged_now() -> None:
    now = time.time()
    clock = (str(now), str(int(now)), str(time.time_ns()), str(datetime.now(UTC)))
    for made in (*clock, str(uuid1()), str(uuid4()), uuid4().hex):
        assert suspicion(made, now), made


def test_nearly_every_random_token_is_flagged() -> None:
    """A few come without a digit, an upper-case or a lower-case letter."""
    chance = dice("tokens")
    tokens = [urlsafe_b64encode(chance.randbytes(24)).decode() for _ in range(500)]
    flagged = sum(bool(suspicion(token, SECONDS)) for token in tokens)
    assert flagged > 450


def test_a_clock_reading_of_long_ago_is_somebodys_data() -> None:
    for days in (3, 30, 3000):
        then = NOW - timedelta(days=days)
        assert suspicion(then.isoformat(), SECONDS) is None
        assert suspicion(str(int(then.timestamp())), SECONDS) is None
        assert suspicion(str(int(then.timestamp() * 1000)), SECONDS) is None
