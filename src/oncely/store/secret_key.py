"""Secrets at rest: encrypted with `$ONCELY_SECRET_KEY` where it is set, else kept as they are.

The first key encrypts; each of them decrypts. An encrypted secret has a prefix that no secret in
the clear can have, so both may lie in one store.
"""

from __future__ import annotations

import os
from base64 import b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from oncely.model.errors import InvalidInput

if TYPE_CHECKING:
    from cryptography.fernet import Fernet

KEY_VARIABLE: Final = "ONCELY_SECRET_KEY"
_PREFIX: Final = "fernet:"
_KEY_BYTES: Final = 32


def check_secret_key() -> None:
    """InvalidInput if the variable is set and cannot be used."""
    _keys()


def encrypt(secret: str) -> str:
    keys = _keys()
    return f"{_PREFIX}{keys[0].encrypt(secret.encode()).decode()}" if keys else secret


def decrypt(stored: str) -> str:
    """InvalidInput if none of our keys has encrypted it."""
    if not stored.startswith(_PREFIX):
        return stored
    keys = _keys()
    if not keys:
        raise InvalidInput(f"the secret is encrypted, and ${KEY_VARIABLE} is not set")
    for key in keys:
        secret = _decrypted(key, stored)
        if secret is not None:
            return secret
    raise InvalidInput(f"none of the keys in ${KEY_VARIABLE} has encrypted the secret")


def is_encrypted_as_asked(stored: str) -> bool:
    """Whether `encrypt` would use the same key today."""
    keys = _keys()
    return not keys or (stored.startswith(_PREFIX) and _decrypted(keys[0], stored) is not None)


def _decrypted(key: Fernet, stored: str) -> str | None:
    from cryptography.fernet import InvalidToken

    try:
        return key.decrypt(stored.removeprefix(_PREFIX)).decode()
    except InvalidToken:
        return None


def _keys() -> tuple[Fernet, ...]:
    text = os.environ.get(KEY_VARIABLE)
    return () if text is None else _parsed(text)


@lru_cache(maxsize=4)
def _parsed(text: str) -> tuple[Fernet, ...]:
    try:
        from cryptography.fernet import Fernet
    except ModuleNotFoundError:
        raise InvalidInput(
            f"${KEY_VARIABLE} needs the package cryptography: pip install 'oncely[server]'"
        ) from None
    return tuple(Fernet(urlsafe_b64encode(_key_bytes(part.strip()))) for part in text.split(","))


def _key_bytes(text: str) -> bytes:
    """In either alphabet of base64. The key is not repeated in an error: that may be logged."""
    try:
        raw = b64decode(text.replace("-", "+").replace("_", "/"), validate=True)
    except ValueError:
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise InvalidInput(
            f"${KEY_VARIABLE} cannot be used; expected {_KEY_BYTES} random bytes in base64, such "
            f"as `openssl rand -base64 {_KEY_BYTES}` makes, or two of these with a comma between"
        )
    return raw
