"""Push: where the jobs of a queue go, what an answer means, and how a request is signed."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.http_errors import BUSY, retry_after_seconds
from oncely.model.keys import shown
from oncely.model.outcome import Deferred, Ending, Failure, Raised, Returned

Mode = Literal["sync", "ack"]
Previous = Literal["none", "not_sent", "failed", "unknown"]

SECRETS_LIMIT: Final = 2
ACK_SECONDS: Final = 300.0
NOT_SENT: Final = "NotSent"
UNANSWERED: Final = "Unanswered"
UNACKNOWLEDGED: Final = "Unacknowledged"
_URL_LIMIT: Final = 2_048
_LEAST_SECRET_BYTES: Final = 24
_MOST_SECRET_BYTES: Final = 64
_UNTOLD_SECONDS: Final = 10.0
REFUSED: Final = frozenset({400, 410, 413, 415, 422})
"""Never: the job fails at once."""


class Push(msgspec.Struct, frozen=True):
    """The jobs of a queue are sent to `url`.

    `secret` signs the requests: `whsec_` and 24 to 64 bytes in base64, or two of them, both in
    force, while the receiver changes from one to the other. None keeps the one that is set.
    `mode`: a 2xx ends the job (`sync`), or only accepts it, and the receiver says how it ended
    within the queue's timeout (`ack`).
    """

    url: str
    secret: str | Sequence[str] | None = None
    mode: Mode = "sync"

    def __post_init__(self) -> None:
        if not isinstance(self.url, str) or not 0 < len(self.url) <= _URL_LIMIT:
            raise InvalidInput(
                f"the push url is {shown(self.url)}; expected http(s)://host/path of at most "
                f"{_URL_LIMIT:,} characters"
            )
        if self.mode not in ("sync", "ack"):
            raise InvalidInput(f"the push mode is {shown(self.mode)}; expected 'sync' or 'ack'")
        for secret in self.secrets or ():
            secret_bytes(secret)

    @property
    def secrets(self) -> list[str] | None:
        if self.secret is None:
            return None
        if isinstance(self.secret, str):
            return [self.secret]
        if not isinstance(self.secret, Sequence) or not 1 <= len(self.secret) <= SECRETS_LIMIT:
            raise InvalidInput(
                f"the push secret is a {type(self.secret).__name__}; expected a string, or "
                f"{SECRETS_LIMIT} of them while the receiver changes from one to the other"
            )
        return list(self.secret)

    def __repr__(self) -> str:
        return f"Push({self.url!r}, mode={self.mode!r})"


class PushTarget(msgspec.Struct, frozen=True):
    """What is shown of a push target: everything but its secrets."""

    url: str
    mode: Mode


def check_push(value: Any) -> Push | None:
    if value is not None and not isinstance(value, Push):
        raise InvalidInput(
            f"push is a {type(value).__name__}; expected Push(url, secret=…, mode='sync'|'ack'), "
            "or None for no push"
        )
    return value


def secret_bytes(secret: Any) -> bytes:
    """What the text of a secret stands for. It is not repeated in an error: that may be logged."""
    try:
        text = secret.removeprefix("whsec_").rstrip("=")
        raw = b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (AttributeError, ValueError, Base64Error):
        raw = b""
    if not _LEAST_SECRET_BYTES <= len(raw) <= _MOST_SECRET_BYTES:
        raise InvalidInput(
            f"the push secret is not usable; expected 'whsec_' and {_LEAST_SECRET_BYTES} to "
            f"{_MOST_SECRET_BYTES} random bytes in base64, such as `openssl rand -base64 32` makes"
        )
    return raw


def sign(secrets: Sequence[bytes], message_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature` by Standard Webhooks: one signature for each secret."""
    if not secrets:
        raise InvalidInput("there is no push secret; nothing is sent unsigned")
    signed = b"%s.%d.%s" % (message_id.encode(), timestamp, body)
    return " ".join(
        f"v1,{b64encode(hmac.digest(secret, signed, hashlib.sha256)).decode()}"
        for secret in secrets
    )


def answered(status: int, retry_after: str | None, now: datetime) -> Ending:
    """What a receiver's answer means for the job."""
    if 200 <= status <= 299:
        return Returned(f'{{"status":{status}}}')
    if status in BUSY:
        seconds = retry_after_seconds(retry_after, now)
        if seconds is None:
            seconds = _UNTOLD_SECONDS
        return Deferred(seconds, Failure("Busy", f"the receiver answered {status}"))
    told = ", a redirect, which is not followed" if 300 <= status <= 399 else ""
    failure = Failure("Refused", f"the receiver answered {status}{told}")
    return Raised(failure, retryable=status not in REFUSED)


def is_healthy(ending: Ending) -> bool:
    """Whether the receiver is up and does its work, however it judged this one job."""
    return isinstance(ending, Returned) or (isinstance(ending, Raised) and not ending.retryable)


def previous(outcome: str | None, error_type: str | None, *, any_before: bool) -> Previous:
    """What is known of the last delivery that was sent, from how its execution ended. One that was
    never sent does not hide an earlier one that was."""
    if outcome is None:
        return "not_sent" if any_before else "none"
    if outcome not in ("retried", "deferred", "failed"):
        return "unknown"
    if error_type in (UNANSWERED, UNACKNOWLEDGED, "TimeoutError", "WorkerDied", "PoisonPill"):
        return "unknown"
    return "failed"
