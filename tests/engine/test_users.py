"""Users and sessions in the store: the password and the cookie are kept as hashes."""

from typing import Any

import pytest

from oncely import InvalidInput, Oncely, UserNotFound
from oncely.store import sessions, tokens, users
from oncely.store.sessions import Held
from tests.engine.steps import sql

PASSWORD = "correct horse battery"


def begin(app: Oncely, session: str, name: str) -> None:
    kept = app._engine.run(lambda _: users.find(name), "read")
    assert kept is not None
    app._engine.run(lambda _: sessions.make(session, "user", name, kept.stamp), "transaction")


def held(app: Oncely, session: str) -> Held | None:
    return app._engine.run(lambda _: sessions.look(session), "read")


def test_a_user_is_kept_with_a_hash_of_the_password_and_closes_the_store(app: Oncely) -> None:
    assert not app._engine.run(lambda _: tokens.any_token(), "read")
    made = app.create_user("ada", PASSWORD, role="operator")
    assert app.users() == [made]
    assert (made.name, made.role) == ("ada", "operator")
    row = str(sql(app, "select * from oncely.user"))
    assert PASSWORD not in row
    assert "$argon2id$" in row
    app.remove_user("ada")
    assert app.users() == []
    assert "$argon2id$" not in str(sql(app, "select * from oncely.user"))
    assert app._engine.run(lambda _: tokens.any_token(), "read"), "never open again"


def test_a_session_ends_with_its_user_password_or_sign_out(app: Oncely) -> None:
    app.create_user("ada", PASSWORD, role="operator")
    begin(app, "s1", "ada")
    found = held(app, "s1")
    assert found is not None
    assert (found.kind, found.who, found.role, found.seen_long_ago) == (
        "user",
        "ada",
        "operator",
        False,
    )
    app.set_user("ada", role="reader")
    found = held(app, "s1")
    assert found is not None
    assert found.role == "reader", "a new role holds at once"
    app.set_user("ada", password=PASSWORD)
    assert held(app, "s1") is None, "though it is the same password"
    begin(app, "s2", "ada")
    app._engine.run(lambda _: sessions.end("s2"), "transaction")
    assert held(app, "s2") is None
    begin(app, "s3", "ada")
    app.remove_user("ada")
    assert held(app, "s3") is None
    app.create_user("ada", PASSWORD, role="reader")
    assert held(app, "s3") is None, "not of another user by that name"


def test_a_session_of_a_token_has_the_rights_that_it_has_now(app: Oncely) -> None:
    made = app.create_token(["read"], name="pager")
    token_id = made.token.token_id
    app._engine.run(lambda _: sessions.make("s", "token", token_id, ""), "transaction")
    found = held(app, "s")
    assert found is not None
    assert (found.token_name, found.scopes, found.role) == ("pager", ("read",), None)
    app.revoke_token(token_id)
    assert held(app, "s") is None


@pytest.mark.parametrize(
    ("created_hours", "seen_hours", "lives"),
    [(0, 0, True), (20, 11, True), (20, 13, False), (24 * 7 - 1, 1, True), (24 * 7 + 1, 1, False)],
)
def test_a_session_ends_by_itself(
    shared_app: Oncely, created_hours: int, seen_hours: int, lives: bool
) -> None:
    name = f"u{created_hours}-{seen_hours}"
    shared_app.create_user(name, PASSWORD, role="reader")
    begin(shared_app, name, name)
    postgres = shared_app._engine.library.engine == "postgres"
    back = "{0} - interval '1 hour' * {1}" if postgres else "{0} - 3600000000 * {1}"
    sql(
        shared_app,
        f"update oncely.session set created_at = {back.format('created_at', created_hours)}, "
        f"seen_at = {back.format('seen_at', seen_hours)} where id = :id",
        id=name,
    )
    found = held(shared_app, name)
    assert (found is not None) is lives
    if found is not None:
        assert found.seen_long_ago is (seen_hours > 0)
        shared_app._engine.run(lambda _: sessions.see(name), "transaction")
        found = held(shared_app, name)
        assert found is not None
        assert not found.seen_long_ago
    begin(shared_app, f"{name} again", name)
    left = sql(shared_app, "select 1 from oncely.session where id = :id", id=name)
    assert bool(left) is lives, "what is over goes at the next sign-in"


@pytest.mark.parametrize(
    "options",
    [
        {"name": "", "password": PASSWORD, "role": "reader"},
        {"name": "a\nb", "password": PASSWORD, "role": "reader"},
        {"name": "ada", "password": "short", "role": "reader"},
        {"name": "ada", "password": "x" * 1_025, "role": "reader"},
        {"name": "ada", "password": None, "role": "reader"},
        {"name": "ada", "password": PASSWORD, "role": "admin"},
    ],
)
def test_bad_input_makes_no_user(shared_app: Oncely, options: dict[str, Any]) -> None:
    before = shared_app.users()
    with pytest.raises(InvalidInput) as refused:
        shared_app.create_user(**options)
    assert PASSWORD not in str(refused.value)
    assert shared_app.users() == before


def test_a_name_is_had_once_and_what_is_not_there_is_not_changed(app: Oncely) -> None:
    app.create_user("ada", PASSWORD, role="reader")
    with pytest.raises(InvalidInput, match="already"):
        app.create_user("ada", PASSWORD, role="operator")
    assert app.users()[0].role == "reader"
    with pytest.raises(InvalidInput, match="nothing is set"):
        app.set_user("ada")
    with pytest.raises(UserNotFound, match="oncely user list"):
        app.set_user("bob", role="reader")
    with pytest.raises(UserNotFound, match="oncely user list"):
        app.remove_user("bob")
