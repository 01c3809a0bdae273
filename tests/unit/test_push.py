"""Push, the parts that only decide: signatures, answers, what is told of earlier deliveries, the
breaker."""

from base64 import b64encode
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from standardwebhooks import Webhook

from oncely import InvalidInput, Push
from oncely.model.outcome import Deferred, Raised, Returned
from oncely.model.push import (
    answered,
    is_healthy,
    previous,
    secret_bytes,
    sign,
)
from oncely.model.push_breaker import LIMIT_SECONDS, OPENS_AFTER, Breaker

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_" + b64encode(bytes(range(32))).decode()
NOW = datetime(2026, 11, 16, 12, 0, 0, tzinfo=UTC)


def test_the_signature_is_that_of_the_published_vector() -> None:
    """Of the libraries of Standard Webhooks."""
    body = b'{"test": 2432232314}'
    made = sign([secret_bytes(SECRET)], "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body)
    assert made == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize("secret", [SECRET, OTHER])
def test_a_receiver_with_either_secret_accepts_what_both_sign(secret: str) -> None:
    body = '{"id":"1","payload":"ü"}'
    now = int(datetime.now(UTC).timestamp())
    made = sign([secret_bytes(SECRET), secret_bytes(OTHER)], "job-1", now, body.encode())
    headers = {"webhook-id": "job-1", "webhook-timestamp": str(now), "webhook-signature": made}
    assert Webhook(secret).verify(body, headers) == {"id": "1", "payload": "ü"}


@pytest.mark.parametrize(
    "secret",
    ["", "short", "whsec_", "whsec_c2hvcnQ=", "not base64 at all, but long enough!", 7, [], None],
)
def test_a_secret_that_cannot_sign_is_refused_and_not_repeated(secret: Any) -> None:
    with pytest.raises(InvalidInput) as refused:
        Push("https://example.com/", secret=[secret])
    assert "whsec_" in str(refused.value)
    assert not secret or str(secret).removeprefix("whsec_") not in str(refused.value).split("'")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"url": "", "secret": SECRET}, "push url"),
        ({"url": 7, "secret": SECRET}, "push url"),
        ({"url": "https://x/" + "x" * 2_050, "secret": SECRET}, "2,048"),
        ({"url": "https://x/", "secret": SECRET, "mode": "later"}, "'sync' or 'ack'"),
        ({"url": "https://x/", "secret": [SECRET] * 3}, "2 of them"),
        ({"url": "https://x/", "secret": []}, "2 of them"),
        ({"url": "https://x/", "secret": 7}, "2 of them"),
    ],
)
def test_a_push_that_cannot_be_is_one_clear_error(options: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        Push(**options)


def test_what_is_shown_of_a_push_has_no_secret() -> None:
    assert "MfKQ" not in repr(Push("https://example.com/", secret=SECRET))
    assert "MfKQ" not in str(Push("https://example.com/", secret=[SECRET, OTHER]))


@pytest.mark.parametrize("status", range(200, 300))
def test_every_2xx_acks(status: int) -> None:
    assert isinstance(answered(status, None, NOW), Returned)


@pytest.mark.parametrize("status", [429, 503, 529])
def test_busy_defers(status: int) -> None:
    ending = answered(status, "7", NOW)
    assert isinstance(ending, Deferred)
    assert ending.seconds == 7


def test_every_other_status_is_a_failed_attempt_or_fails_at_once() -> None:
    at_once = {400, 410, 413, 415, 422}
    for status in set(range(300, 600)) - {429, 503, 529}:
        ending = answered(status, "7", NOW)
        assert isinstance(ending, Raised), status
        assert ending.retryable == (status not in at_once), status


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30", 30),
        (" 30 ", 30),
        ("0", 0.5),
        ("99999999999999999999", 86_400),
        ("Mon, 16 Nov 2026 12:01:00 GMT", 60),
        ("Monday, 16-Nov-26 12:01:00 GMT", 60),
        ("Mon Nov 16 12:01:00 2026", 60),
        ("Mon, 16 Nov 2026 11:00:00 GMT", 0.5),
        ("Mon, 16 Nov 2099 12:00:00 GMT", 86_400),
        (None, 10),
        ("", 10),
        ("-5", 10),
        ("1.5", 10),
        ("soon", 10),
        ("٣", 10),
        ("Mon, 99 Nov 2026 12:01:00 GMT", 10),
    ],
)
def test_retry_after_in_both_forms_and_bounded(value: str | None, seconds: float) -> None:
    ending = answered(503, value, NOW)
    assert isinstance(ending, Deferred)
    assert ending.seconds == seconds


def test_a_date_counts_from_now() -> None:
    later = (NOW + timedelta(seconds=90)).strftime("%a, %d %b %Y %H:%M:%S GMT")
    ending = answered(429, later, NOW)
    assert isinstance(ending, Deferred)
    assert ending.seconds == 90


@pytest.mark.parametrize(
    ("outcome", "error", "told"),
    [
        ("retried", "Refused", "failed"),
        ("deferred", "Busy", "failed"),
        ("failed", "Refused", "failed"),
        ("retried", "Nack", "failed"),
        ("retried", "Unanswered", "unknown"),
        ("retried", "Unacknowledged", "unknown"),
        ("retried", "TimeoutError", "unknown"),
        ("crashed", "WorkerDied", "unknown"),
        ("failed", "PoisonPill", "unknown"),
        ("released", None, "unknown"),
        (None, None, "not_sent"),
    ],
)
def test_what_is_told_of_the_last_delivery(
    outcome: str | None, error: str | None, told: str
) -> None:
    assert previous(outcome, error, any_before=True) == told


def test_before_the_first_delivery_there_is_none() -> None:
    assert previous(None, None, any_before=False) == "none"


def test_health_is_about_the_receiver_and_not_about_the_job() -> None:
    assert is_healthy(answered(204, None, NOW))
    assert is_healthy(answered(422, None, NOW))
    assert not is_healthy(answered(404, None, NOW))
    assert not is_healthy(answered(500, None, NOW))
    assert not is_healthy(answered(503, None, NOW))


def test_the_breaker_opens_after_failures_in_a_row_and_probes_with_one() -> None:
    breaker = Breaker()
    for _ in range(OPENS_AFTER - 1):
        breaker.failed(0.0)
    breaker.succeeded()
    for _ in range(OPENS_AFTER - 1):
        breaker.failed(0.0)
    assert breaker.room(10, 3, 0.0) == 10
    breaker.failed(0.0)
    assert breaker.room(10, 0, 0.9) == 0
    assert breaker.wait_seconds(0.9) == pytest.approx(0.1)
    assert breaker.room(10, 2, 1.1) == 0, "what was sent before must end first"
    assert breaker.room(10, 0, 1.1) == 1
    assert breaker.room(0, 0, 1.1) == 0
    breaker.succeeded()
    assert breaker.room(10, 0, 1.1) == 10


def test_each_probe_that_fails_doubles_the_wait_up_to_a_limit() -> None:
    breaker = Breaker()
    now = 0.0
    for _ in range(OPENS_AFTER):
        breaker.failed(now)
    waits = []
    for _ in range(10):
        wait = breaker.wait_seconds(now)
        waits.append(wait)
        breaker.failed(now + wait / 2)  # was sent before it opened, and changes nothing
        assert breaker.wait_seconds(now) == wait
        now += wait
        breaker.failed(now)
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == LIMIT_SECONDS


def test_a_receiver_that_asks_for_time_gets_it_within_the_limit() -> None:
    breaker = Breaker()
    for _ in range(OPENS_AFTER):
        breaker.failed(0.0, 30.0)
    assert breaker.wait_seconds(0.0) == 30
    breaker = Breaker()
    for _ in range(OPENS_AFTER):
        breaker.failed(0.0, 86_400.0)
    assert breaker.wait_seconds(0.0) == LIMIT_SECONDS
