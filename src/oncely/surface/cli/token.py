"""`oncely token`: who may do what over HTTP."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from oncely.model.errors import InvalidInput
from oncely.model.token import NewToken, Token, check_queues, check_scopes
from oncely.surface.cli.moments import when
from oncely.surface.cli.options import DEFAULTS, Options
from oncely.surface.cli.place import opened
from oncely.surface.cli.say import answer, screen, visible
from oncely.surface.tokening import OVERLAP_SECONDS


def token(
    verb: Annotated[Literal["create", "list", "revoke", "rotate"], Parameter(help="What to do.")],
    token_id: Annotated[
        str | None, Parameter(help="Of which token: for revoke and rotate; `list` shows the ids.")
    ] = None,
    /,
    *,
    scope: Annotated[
        str | None,
        Parameter(metavar="NAMES", help="Of publish, work, read, admin; comma between them."),
    ] = None,
    queue: Annotated[
        list[str] | None,
        Parameter(metavar="NAMES", negative="", help="Only for these queues. Without: for all."),
    ] = None,
    name: Annotated[str | None, Parameter(metavar="TEXT", help="What you know it by.")] = None,
    expires_in: Annotated[
        float | None, Parameter(metavar="SECONDS", help="Without: it does not expire.")
    ] = None,
    overlap: Annotated[
        float,
        Parameter(metavar="SECONDS", help="With rotate: so long the old key is still good."),
    ] = OVERLAP_SECONDS,
    options: Options = DEFAULTS,
) -> None:
    """Create, list, revoke or rotate the keys of the HTTP server.

    A key is printed once, alone on its line; the store keeps only a hash of it.
    From the first token on, the server takes no request without a key.

        $ oncely token create --scope publish,read --queue payments
        $ oncely token rotate 4f1c09d2a7be --overlap 3600
        $ oncely token revoke 4f1c09d2a7be
    """
    if (verb in ("revoke", "rotate")) != (token_id is not None):
        wrong = "takes no id" if token_id is not None else "needs the id of a token"
        raise InvalidInput(f"token {verb} {wrong}; `oncely token list` shows the ids")
    if verb != "create" and (scope or queue or name or expires_in is not None):
        raise InvalidInput("--scope, --queue, --name and --expires-in go with `token create`")
    match verb:
        case "create":
            if scope is None:
                raise InvalidInput(
                    "--scope is missing; expected one or more of publish,work,read,admin"
                )
            scopes = check_scopes([each.strip() for each in scope.split(",")])
            queues = check_queues(_names(queue))
            with opened(options, create=True) as app:
                _show_key(
                    app.create_token(scopes, queues=queues, name=name, expires_in=expires_in),
                    options,
                )
        case "rotate":
            with opened(options) as app:
                _show_key(app.rotate_token(str(token_id), overlap=overlap), options)
        case "revoke":
            with opened(options) as app:
                app.revoke_token(str(token_id))
            if options.json:
                answer({"token_id": token_id, "revoked": True})
            else:
                screen().print(f"revoked token {token_id}")
        case "list":
            with opened(options) as app:
                _show_all(app.tokens(), options)


def _names(queue: list[str] | None) -> list[str]:
    return [name.strip() for part in queue or () for name in part.split(",")]


def _show_key(made: NewToken, options: Options) -> None:
    if options.json:
        answer({**msgspec.to_builtins(made.token), "key": made.key})
        return
    print(made.key, flush=True)
    print(
        f"token {made.token.token_id}: the key is not shown again, and kept nowhere",
        file=sys.stderr,
    )


def _show_all(tokens: list[Token], options: Options) -> None:
    if options.json:
        answer(tokens)
        return
    out, now = screen(), datetime.now(UTC)
    for each in tokens:
        named = f"  {visible(each.name)}" if each.name else ""
        queues = f" for {', '.join(each.queues)}" if each.queues else ""
        out.print(f"{each.token_id}  {','.join(each.scopes)}{queues}{named}")
        out.print(f"    created {when(each.created_at, now)}{_end(each, now)}")
    if not tokens:
        out.print("no tokens: unless there is a user, a server on this machine takes every request")


def _end(token: Token, now: datetime) -> str:
    if token.revoked_at is not None:
        return f"; revoked {when(token.revoked_at, now)}"
    if token.expires_at is not None:
        return f"; {'expires' if token.valid else 'expired'} {when(token.expires_at, now)}"
    return ""
