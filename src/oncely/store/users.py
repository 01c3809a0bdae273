"""Plans of the users: made, changed, listed, removed."""

from __future__ import annotations

from oncely.model.errors import InvalidInput, UserNotFound
from oncely.model.user import KeptUser, Role, User
from oncely.store.look import moment
from oncely.store.plan import Plan, Statement
from oncely.store.trail import Trail, write


def make(
    name: str, role: Role, *, password_hash: str, stamp: str, trail: Trail | None = None
) -> Plan[User]:
    """In a transaction. The stamp is random: a repeat of the statement finds its own row."""
    values = {"name": name, "role": role, "password": password_hash, "stamp": stamp}
    if not (yield Statement("user_make", values)):
        raise InvalidInput(
            f"there is a user {name!r} already: `oncely user set` changes the password or the role"
        )
    yield from write(trail, "create_user", "user", name, details={"role": role})
    kept = yield from find(name)
    if kept is None:
        raise UserNotFound(name)
    return kept.user


def change(
    name: str,
    *,
    role: Role | None,
    password_hash: str | None,
    stamp: str | None,
    trail: Trail | None = None,
) -> Plan[None]:
    values = {"name": name, "role": role, "password": password_hash, "stamp": stamp}
    if not (yield Statement("user_set", values)):
        raise UserNotFound(name)
    details = {"role": role, "password": None if password_hash is None else "a new one"}
    given = {key: value for key, value in details.items() if value is not None}
    yield from write(trail, "set_user", "user", name, details=given)


def remove(name: str, *, trail: Trail | None = None) -> Plan[None]:
    if not (yield Statement("user_remove", {"name": name})):
        raise UserNotFound(name)
    yield from write(trail, "remove_user", "user", name)


def users() -> Plan[list[User]]:
    return [_kept(*row).user for row in (yield Statement("users_list", {"name": None}))]


def find(name: str) -> Plan[KeptUser | None]:
    rows = yield Statement("users_list", {"name": name})
    return _kept(*rows[0]) if rows else None


def _kept(
    name: str, role: Role, password_hash: str, stamp: str, created: int, changed: int
) -> KeptUser:
    return KeptUser(User(name, role, moment(created), moment(changed)), password_hash, stamp)
