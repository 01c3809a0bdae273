"""Cursors for tokens that are limited to queues. A page may end at a job that such a token may not
see: its id is sealed, and what somebody else has made is refused."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from uuid import UUID

_NONCE_BYTES = 12
_TAG_BYTES = 16


class Cursors:
    """`secret` is the same for all servers of a store, and no client knows it."""

    def __init__(self, secret: str) -> None:
        self._key = hashlib.sha256(b"oncely cursor:" + secret.encode()).digest()

    def seal(self, job_id: str) -> str:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        hidden = nonce + self._masked(nonce, UUID(job_id).bytes)
        return urlsafe_b64encode(hidden + self._tag(hidden)).decode()

    def open(self, text: str) -> str | None:
        """The id, or None if it was not sealed here."""
        try:
            data = urlsafe_b64decode(text)
        except ValueError:
            return None
        hidden, tag = data[:-_TAG_BYTES], data[-_TAG_BYTES:]
        if len(hidden) != _NONCE_BYTES + 16 or not hmac.compare_digest(tag, self._tag(hidden)):
            return None
        return str(UUID(bytes=self._masked(hidden[:_NONCE_BYTES], hidden[_NONCE_BYTES:])))

    def _masked(self, nonce: bytes, data: bytes) -> bytes:
        pad = hmac.digest(self._key, b"mask" + nonce, "sha256")
        return bytes(a ^ b for a, b in zip(data, pad, strict=False))

    def _tag(self, hidden: bytes) -> bytes:
        return hmac.digest(self._key, b"tag" + hidden, "sha256")[:_TAG_BYTES]
