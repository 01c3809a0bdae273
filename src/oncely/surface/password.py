"""Passwords as argon2 hashes. Slow by design: to be called beside the event loop."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final

from oncely.model.errors import InvalidInput

if TYPE_CHECKING:
    from argon2 import PasswordHasher

_MEMORY_KIB: Final = 46 * 1024
"""With one pass: what OWASP asks for at least. It takes a server's processor some 50 ms."""
_NOBODY: Final = "a password that nobody has"


def hashed(password: str) -> str:
    return _hasher().hash(password)


def is_right(password: str, password_hash: str | None) -> bool:
    """None is a user that does not exist: that takes as long, so that nobody learns the names."""
    from argon2.exceptions import InvalidHashError, VerificationError

    try:
        _hasher().verify(_nobody() if password_hash is None else password_hash, password)
    except (VerificationError, InvalidHashError):
        return False
    return password_hash is not None


@cache
def _nobody() -> str:
    return hashed(_NOBODY)


@cache
def _hasher() -> PasswordHasher:
    try:
        from argon2 import PasswordHasher
    except ModuleNotFoundError:
        raise InvalidInput(
            "passwords need the package argon2-cffi: pip install 'oncely[server]'"
        ) from None
    return PasswordHasher(time_cost=1, memory_cost=_MEMORY_KIB, parallelism=1)
