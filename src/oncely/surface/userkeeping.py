"""The verbs of users: who may sign in at the dashboard with a password."""

from __future__ import annotations

import secrets

from oncely.model.errors import InvalidInput
from oncely.model.user import Role, User, check_password, check_role, check_user_name
from oncely.store import users
from oncely.surface.acting import trail
from oncely.surface.base import Base, twin
from oncely.surface.password import hashed


class UserKeeping(Base):
    def create_user(self, name: str, password: str, *, role: Role) -> User:
        """Somebody who signs in at the dashboard: a `reader` looks, an `operator` changes things
        as well. The store keeps an argon2 hash of the password. From the first user on, as from
        the first token, the server takes no request without a key or a sign-in."""
        check_user_name(name)
        check_role(role)
        password_hash, stamp = hashed(check_password(password)), secrets.token_hex(16)
        who = trail()
        return self._engine.run(
            lambda _: users.make(name, role, password_hash=password_hash, stamp=stamp, trail=who),
            "transaction",
        )

    def users(self) -> list[User]:
        """By name, without those that were removed."""
        return self._engine.run(lambda _: users.users(), "read")

    def set_user(self, name: str, *, password: str | None = None, role: Role | None = None) -> None:
        """A new password ends the sessions of the one before; a new role holds at once."""
        check_user_name(name)
        if password is None and role is None:
            raise InvalidInput(f"nothing is set for user {name!r}; expected a password or a role")
        new_role = None if role is None else check_role(role)
        password_hash = None if password is None else hashed(check_password(password))
        stamp = None if password is None else secrets.token_hex(16)
        who = trail()
        self._engine.run(
            lambda _: users.change(
                name, role=new_role, password_hash=password_hash, stamp=stamp, trail=who
            ),
            "transaction",
        )

    def remove_user(self, name: str) -> None:
        """End the user's sessions, and let nobody sign in by this name. Removing it again changes
        nothing."""
        check_user_name(name)
        who = trail()
        self._engine.run(lambda _: users.remove(name, trail=who), "transaction")

    acreate_user = twin(create_user)
    ausers = twin(users)
    aset_user = twin(set_user)
    aremove_user = twin(remove_user)
