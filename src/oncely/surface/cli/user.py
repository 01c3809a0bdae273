"""`oncely user`: who may sign in at the dashboard with a password."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from getpass import getpass
from typing import Annotated, Literal

from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.user import Role, User, check_password, check_user_name
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible


def user(
    verb: Annotated[Literal["create", "list", "set", "remove"], Parameter(help="What to do.")],
    name: Annotated[str | None, Parameter(help="Which user; not for list.")] = None,
    /,
    *,
    role: Annotated[
        Role | None, Parameter(help="A reader looks; an operator changes things as well.")
    ] = None,
    password: Annotated[
        bool, Parameter(negative="", show_default=False, help="With set: give a new password.")
    ] = False,
    options: Options = DEFAULTS,
) -> None:
    """Create, list, change or remove those who sign in at the dashboard.

    The password is asked for, or is the first line of standard input; the store
    keeps an argon2 hash of it. From the first user on, as from the first token,
    the server takes no request without a key or a sign-in.

        $ oncely user create ada --role operator
        $ oncely user set ada --password
        $ oncely user remove ada
    """
    if (verb == "list") != (name is None):
        wrong = "takes no name" if name is not None else "needs the name of a user"
        raise InvalidInput(f"user {verb} {wrong}; `oncely user list` shows them")
    if verb in ("list", "remove") and (role is not None or password):
        raise InvalidInput("--role and --password go with `user create` and `user set`")
    if name is not None:
        check_user_name(name)
    match verb:
        case "create":
            if role is None:
                raise InvalidInput("--role is missing; expected reader or operator")
            secret = check_password(_password())
            with opened(options, create=True) as app:
                made = app.create_user(str(name), secret, role=role)
            _say(options, f"created user {visible(made.name)}, {made.role}", made)
        case "set":
            if role is None and not password:
                raise InvalidInput("nothing is set; expected --role or --password")
            new = check_password(_password()) if password else None
            with opened(options) as app:
                app.set_user(str(name), password=new, role=role)
            _say(options, f"changed user {visible(str(name))}", {"name": name, "changed": True})
        case "remove":
            with opened(options) as app:
                app.remove_user(str(name))
            _say(options, f"removed user {visible(str(name))}", {"name": name, "removed": True})
        case "list":
            with opened(options) as app:
                _show_all(app.users(), options)


def _password() -> str:
    """Never from the command line: others can see those."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().removesuffix("\n").removesuffix("\r")
    first = getpass("password: ")
    if getpass("once more: ") != first:
        raise InvalidInput("the two passwords are not the same")
    return first


def _say(options: Options, said: str, value: object) -> None:
    if options.json:
        answer(value)
    else:
        screen().print(said)


def _show_all(users: list[User], options: Options) -> None:
    if options.json:
        answer(users)
        return
    out, now = screen(), datetime.now(UTC)
    for each in users:
        out.print(f"{visible(each.name)}  {each.role}  created {when(each.created_at, now)}")
    if not users:
        out.print("no users: `oncely user create NAME --role operator` makes one")
