"""Users: persons who sign in at the dashboard with a password. Its argon2 hash is kept."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal, get_args

import msgspec

from oncely.model.errors import InvalidInput
from oncely.model.keys import check_key, shown

Role = Literal["reader", "operator"]
ROLES: Final[tuple[Role, ...]] = get_args(Role)
_PASSWORD_LEAST: Final = 12
_PASSWORD_MOST: Final = 1_024


class User(msgspec.Struct, frozen=True):
    """A `reader` looks; an `operator` changes things as well."""

    name: str
    role: Role
    created_at: datetime
    changed_at: datetime


class KeptUser(msgspec.Struct, frozen=True):
    """A user as the store has it. The stamp is a new one with each password."""

    user: User
    password_hash: str
    stamp: str


def check_user_name(name: str) -> str:
    return check_key(name, "the user's name")


def check_role(role: str) -> Role:
    for known in ROLES:
        if role == known:
            return known
    raise InvalidInput(f"role is {shown(role)}; expected {' or '.join(ROLES)}")


def check_password(password: str) -> str:
    """What is wrong is said without the password."""
    if not isinstance(password, str):
        raise InvalidInput("the password is not text")
    if not _PASSWORD_LEAST <= len(password) <= _PASSWORD_MOST:
        raise InvalidInput(
            f"the password has {len(password):,} characters; expected {_PASSWORD_LEAST} to "
            f"{_PASSWORD_MOST:,}"
        )
    return password
